"""Warnings that no event has the attributes that filters or options name.

That is seldom intended: the filters say `temp` and the events `Temp`, the cells of CSV have another delimiter, or the
attribute is in the name of a directory of JSON lines, from which lines take nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from mpi_match.events.event_table import EventTable
from mpi_match.ingest.batches.column_files import ColumnFiles
from mpi_match.ingest.batches.line_files import LineFiles
from mpi_match.ingest.columns.file import ColumnFile
from mpi_match.ingest.files.blocks import read_blocks, rows_of_block
from mpi_match.ingest.rows.judge import PLAIN, EventForm, event_of_row, parse_json, trimmed
from mpi_match.ingest.rows.row_files import are_columnar, partition_values
from mpi_match.model import Event, ModelError
from mpi_match.table.vocabulary import Vocabulary

_READ_ROWS = 1_000
"""Number of rows with attributes that are compared with those that filters name."""
_COMPARED, _SHOWN = 1_000, 5
"""Most names of each side that are compared, and that are shown."""


class Missing(NamedTuple):
    """The warnings about attributes that no event has.

    never_seen   names of location and id that no event has
    doubts       warnings about the names in filters (`doubts_of`)
    """

    never_seen: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def refuse(self, events: object) -> None:
        """Raise ModelError for the first warning, as `strict` asks for; `events` is the name of the input."""
        names = " or ".join(map(repr, self.never_seen))
        for warning in [*([f"no event has {names}"] if names else []), *self.doubts]:
            raise ModelError(f"{events}: {warning} (--strict)")


def doubts_of(
    vocabulary: Vocabulary,
    any_named: bool,
    names: Callable[[], Collection[str]],
    line_files: Iterable[Path],
    id_: str | None = None,
) -> tuple[str, ...]:
    """Warnings about a vocabulary whose filters name attributes that no event has.

    `any_named`: an event has such an attribute, or a location; `names` gives the names that events have; `line_files` hold
    rows of lines; `id_` is the attribute that holds the ids.
    """
    named, found = vocabulary.attribute_names, [named_as_id(vocabulary.attribute_names, id_)]
    if vocabulary.n_names and not any_named:
        found.append(none_named(named, names()))
    directories = [file for file in line_files if "=" in str(file.absolute())]
    found.append(unread_directories(named, directories))
    return tuple(filter(None, found))


def named_as_id(named: Collection[str], id_: str | None) -> str:
    """The warning that filters name the attribute that holds the ids; empty if they do not."""
    if id_ is None or id_ not in named:
        return ""
    return f"a filter names {id_!r}, which is absent from every event because --id names it: give the ids another attribute"


def none_named(named: Collection[str], found: Collection[str]) -> str:
    """The warning that no event has an attribute that filters name: `named` by filters, `found` in events."""
    text = f"no event has an attribute that a filter names ({_some(named)})"
    if not found:
        return text
    if wrapped := _wrapped(named, found):
        return f"{text}; the list {wrapped!r} has objects with them: `jq -c '.{wrapped}[]'` makes an event of each object"
    pairs = [(name, near) for name in islice(sorted(named), _COMPARED) for near in _near(name, found)]
    guess = "".join(f"; is {near!r} meant by {name!r}?" for name, near in pairs[:1])
    return f"{text}; events have {_some(found)}{guess}"


def _wrapped(named: Collection[str], found: Collection[str]) -> str:
    """The attribute whose objects have the names that filters name, as "Records" in the files of CloudTrail; empty if none.

    Both it and the names of its objects are attributes only if it is a list.
    """
    return next((each for each in sorted(found) if any(f"{each}.{name}" in found for name in named)), "")


def unread_directories(named: Collection[str], files: Iterable[Path]) -> str:
    """The warning that directories of files of lines are called after attributes that filters name; empty without any."""
    for file in files:
        for name in partition_values(file).keys() & named:
            return (
                f"a filter names {name!r}, and rows of JSON lines and CSV take nothing from directories such as "
                f"{_directory_of(file, name)}: put it into the rows, or write them as Parquet"
            )
    return ""


def _directory_of(file: Path, name: str) -> str:
    return next(part for part in file.absolute().parts[:-1] if unquote(part.partition("=")[0]) == name)


def _near(name: str, found: Collection[str]) -> list[str]:
    folded = {each.casefold(): each for each in islice(sorted(found), _COMPARED)}
    return [folded[each] for each in get_close_matches(name.casefold(), folded, n=1)]


def _some(names: Collection[str]) -> str:
    shown = ", ".join(map(repr, islice(sorted(names), _SHOWN)))
    return shown + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")


def names_in_files(files: Sequence[Path], form: EventForm) -> set[str]:
    """Names of attributes of the first events of files; of files of columns those of all columns."""
    if are_columnar(files):
        return {name for file in files[:_SHOWN] for name in _columns_of(file)}
    events = (_event_of(line, form) for block in read_blocks(files, form) for _, line in rows_of_block(block))
    return _names_of(islice(events, _READ_ROWS))


def names_in_events(events: EventTable | LineFiles | ColumnFiles) -> set[str]:
    """The names that opened events have, as `names_in_files` gives them; for an event table all names."""
    if isinstance(events, EventTable):
        return events.attribute_names
    if isinstance(events, ColumnFiles):
        return names_in_files([Path(name) for name in events.index.files], events.form)
    lines = events.batch(0, min(events.n_events, _READ_ROWS)).data.tobytes().split(b"\n")
    return _names_of(_event_of(line, events.form) for line in lines if trimmed(line))


def _columns_of(file: Path) -> list[str]:
    from mpi_match.ingest.columns.arrow_lists import leaves  # loads pyarrow

    with ColumnFile(file.open("rb"), str(file), frozenset(), PLAIN) as found:
        return [".".join(path) for path, _ in leaves(found.schema)]


def _event_of(line: bytes, form: EventForm) -> Event | None:
    try:
        return event_of_row(parse_json(trimmed(line)), form)
    except ModelError:
        return None


def _names_of(events: Iterable[Event | None]) -> set[str]:
    return {name for event in events if event is not None for name in event.attributes}
