"""Every engine while its table changes: those that take changes are held to the model, the others say that they do not."""

from __future__ import annotations

import pytest
from hypothesis import Phase
from live_machine import REFUSAL, run_machine
from test_engines import every_engine

from mpi_match.engines import EngineError, open_engine
from mpi_match.model import make_filter
from mpi_match.table import Table

EXAMPLES, STEPS = 12, 20


def refuses(name: str) -> bool:
    """Does the engine refuse tables that change?  It has to do so when it is opened, and in these words."""
    table = Table.from_filters([make_filter("i", [["x", ">", 1]], [0, 0, 1])])
    open_engine(name, table)
    try:
        open_engine(name, table, live=True)
    except EngineError as error:
        assert f"engine {name!r} {REFUSAL}" in str(error)  # noqa: PT017
        return True
    return False


@every_engine
def test_subscribe_move_unsubscribe_and_match_in_any_order(name: str) -> None:
    if not refuses(name):
        run_machine(name, EXAMPLES, STEPS)


def test_some_engines_take_changes_and_some_do_not() -> None:
    assert not refuses("reference")
    assert refuses("counting")


def test_the_machine_finds_a_ghost(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that forgets to remove is found out."""
    from mpi_match.changes import Change
    from mpi_match.engines.reference import Reference

    update = Reference.update

    def forgetful(engine: Reference, changes) -> None:
        removes = changes.kind == Change.REMOVE
        for i in range(len(changes)):
            if not removes[i]:
                update(engine, changes[i : i + 1])
        engine._n_filters, engine._n_interfaces = changes.n_filters, changes.n_interfaces

    monkeypatch.setattr(Reference, "update", forgetful)
    with pytest.raises(AssertionError):
        run_machine("reference", 100, STEPS, phases=(Phase.generate,), report_multiple_bugs=False)
