"""How the tests run: hypothesis profiles, fixtures that several files share, and the rule for tests that need a GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import java_classes
import pytest
from clock import Clock
from examples import ALL_EXAMPLES, FEW_EXAMPLES
from hypothesis import HealthCheck, settings
from mpirun import launchers_directory, without_ranks
from order import place_of

REPOSITORY = Path(__file__).resolve().parent.parent

# No deadlines: the first example of a compiled engine takes seconds, and machines are shared.
for name, n_examples in (("ci", FEW_EXAMPLES), ("lasting", ALL_EXAMPLES)):
    settings.register_profile(name, max_examples=n_examples, deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "thorough", max_examples=3000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure() -> None:
    """Settings for the tests and for all processes that they start."""
    # In the background, or under `nohup`, Ctrl-C is ignored, also by processes that the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", java_classes.options())
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command does for itself: see `mpi_match.cli.main`


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first."""
    items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Trace no test of many examples for its coverage, nor a long one without a line of its own: it takes twice as long for
    that, and executes the same lines again.

    (pytest-cov's own `no_cover` does nothing in the processes of pytest-xdist.)
    """
    traced = sys.gettrace()
    if item.get_closest_marker("untraced") or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(traced)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The assignment of tests to processes in a parallel run; other runs need no xdist."""
    from schedule import Schedule

    return Schedule(config, log)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return REPOSITORY


@pytest.fixture
def clock() -> Clock:
    """A clock that advances only when the test moves it."""
    return Clock()


@pytest.fixture
def table_path(tmp_path: Path) -> Path:
    """A path for a table."""
    return tmp_path / "table.h5"


@pytest.fixture
def events_path(tmp_path: Path) -> Path:
    """A path for an event table."""
    return tmp_path / "events.h5"


@pytest.fixture
def matches_path(tmp_path: Path) -> Path:
    """A path for answers."""
    return tmp_path / "matches.h5"


@pytest.fixture(autouse=True)
def launchers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A TMPDIR for each test, and no launcher for one that is not marked `mpi`: `make test-mpi` would leave it out."""
    marks = {mark.name for mark in request.node.iter_markers()}
    if marks & {"slurm", "beowulf"}:  # they start ranks on hosts of their own
        yield
        return
    if "mpi" not in marks:
        monkeypatch.setattr(subprocess.Popen, "__init__", without_ranks(subprocess.Popen.__init__))
    with launchers_directory() as directory:
        monkeypatch.setenv("TMPDIR", directory)
        yield


@cache
def why_no_gpu() -> str | None:
    """Why tests marked `gpu` cannot run here, or None when they can; evaluated only for such a test.

    The CUDA simulator answers `cuda.is_available()` with True, so it is ruled out first: its tests are not marked `gpu`.
    """
    if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0"):
        return "the CUDA simulator is on (NUMBA_ENABLE_CUDASIM), and it is no GPU"
    from mpi_match.engines import EngineError

    try:
        from mpi_match.gpu import kernels as cuda

        cuda.visible_gpus()
    except EngineError as error:
        return str(error)
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        reason = why_no_gpu()
        if reason is not None:
            pytest.skip(reason)
