"""Rows: subscriptions, events and changes as JSON, one to a line, and rejects for bad ones.

    {"interface": "mobile-7", "constraints": [["city", "=", "Milan"], ["temp", ">", 30]], "area": [9.2, 45.5, 1.0]}
    {"interface": "mobile-8", "filters": [{"constraints": [["temp", "<", 0]]}, {"area": [0, 0, 5], "id": "f1"}]}
    {"interface": "mobile-9", "predicate": "city = 'Milan' and temp > 30 or wind >= 20", "area": [9.2, 45.5, 1.0]}
    {"interface": "mobile-10", "tags": ["gpu", "spark"]}
    {"interface": "mobile-11", "where": {"or": [["temp", ">", 30], {"not": ["city", "= i", "milan"]}]}}
    {"interface": "mobile-12", "constraints": [["parts.type", "has", 7], ["parts.n", "any >", 2]], "arrays": "consistent"}

    {"city": "Milan", "temp": 25, "position": {"x": 9.1, "y": 45.4}}

    {"before_event": 0, "move": "f1", "area": [9.3, 45.5, 1.0]}
    {"before_event": 7, "add": {"interface": "mobile-9", "constraints": [["temp", ">", 35]], "id": "f2"}}
    {"before_event": 7, "remove": "f1"}
    {"before_event": 9, "remove_interface": "mobile-7"}
    {"before_event": 9, "consolidate": true}

A subscription is one filter, or a predicate: several `filters` on one interface, or a text in the language of `predicates`,
from which every filter gets the row's `area`, `id` and `arrays`.  `where` is a condition (`model.condition`), and so may any
of the `constraints` be.  `tags` is short for a constraint `["tags", "has", tag]` for each.  With `arrays`, what a filter
says of objects in one list must hold in one of them (`Filter.consistent`).

Rows may share an interface, and an id.  An event is a plain object; `flatten` finds its attributes, and only those that
filters name count.  A change states the event before which it takes effect, counted from 0; it names filters by the id in
their subscription, and all filters with that id change together.  Interfaces and ids are strings; an integer is its decimal
digits.  An invalid row becomes a `Reject` with its reason, file and line; one bad filter rejects the whole row.  An event's
number is that of its row, from 0: a rejected row has a number too, a blank line is not a row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

from mpi_match.ingest.rows.deep_json import Hooks, TooDeep, parse_deep
from mpi_match.ingest.rows.file_kinds import kind_of_text
from mpi_match.ingest.rows.flatten import Names, Repeating, flattened, strings_of
from mpi_match.ingest.rows.packed_files import DAMAGED, damaged, open_bytes
from mpi_match.ingest.rows.predicate_text import parse
from mpi_match.model import (
    EVERY_STRING,
    HAS,
    MAX_CONDITION_DEPTH,
    MAX_EXACT_INTEGER,
    Area,
    Attribute,
    Change,
    Event,
    Filter,
    Json,
    ModelError,
    Time,
    Type,
    Unread,
    View,
    area,
    attribute_of,
    decimal,
    describe,
    id_of_filter,
    is_null,
    label,
    make_event,
    make_filter,
    plain,
    viewed,
)

if TYPE_CHECKING:
    from mpi_match.table.vocabulary import Vocabulary

Row = TypeVar("Row")
_SUBSCRIPTION_KEYS = {"interface", "constraints", "where", "tags", "area", "filters", "id", "arrays"}
_FILTER_KEYS = {"constraints", "where", "tags", "area", "id", "arrays"}
_PREDICATE_KEYS = {"interface", "predicate", "area", "id", "arrays"}
_OF_SUBSCRIPTIONS = {"constraints", "where", "tags", "area", "filters", "predicate"}
TAGS = "tags"
"""The attribute that the `tags` of a subscription are elements of."""
MAX_LINE_BYTES = 2**24
"""Bytes of the longest line that is read; a longer one is a bad row, and only its beginning is kept."""
_PIECE_BYTES = 2**20
"""Bytes skipped at a time in the rest of such a line."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Reject(NamedTuple):
    """A row that was set aside: reason, position and content.

    reason   what is wrong with it
    file     absolute path of its file, or address in another file system; empty for rows that came without a file
    line     line of the file, or row of a Parquet file, counted from 1; position among the rows that a program passed,
             counted from 0; 0 for rows of a Spark DataFrame, which have no order
    row      the line, without blanks around it (the beginning of one that is too long); other rows as JSON

    Rejects files hold these four as JSON, one object to a line.
    """

    reason: str
    file: str
    line: int
    row: str

    @property
    def place(self) -> str:
        """Its position, for people: a file below the working directory by its relative path."""
        return f"{self.file.removeprefix(f'{Path.cwd()}{os.sep}')}, line {self.line}" if self.file else f"row {self.line}"


def nothing_usable(source: str, what: str, n_bad: int, example: Reject | None) -> str:
    """The error of an input `source` without a valid `what`: `n_bad` rows were rejected, such as `example`."""
    if example is None:
        return f"{source}: holds no {what}"
    rows = "its only row is" if n_bad == 1 else f"all {n_bad:,} rows are"
    guess = advice_for(example)
    if not guess and what != "subscription" and looks_like_subscription(example.row):
        guess = "; it is a subscription: are two files exchanged?"
    return f"{source}: holds no usable {what}, {rows} rejected; {example.place}: {example.reason}{guess}"


def advice_for(reject: Reject) -> str:
    """Advice for lines that are no rows, such as the rejected one, to follow its reason; empty if there is none."""
    row, reason = reject.row, reject.reason
    if row.startswith("["):
        return "; lines have one object each, `jq -c '.[]'` makes such lines of an array"
    if reason.startswith("not UTF-8") and (kind := kind_of_text(row)) is not None:
        return f"; it begins as what is {kind.name}"
    if not reason.startswith("not JSON"):
        return ""
    if row.startswith("{'"):
        return "; Python's `json.dumps` writes JSON, `str` and `repr` do not"
    if row.startswith("{") and (not row.endswith("}") or "Extra data" in reason):
        return "; lines have one object each, `jq -c .` makes such lines of objects"
    start = row.find("{")
    if start > 0 and _is_object(row[start:]):
        return f"; its object begins at column {start + 1}, `sed 's/^[^{{]*//'` removes what is before it"
    return ""


def _is_object(text: str) -> bool:
    try:
        return isinstance(parse_json(text), dict)
    except ModelError:
        return False


def looks_like_subscription(line: str | bytes) -> bool:
    """Tells whether a line of JSON, valid or not, is a subscription rather than an event."""
    try:
        row = parse_json(line)
    except ModelError:
        return False
    return isinstance(row, dict) and "interface" in row and not row.keys().isdisjoint(_OF_SUBSCRIPTIONS)


def row_text(row: object) -> str:
    """A row as `Reject.row` holds it: a line of a file, or an object that a program passed."""
    if isinstance(row, bytes):
        kept = row.strip() if len(row) <= MAX_LINE_BYTES else row[:1000] + b" ..."
        return kept.decode(errors="replace")
    try:
        return json.dumps(row, default=_shown, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # names that are not strings; rows that contain themselves
        return describe(row)


def _shown(value: object) -> Any:
    """A value without a form in JSON, in one that JSON has."""
    if isinstance(value, Mapping):
        return dict(value)
    try:
        found = plain(value)
    except ModelError:
        return str(value)
    return found if found is not value else str(value)


def set_aside(reason: str, row: bytes) -> bytes:
    """The line for an invalid record of CSV, among lines of JSON that are made of valid ones.

    `record_set_aside` reads only lines that are made of CSV, because lines of a file may hold anything.
    """
    return b"\0%b\0%b" % (reason.encode(errors="replace"), row)


def record_set_aside(line: bytes) -> tuple[str, bytes] | None:
    """The reason and the record of a line that `set_aside` has made; None for another line."""
    if not line.startswith(b"\0"):
        return None
    _, reason, record = line.split(b"\0", 2)
    return reason.decode(errors="replace"), record


def _object(pairs: list[tuple[str, object]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        found = Repeating(pairs)
        found.pairs = pairs
    return found


def _decimal(text: str) -> float | Unread:
    try:
        return decimal(text)
    except ModelError as error:
        return Unread(str(error))


def _integer(text: str) -> int | Unread:
    try:
        return int(text)
    except ValueError:  # Python reads no thousands of digits
        return Unread("an integer of thousands of digits; send it as a string")


_HOOKS = Hooks(_object, _integer, _decimal)
_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_float=_decimal)
_slow_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_float=_decimal, parse_int=_integer)


def too_long(most: int) -> ModelError:
    """The error of a line of more bytes than `most`."""
    return ModelError(f"the line is longer than {f'{most:,} bytes' if most % 2**20 else f'{most // 2**20} MiB'}")


MAX_SUBSCRIPTION_DEPTH = 1000
"""Lists and objects within one another in the row of a subscription or a change, at most: more than conditions need."""


def parse_subscription(line: str | bytes) -> Any:
    """A row of a subscription or a change, as `parse_json`, which also tells from it that its conditions are too deep."""
    return parse_json(line, MAX_SUBSCRIPTION_DEPTH)


def parse_json(line: str | bytes, deepest: int | None = None) -> Any:
    """One line of JSON, nested to any depth.  The literals NaN, Infinity and -Infinity are numbers, as Python writes them.

    A number that overflows or underflows a double (`model.decimal`), or has thousands of digits, is an `Unread`; an object
    in which a name occurs twice is a `Repeating`.  Raises ModelError for text that is not UTF-8 or not JSON, for lines
    longer than `MAX_LINE_BYTES`, and for more than `deepest` lists and objects within one another.
    """
    if len(line) > MAX_LINE_BYTES:
        raise too_long(MAX_LINE_BYTES)
    try:
        text = line.decode() if isinstance(line, bytes) else line
        try:
            return _decoder.decode(text)
        except RecursionError:
            return _parse_deep(text, deepest)
    except UnicodeDecodeError as error:
        raise ModelError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ModelError(f"not JSON: {error.msg} at column {error.colno}") from None
    except ValueError:  # an integer of thousands of digits
        return _parse_long(text, deepest)


def _parse_deep(text: str, deepest: int | None) -> Any:
    try:
        return parse_deep(text, _HOOKS, deepest)
    except TooDeep:
        raise ModelError(
            f"more than {deepest:,} lists and objects within one another, "
            f"and conditions are {MAX_CONDITION_DEPTH} deep at most"
        ) from None


def _parse_long(text: str, deepest: int | None) -> Any:
    try:
        return _slow_decoder.decode(text)
    except RecursionError:
        return _parse_deep(text, deepest)
    except json.JSONDecodeError as error:
        raise ModelError(f"not JSON: {error.msg} at column {error.colno}") from None


def subscription_filters(row: object) -> list[Filter]:
    """The filters of one subscription row (a parsed JSON object).  Raises ModelError."""
    if not isinstance(row, Mapping):
        raise ModelError(f"a subscription must be an object, found {describe(row)}")
    is_text = "predicate" in row
    _only(
        row, *((_PREDICATE_KEYS, "a subscription with a 'predicate'") if is_text else (_SUBSCRIPTION_KEYS, "a subscription"))
    )
    if "interface" not in row:
        raise ModelError("a subscription needs an 'interface'")
    if is_text:
        if not isinstance(row["predicate"], str):
            raise ModelError("'predicate' must be a text such as \"temp > 30 and city = 'Milan'\"")
        others = row.get("area"), row.get("id"), None, row.get("arrays")
        return [make_filter(row["interface"], found, *others) for found in parse(row["predicate"])]
    if "filters" not in row:
        return [_filter(row["interface"], row)]
    if len(row) > 2:
        raise ModelError(
            "a subscription has either 'filters' or its own 'constraints', 'where', 'tags', 'area', 'id' and 'arrays', not "
            "both"
        )
    if not isinstance(row["filters"], list) or not row["filters"]:
        raise ModelError("'filters' must be a list of one filter at least; [{\"constraints\": []}] matches every event")
    for item in row["filters"]:
        if not isinstance(item, Mapping):
            raise ModelError("a filter must be an object")
        _only(item, _FILTER_KEYS, "a filter")
    return [_filter(row["interface"], item) for item in row["filters"]]


def _only(row: Mapping[str, object], keys: set[str], what: str) -> None:
    if type(row) is Repeating:
        raise ModelError(f"the name {row.repeated!r} occurs twice")
    unknown = sorted(set(row) - keys, key=str)
    if unknown:
        raise ModelError(f"{what} has no {unknown[0]!r}; it has: {', '.join(sorted(keys))}")


def _filter(interface: Any, row: Mapping[str, Any]) -> Filter:
    constraints, tags = row.get("constraints"), row.get("tags")
    if constraints is None and tags is None and row.get("area") is None and row.get("where") is None:
        raise ModelError("a filter needs 'constraints' (a list, perhaps empty), 'where', 'tags' or an 'area'")
    for key, found in (("constraints", constraints), ("tags", tags)):
        if not isinstance(found, (list, type(None))):
            raise ModelError(f"{key!r} must be a list")
    if isinstance(row.get("where"), str):
        raise ModelError("'where' must be a condition such as {\"or\": [...]}; a text such as \"a > 1\" is a 'predicate'")
    every = [*(constraints or ()), *([TAGS, HAS, tag] for tag in tags or ())]
    return make_filter(interface, every, row.get("area"), row.get("id"), row.get("where"), row.get("arrays"))


class ChangeRow(NamedTuple):
    """One change as it was written.

    `target` is the id of filters (MOVE, REMOVE) or the label of an interface (REMOVE_INTERFACE); `area` belongs to MOVE,
    `filters` (those of one subscription) to ADD.  It takes effect before event number `before_event`.
    """

    kind: Change
    target: str = ""
    area: Area | None = None
    filters: tuple[Filter, ...] = ()
    before_event: int = 0


_CHANGES = {change.name.lower(): change for change in Change}


def change_of_row(row: object, *, stamped: bool = True) -> ChangeRow:
    """The change of one row (a parsed JSON object).

    `stamped`: rows must have `before_event`; otherwise they must not, because they take effect at once.  Raises ModelError.
    """
    if not isinstance(row, Mapping):
        raise ModelError("a change must be an object")
    found = [key for key in _CHANGES if key in row]
    if len(found) != 1:
        raise ModelError(f"a change has one of {', '.join(map(repr, _CHANGES))}; found {' and '.join(found) or 'none'}")
    key, kind = found[0], _CHANGES[found[0]]
    _only(row, {key} | ({"area"} if kind is Change.MOVE else set()) | ({"before_event"} if stamped else set()), f"{key!r}")
    stamp = _stamp(row) if stamped else 0
    if kind is Change.ADD:
        return ChangeRow(kind, filters=tuple(subscription_filters(row[key])), before_event=stamp)
    if kind is Change.MOVE and row.get("area") is None:
        raise ModelError("'move' needs an 'area' to move to, [x, y, r]")
    if kind is Change.CONSOLIDATE:
        if row[key] is not True:
            raise ModelError(f"'consolidate' must be true, found {describe(row[key])}")
        return ChangeRow(kind, before_event=stamp)
    target = label(row[key], "interface") if kind is Change.REMOVE_INTERFACE else id_of_filter(row[key])
    return ChangeRow(kind, target, area(row["area"]) if kind is Change.MOVE else None, before_event=stamp)


def _stamp(row: Mapping[str, object]) -> int:
    if "before_event" not in row:
        raise ModelError("a change needs 'before_event', the number of the first event that sees it (the first event is 0)")
    stamp = row["before_event"]
    if type(stamp) is not int or not 0 <= stamp <= MAX_EXACT_INTEGER:
        raise ModelError(f"'before_event' must be a whole number from 0 to 2^53, found {describe(stamp)}")
    return stamp


class EventForm(NamedTuple):
    """The attributes of an event row that hold its `location`, x and y, and its `id`.

    Of CSV: the `types` of columns; the `delimiter` between cells, one ASCII character, None: by the file's name; the
    `encoding`, a name that Python knows, None: UTF-8.
    """

    location: tuple[str, str] | None = None
    id: str | None = None
    types: tuple[tuple[str, Type], ...] = ()
    delimiter: str | None = None
    encoding: str | None = None

    @classmethod
    def of(
        cls,
        location: str | None,
        id_: str | None,
        schema: str | None = None,
        delimiter: str | None = None,
        encoding: str | None = None,
    ) -> EventForm:
        """Make a form of the command line's `--location x,y`, `--id name`, `--schema name=type,...`, `--delimiter c` and
        `--encoding name`.  Raises ModelError.
        """
        plain = cls._of_rows(location, id_)
        return plain._replace(
            types=() if schema is None else _types_in(schema),
            delimiter=None if delimiter is None else _delimiter(delimiter),
            encoding=None if encoding is None else _encoding(encoding),
        )

    @classmethod
    def _of_rows(cls, location: str | None, id_: str | None) -> EventForm:
        if id_ == "":
            raise ModelError("--id needs the name of an attribute; found ''")
        if location is None:
            return cls(None, id_)
        names = [name.strip() for name in location.split(",")]
        if len(names) != 2 or not all(names) or names[0] == names[1]:
            raise ModelError(f"--location needs two attribute names, x,y; found {location!r}")
        if id_ in names:
            raise ModelError(f"--id and --location both name {id_!r}; the attribute of the id is no coordinate")
        return cls((names[0], names[1]), id_)

    @property
    def csv_options(self) -> tuple[str, ...]:
        """The options of CSV that are given."""
        given = (("--schema", self.types), ("--delimiter", self.delimiter), ("--encoding", self.encoding))
        return tuple(option for option, value in given if value)

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the form."""
        return (*(self.location or ()), *((self.id,) if self.id is not None else ()))

    def never_seen(self, location: bool, ids: bool) -> tuple[str, ...]:
        """The names in the form that no event has; `location` and `ids` tell whether any event has one."""
        unseen_id = (self.id,) if self.id is not None and not ids else ()
        return (*(self.location if self.location is not None and not location else ()), *unseen_id)


def _delimiter(text: str) -> str:
    found = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(found) != 1 or not (found == "\t" or " " <= found <= "~") or found == '"':
        raise ModelError(f"--delimiter needs one ASCII character other than a quote, such as ';', or tab; found {text!r}")
    return found


def _encoding(name: str) -> str:
    try:
        "".encode(name)
    except (LookupError, UnicodeError, ValueError):
        raise ModelError(f"--encoding needs a name such as utf-16, latin-1 or cp1252; found {name!r}") from None
    return name


_TYPES = {"number": Type.NUMBER, "string": Type.STRING, "boolean": Type.BOOLEAN}


def _types_in(schema: str) -> tuple[tuple[str, Type], ...]:
    found: dict[str, Type] = {}
    for item in schema.split(","):
        name, equals, type_ = (part.strip() for part in item.rpartition("="))
        if not equals or type_ not in _TYPES or name in found:
            raise ModelError(f"--schema needs name=type,... with the types {', '.join(_TYPES)}; found {item.strip()!r}")
        found[name] = _TYPES[type_]
    return tuple(found.items())


PLAIN = EventForm()
"""The form of events without location and id."""


_NAMES: WeakKeyDictionary[Vocabulary, dict[EventForm, Names]] = WeakKeyDictionary()


def names_of(vocabulary: Vocabulary, form: EventForm) -> Names:
    """The names that count for a table with this vocabulary.  They are found once and live as long as the vocabulary."""
    made = _NAMES.setdefault(vocabulary, {})
    if form not in made:
        names = (*(vocabulary.attribute_names - {EVERY_STRING}), *form.names)
        presence, times = vocabulary.presence_names - {*form.names}, vocabulary.instant_names - {EVERY_STRING}
        made[form] = Names(names, presence, times, every=vocabulary.asks_every_string)
        made[form].scopes = vocabulary.scopes or None
    return made[form]


def event_of_row(row: object, form: EventForm = PLAIN, names: Names | None = None, *, every: bool = False) -> Event:
    """The event of one row (a parsed JSON object).  The attributes that hold its location stay attributes; the id does not.

    `names` are those that count: no other attribute is read (unless `every` attribute is wanted), and one of them that
    cannot be read makes the row a bad one.  Without `names` the event has all attributes, and `Event.left_out` has the names
    of those that cannot be read.  Raises ModelError.
    """
    if not isinstance(row, Mapping):
        raise ModelError(f"an event must be an object, found {describe(row)}")
    counting = names if names is not None else Names(form.names)
    found, left_out, places = flattened(row, counting, every=every or names is None)
    attributes: dict[str, Attribute] = {}
    id_ = found.pop(form.id, None) if form.id is not None else None
    for name, raw in found.items():
        if name in left_out or name == EVERY_STRING:  # no filter can name an attribute `*`
            continue
        try:
            value = attribute_of(raw)
            if isinstance(value, Time) and names is not None:
                if name in counting.times and (seen := viewed(value, View.TIME)) is not None:
                    from mpi_match.table.virtual_names import name_of  # loads NumPy

                    attributes[name_of(name, View.TIME)] = seen  # type: ignore[index]
                value = _presence_of_time(name, value, counting)
            attributes[name] = value
        except ModelError as error:
            left_out[name] = f"attribute {name!r}: {error}"
    for name, reason in left_out.items():
        if name in counting.names:
            raise ModelError(reason)
    if counting.every:
        attributes[EVERY_STRING] = strings_of(row)
    location = None if form.location is None else _location_in(attributes, form.location)
    made = make_event({}, location, None if is_null(id_) else id_)
    return _with_scopes(made._replace(attributes=attributes, left_out=left_out or None, places=places or None), counting)


def _with_scopes(event: Event, names: Names) -> Event:
    """The event with the scopes that it has, if filters ask for some.  Raises ModelError."""
    if names.scopes is None:
        return event
    from mpi_match.table.virtual_names import SCOPE_MARK, name_of  # loads NumPy

    failed = map(name_of, names.scopes.failed(event) if event.places else ())
    scopes: dict[Any, Attribute] = dict.fromkeys((SCOPE_MARK, *failed), True)
    return event._replace(attributes={**event.attributes, **scopes})


def _presence_of_time(name: str, time: Attribute, names: Names) -> Attribute:
    """An empty list, which satisfies `exists` and nothing else.  It stands for a native time if constraints ask only for the
    presence or the instant of this name.  Raises ModelError for another name.
    """
    if name in names.presence or name in names.times:
        return ()
    raise ModelError(f"a native time satisfies only 'exists', found {describe(time)}; send its text, or a number")


def event_judge(form: EventForm, required: Iterable[str]) -> Callable[[Any], Event]:
    """The judge of rows that finds all attributes, and refuses rows with a `required` one that cannot be read."""
    return partial(event_of_passed, form=form, names=Names((*required, *form.names)), every=True)


def _location_in(attributes: Mapping[str, Attribute], names: tuple[str, str]) -> list[Attribute] | None:
    """The two coordinates, or None without them.  Raises ModelError for one coordinate alone."""
    point = [attributes[name] for name in names if attributes.get(name) is not None]
    if len(point) == 1:
        missing = names[attributes.get(names[0]) is not None]
        raise ModelError(f"the location needs both {names[0]!r} and {names[1]!r}; {missing!r} is absent")
    return point or None


def event_of_passed(row: object, form: EventForm = PLAIN, names: Names | None = None, *, every: bool = False) -> Event:
    """The event of a row as a program passes it: a mapping, JSON text (str or bytes), or an event; see `event_of_row`.

    Raises ModelError.
    """
    if isinstance(row, Event):
        for name, reason in (row.left_out or {}).items():
            if names is not None and name in names.names:
                raise ModelError(reason)
        return row if names is None else _with_scopes(row, names)
    if isinstance(row, str):
        row = row.encode(errors="surrogatepass")
    return event_of_row(parse_json(trimmed(row)) if isinstance(row, bytes) else row, form, names, every=every)


def read_lines(paths: Iterable[Path]) -> Iterator[tuple[str, int, bytes]]:
    """Lines of files that are not blank as (absolute path, line number, bytes), files in the order of their paths.

    Packed ones are unpacked; a byte order mark and blanks around a line are removed.  A line longer than `MAX_LINE_BYTES` is
    cut to one byte more than that, for `parse_json` to refuse.  Raises ModelError for a compressed file that is damaged or
    truncated, OSError.
    """
    for path in sorted(paths):
        with open_bytes(path) as handle:
            for number, line in enumerate(_bounded(handle, path), 1):
                if line := trimmed(line):
                    yield str(path.absolute()), number, line


def trimmed(line: bytes) -> bytes:
    """The line without blanks around it, and without the byte order mark that some programs write first.

    A line longer than `MAX_LINE_BYTES` is returned unchanged, because it may have been cut within blanks.
    """
    if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
        return line
    return line.removeprefix(_BYTE_ORDER_MARK).strip()


def _bounded(handle: BufferedIOBase, path: Path) -> Iterator[bytes]:
    """The lines of a file, cut to a bounded length.  Raises ModelError if a compressed file is damaged."""
    try:
        while line := handle.readline(MAX_LINE_BYTES + 1):
            rest = line
            while len(line) > MAX_LINE_BYTES and rest and not rest.endswith(b"\n"):
                rest = handle.readline(_PIECE_BYTES)
            yield line
    except DAMAGED as error:
        raise damaged(path, error) from error


class Rejects(Protocol):
    """A collector of bad rows: a list, or one that keeps only some."""

    def append(self, reject: Reject, /) -> None: ...

    def extend(self, rejects: Iterable[Reject], /) -> None: ...


def read_rows(paths: Iterable[Path], convert: Callable[[Any], Row], rejects: Rejects) -> Iterator[Row | None]:
    """Convert every line of JSON lines files; None for one that cannot be converted, which goes to `rejects`."""
    for file, number, line in read_lines(paths):
        try:
            yield convert(parse_json(line))
        except ModelError as error:
            rejects.append(Reject(str(error), file, number, row_text(line)))
            yield None
