"""The rule languages by name, and the rules of files in one of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from mpi_match.ingest.rows.file_kinds import KIND_BYTES, refuse_other_kinds
from mpi_match.ingest.rows.formats import JSON_LINES
from mpi_match.ingest.rows.judge import subscription_filters
from mpi_match.ingest.rows.packed_files import PACKED_ENDINGS, unpacked_name
from mpi_match.languages.rows import Rule
from mpi_match.model import ModelError


class Language(NamedTuple):
    """The record of a rule language.

    title       its name for people
    module      holds `rules_in(files) -> Iterator[Rule]`; imported when it is needed
    endings     of its files, in lower case; those of a directory with other names are not read
    extra       the extra of this package that installs what the module needs; empty if it needs nothing
    pipelines   `rules_in` takes names of pipelines too
    """

    title: str
    module: str
    endings: tuple[str, ...]
    extra: str = ""
    pipelines: bool = False


LANGUAGES = {
    "eventbridge": Language(
        "EventBridge and Event Ruler patterns", "mpi_match.languages.eventbridge", (".json", ".jsonl", ".ndjson")
    ),
    "sigma": Language("Sigma rules", "mpi_match.languages.sigma", (".yml", ".yaml"), extra="sigma", pipelines=True),
}
"""All languages, in the order of messages and help."""
_MOST_READ_BYTES = 2**26
"""Bytes of a larger file are not read to find its language."""


def rules_of(language: str, paths: Sequence[Path], pipelines: Sequence[str] = ()) -> Iterator[Rule]:
    """The rules of files and directories (to any depth), in the order of `paths` and of names.

    A rule whose row the model refuses is refused with the model's reason.  Raises ModelError for a language that needs a
    library that is not installed or takes no pipelines, and for paths without a file of it; OSError.
    """
    record = LANGUAGES[language]
    if pipelines and not record.pipelines:
        raise ModelError(f"{record.title} have no pipelines; leave out --pipeline")
    files = [file for path in paths for file in _files(path, record)]
    for file in files:
        if file.is_file():
            with file.open("rb") as handle:
                refuse_other_kinds(file, handle.read(KIND_BYTES))
    for rule in _module(record).rules_in(files, *([pipelines] if pipelines else [])):
        yield _judged(rule)


def language_of(path: Path) -> str | None:
    """The language of the rules that a file or a directory seems to hold: by endings that rows do not have, or by its first
    rule; None if there is no rule in a language that needs no library.  Raises OSError."""
    for name, record in LANGUAGES.items():
        with suppress(ModelError):
            files = _files(path, record)
            if set(record.endings).isdisjoint(JSON_LINES.endings):
                if path.is_dir() or unpacked_name(path).endswith(record.endings):
                    return name
            elif not record.extra and files[0].stat().st_size <= _MOST_READ_BYTES:
                first = next(iter(_module(record).rules_in(files[:1])), None)
                if first is not None and first.row is not None:
                    return name
    return None


def _judged(rule: Rule) -> Rule:
    if rule.row is None:
        return rule
    try:
        subscription_filters(rule.row)
    except ModelError as error:
        return rule._replace(row=None, reason=str(error), kind="beyond the row language")
    return rule


def _module(record: Language) -> Any:
    try:
        return importlib.import_module(record.module)
    except ImportError as error:
        if not record.extra or (error.name or "").startswith("mpi_match"):
            raise
        need = f"{sys.executable} -m pip install 'mpi-match[{record.extra}]'"
        raise ModelError(f"{record.title} need the module {error.name!r}, which is not installed: {need}") from None


def _files(path: Path, record: Language) -> list[Path]:
    """The files that a path names: itself, or those of a directory.  Raises ModelError for a directory without rules."""
    if not path.is_dir():
        return [path]
    endings = tuple(ending + packed for ending in record.endings for packed in ("", *PACKED_ENDINGS))
    found = sorted(file for file in path.rglob("*") if file.name.lower().endswith(endings) and file.is_file())
    if not found:
        raise ModelError(f"{path}: holds no file of {record.title} ({', '.join(record.endings)})")
    return found
