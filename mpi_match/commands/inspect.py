"""The content of a file, as text or one object: a table, an event table, matches, changes, or the journal of a run.

Reading checks the data (see `storage`), so a damaged file is refused here too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.changes.log import CHANGES, ChangeLog
from mpi_match.events.event_table import EventTable
from mpi_match.events.schema import EVENTS
from mpi_match.humanize import table_lines
from mpi_match.journal.reader import JournalFile, is_journal, refuse_incomplete
from mpi_match.matches.file import MatchesFile
from mpi_match.matches.schema import MATCHES
from mpi_match.model import Change, Event, Json
from mpi_match.storage import Reader, StorageError, kind_of_file, parts_directory
from mpi_match.table.schema import TABLE
from mpi_match.table.table import Table
from mpi_match.table.virtual_names import shown

SHOWN_NAMES = 5


def inspect_file(path: Path, rows: int = 3) -> Json:
    """The content of a file: `kind`, `bytes` on disk, `digest`, `parts`, counts, and the first `rows` rows decoded.

    Raises StorageError for a file of another program or a damaged one.
    """
    if is_journal(path):
        return _of_journal(path)
    kind = kind_of_file(path)
    if kind not in _SCHEMAS:
        refuse_incomplete(path)
        if not path.exists():
            raise StorageError(f"{path}: no such file")
        with Reader(path, kind or "table"):  # raises for a file without a kind
            raise StorageError(f"{path}: holds {kind!r}; inspect shows: {', '.join(_SCHEMAS)}")
    with Reader(path, _SCHEMAS[kind]) as reader:
        parts = len(reader.rows or ())
        directory = parts_directory(path)
        size = path.stat().st_size + (sum(p.lstat().st_size for p in directory.iterdir()) if parts else 0)
        common = {"file": str(path), "kind": kind, "bytes": size, "parts": parts, "digest": reader.attributes["digest"]}
        attributes = {k: v for k, v in reader.attributes.items() if k not in _COMMON_ATTRIBUTES}
    return {**common, **_INSPECTORS[kind](path, attributes, rows, max(parts, 1))}


_COMMON_ATTRIBUTES = ("magic", "kind", "format_version", "digest", "complete")


def _of_table(path: Path, attributes: Json, rows: int, n_parts: int) -> Json:
    table = Table.load(path)
    v = table.vocabulary
    per_name = np.diff(table.constraints.offsets)
    busiest = np.argsort(-per_name, kind="stable")[:SHOWN_NAMES]
    return {
        "filters": table.n_visible_filters,
        "constraints": table.n_visible_constraints,
        "interfaces": table.n_visible,
        **_of_parts(table),
        "names": v.n_names,
        "areas": len(table.filters.area),
        "ids": int(np.searchsorted(table.filters.id_filter, table.n_visible_filters)),
        "bytes_in_memory": table.nbytes,
        "vocabulary": v.digest,
        "packed_bits": v.packed_dtype.itemsize * 8,
        "numbers": len(v.numbers),
        "strings": len(v.strings),
        "atoms": v.n_atoms,
        "filter_size": _spread(table.filters.size),
        "operators": [{"type": t.name.lower(), "op": op, "constraints": n} for (t, op), n in table.op_counts.items()],
        "busiest_names": [{"name": shown(v.names[int(i)]), "constraints": int(per_name[i])} for i in busiest],
        "first": [filter_row(table, i) for i in range(min(rows, table.n_visible_filters))],
    }


def _of_parts(table: Table) -> Json:
    """Numbers of the parts of conditions and of their filters; empty for a table without conditions."""
    n_parts = table.n_interfaces - table.n_visible
    return {"parts_of_conditions": n_parts, "filters_of_parts": table.n_filters - table.n_visible_filters} if n_parts else {}


def filter_row(table: Table, filter_id: int) -> Json:
    """One filter as a row: its number, interface and text, its id if it has one."""
    found = table.filter(filter_id)
    text = str(found).removeprefix(f"{found.interface}: ")
    return {
        "filter": filter_id,
        "interface": found.interface,
        **({} if found.id is None else {"id": found.id}),
        "asks": text,
    }


def _of_events(path: Path, attributes: Json, rows: int, n_parts: int) -> Json:
    with EventTable(path, Table.from_filters(()).vocabulary) as events:  # raw columns only: any vocabulary does
        first = [_event_row(i, events.event(i)) for i in range(min(rows, events.n_events))]
        sizes, located, rejected = [], 0, 0
        for part in range(n_parts):
            raw = events.raw_part(part)
            sizes.append(np.diff(raw.offsets))
            located += 0 if raw.location is None else int((~np.isnan(raw.location[:, 0])).sum())
            rejected += 0 if raw.rejected is None else len(raw.rejected)
        return {
            "events": events.n_events,
            "with_location": located,
            "with_id": sum(id_ is not None for id_ in events.ids()),
            "attributes": _spread(np.concatenate([np.zeros(0, np.int64), *sizes])),
            "rejected": rejected,
            "left_out": dict(sorted(events.left_out.items())),
            "vocabulary": attributes["vocabulary"],
            "first": first,
        }


def _event_row(number: int, event: Event | None) -> Json:
    if event is None:
        return {"event": number, "rejected": True}
    row: dict[str, Any] = {"event": number, "attributes": dict(event.attributes)}
    if event.id is not None:
        row["id"] = event.id
    if event.location is not None:
        row["location"] = list(event.location)
    return row


def _of_matches(path: Path, attributes: Json, rows: int, n_parts: int) -> Json:
    file = MatchesFile.load(path)
    counts = np.diff(file.matches.offsets)
    first: list[dict[str, Any]] = [{"event": i, "matches": file.matches[i].tolist()} for i in range(min(rows, len(counts)))]
    if file.event_ids is not None:
        first = [{"event": row["event"], "id": file.event_ids[row["event"]].decode() or None, **row} for row in first]
    names = [label.decode() for label in file.labels] if len(file.labels) else None
    if names:
        first = [{**row, "matches": [names[i] for i in row["matches"]]} for row in first]
    return {
        "unit": attributes["unit"],
        "events": file.matches.n_events,
        "matches": file.matches.n_matches,
        "possible": file.matches.n_ids,
        "without_match": int((counts == 0).sum()),
        "per_event": _spread(counts),
        **{key: value for key, value in attributes.items() if key.endswith("_digest")},
        "first": first,
    }


def _of_journal(path: Path) -> Json:
    found = JournalFile.look(path)
    identity = found.identity
    return {
        **{"file": str(path), "kind": "journal", "bytes": path.stat().st_size, "parts": 0, "unit": identity.unit},
        "events": identity.n_events,
        "answered": found.n_answered,
        "without_answer": [list(each) for each in found.unanswered()],
        "set_aside": [list(each) for each in found.set_aside()],
        "torn_bytes": found.n_torn,
        **{key: value for key, value in asdict(identity).items() if key.endswith("_digest") and value},
    }


def _of_changes(path: Path, attributes: Json, rows: int, n_parts: int) -> Json:
    log = ChangeLog.load(path)
    counts = np.bincount(log.kind, minlength=len(Change))
    stamps = log.before_event[:rows].tolist()
    steps = zip(stamps, log.kind.tolist(), log.target.tolist(), strict=False)
    return {
        "changes": len(log),
        **{change.name.lower(): int(counts[change]) for change in Change},
        "new_interfaces": len(log.labels),
        "last_before_event": int(log.before_event[-1]) if len(log) else 0,
        "table": log.table_digest,
        "first": [{"before_event": event, Change(kind).name.lower(): target} for event, kind, target in steps],
    }


_SCHEMAS = {schema.kind: schema for schema in (TABLE, EVENTS, MATCHES, CHANGES)}
_INSPECTORS = {"table": _of_table, "events": _of_events, "matches": _of_matches, "changes": _of_changes}


def _spread(counts: Array) -> dict[str, float]:
    """Least, mean and most of some counts."""
    if not len(counts):
        return {"least": 0, "mean": 0.0, "most": 0}
    return {"least": int(counts.min()), "mean": round(float(counts.mean()), 3), "most": int(counts.max())}


def inspect_lines(found: Json) -> Iterator[str]:
    """The result of `inspect_file` as lines of text."""
    joined = f" in {found['parts']} parts" if found["parts"] else ""
    digest = f", digest {found['digest'][:16]}…" if "digest" in found else ""
    yield f"{found['file']}: {found['kind']}, {found['bytes']:,} bytes{joined}{digest}"
    shown = {
        k: v
        for k, v in found.items()
        if k not in ("file", "kind", "bytes", "parts", "digest", "operators", "busiest_names", "first")
    }
    width = max(map(len, shown))
    for key, value in shown.items():
        yield f"  {key.replace('_', ' '):<{width}}  {_text(value)}"
    for title, rows in (("operators", found.get("operators")), ("busiest names", found.get("busiest_names"))):
        if rows:
            yield f"{title}:"
            yield from (f"  {line}" for line in table_lines(rows))
    if found.get("first"):
        yield "first rows:"
        yield from (f"  {json.dumps(row, ensure_ascii=False)}" for row in found["first"])


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(f"{start:,} to {stop:,}" for start, stop in value) or "none"
    if isinstance(value, dict) and "least" not in value:
        return ", ".join(f"{name} ({n:,})" for name, n in value.items()) or "none"
    if isinstance(value, dict):
        return f"{value['least']:,} to {value['most']:,}, mean {value['mean']:,}"
    return f"{value:,}" if isinstance(value, int) else str(value)
