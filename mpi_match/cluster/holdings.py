"""The parts of the table that a worker has, and the engine for them.

A worker begins with one.  When others have died it may be told to load another, instead of its own or besides it
(`regrouping`); the engine is then opened again, for all that it has.
"""

from __future__ import annotations

from collections.abc import Callable

from mpi_match.cluster.part import Part, PartEngine, PartsEngine
from mpi_match.engines import Engine
from mpi_match.table import Table


class Holdings:
    """A part and its table; `open_table` opens an engine for a table."""

    def __init__(self, part: Part, table: Table, open_table: Callable[[Table], Engine]) -> None:
        self._tables = {part: table}
        self._open_table = open_table

    def load(self, part: Part, table: Table, *, keep: bool) -> None:
        """Have another part, besides what there is or instead of it."""
        if not keep:
            self._tables.clear()
        self._tables[part] = table

    def open(self) -> Engine:
        """An engine for all of it.  Raises EngineError."""
        engines = []
        for part, table in self._tables.items():
            engine = self._open_table(table)
            engines.append(engine if part.n_members == 1 else PartEngine(engine, part))
        return engines[0] if len(engines) == 1 else PartsEngine(engines)
