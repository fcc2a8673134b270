"""How the tests run: hypothesis profiles, fixtures that several files share, and the rule for tests that need a GPU."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from clock import Clock
from hypothesis import HealthCheck, settings
from mpirun import launchers_directory

REPOSITORY = Path(__file__).resolve().parent.parent

# No deadlines: the first example of a compiled engine takes seconds, and machines are shared.
settings.register_profile("ci", max_examples=60, deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "thorough", max_examples=3000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure() -> None:
    """Who starts the tests in the background, or with `nohup`, has Ctrl-C ignored, by what they start as well."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return REPOSITORY


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until the test moves it."""
    return Clock()


@pytest.fixture
def table_path(tmp_path: Path) -> Path:
    """Where a test may write a table."""
    return tmp_path / "table.h5"


@pytest.fixture
def events_path(tmp_path: Path) -> Path:
    """Where a test may write an event table."""
    return tmp_path / "events.h5"


@pytest.fixture
def matches_path(tmp_path: Path) -> Path:
    """Where a test may write answers."""
    return tmp_path / "matches.h5"


@pytest.fixture(autouse=True)
def launchers_files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A TMPDIR for each test that starts ranks."""
    if request.node.get_closest_marker("mpi") is None:
        yield
        return
    with launchers_directory() as directory:
        monkeypatch.setenv("TMPDIR", directory)
        yield


@cache
def why_no_gpu() -> str | None:
    """Why tests marked `gpu` cannot run here, or None when they can; asked only when such a test comes up.

    The CUDA simulator answers `cuda.is_available()` with True, so it is ruled out first: its tests are not marked `gpu`.
    """
    if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0"):
        return "the CUDA simulator is on (NUMBA_ENABLE_CUDASIM), and it is no GPU"
    from mpi_match.engines import EngineError

    try:
        from mpi_match.engines import _cuda

        _cuda.visible_gpus()
    except EngineError as error:
        return str(error)
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        reason = why_no_gpu()
        if reason is not None:
            pytest.skip(reason)
