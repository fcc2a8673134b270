"""`compute/compile_parts.py`: another process compiles what this one needs later."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from mpi_match.compute import compile_cache, compile_parts
from mpi_match.compute.compile_parts import Part, compile_ahead

MODULE = """
import os
import subprocess
from pathlib import Path

def note(path):
    Path(path + ".new").write_text(str(os.getpid()))
    os.rename(path + ".new", path)
"""


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Part:
    """Notes which process compiles it in the file `argument`."""
    (tmp_path / "noting.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(compile_cache, "directory", lambda: tmp_path)
    monkeypatch.setattr(compile_parts, "_others", [])
    monkeypatch.setattr(compile_parts, "_turns", count())
    monkeypatch.setattr(compile_parts, "_asked", set())
    return Part("noted", "noting:note", str(tmp_path / "noted"))


def test_another_process_compiles_a_part(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    compile_ahead([part])
    noted, deadline = Path(part.argument), time.monotonic() + 60
    while not noted.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    other = int(noted.read_text())
    assert other != os.getpid()
    noted.unlink()
    compile_ahead([part._replace(what="more")])
    while not noted.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert int(noted.read_text()) == other, "the same process"


def test_no_process_is_started_for_compiled_parts_or_without_a_core_or_memory_for_it(
    part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", started.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    compile_ahead([part])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(compile_parts, "limit_bytes", lambda: compile_parts.MEMORY_EACH - 1)
    compile_ahead([part])
    monkeypatch.undo()
    monkeypatch.setattr(compile_cache, "directory", lambda: tmp_path)
    monkeypatch.setattr(subprocess, "Popen", started.append)
    (tmp_path / "noted.compiled").touch()
    compile_ahead([part])
    assert not started


def test_this_process_compiles_a_part_itself(part: Part) -> None:
    part.compile()
    assert int(Path(part.argument).read_text()) == os.getpid()


def test_the_compiler_is_not_loaded_for_an_engine_that_is_not_compiled() -> None:
    ahead = "import sys; from mpi_match.engines.registry import compile_engine_ahead as ahead; "
    for engine, loaded in (("counting", "False"), ("twophase", "True")):
        script = f"{ahead}ahead({engine!r}, None); print('numba' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
        assert done.stdout.strip() == loaded
