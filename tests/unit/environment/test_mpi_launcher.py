"""A launcher that does not start, and the cure that is said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mpi_match.commands import doctor
from mpi_match.environment import mpi_launcher

OF_INTEL = "Intel(R) MPI Library 2021.18.1 for Linux* OS"
SCRIPT = """#!/bin/sh
exec mpiexec.hydra.of.this.test "$@"
"""
HYDRA = f"""#!/bin/sh
echo '{OF_INTEL}, Version 2021.18.1'
"""


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As that of Intel MPI: a script that looks in PATH for the program beside it."""
    (tmp_path / "bin").mkdir()
    for name, text in (("mpirun", SCRIPT), ("mpiexec.hydra.of.this.test", HYDRA)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("MPIRUN", str(tmp_path / "bin" / "mpirun"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    mpi_launcher.version.cache_clear()
    return tmp_path / "bin" / "mpirun"


def test_a_launcher_whose_directory_is_not_in_path_is_named_with_the_cure(
    launcher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cure = rf"Intel MPI needs its directory in PATH \(export PATH={launcher.parent}:\$PATH\); or set MPIRUN"
    with pytest.raises(mpi_launcher.LaunchError, match=rf"{launcher} --version failed .*; {cure}"):
        mpi_launcher.version()
    monkeypatch.setenv("PATH", f"{launcher.parent}:/usr/bin:/bin")
    assert mpi_launcher.version().startswith(OF_INTEL)
    assert not mpi_launcher.is_open_mpi()


def test_a_launcher_that_is_not_there_is_not_of_intel(launcher: Path) -> None:
    launcher.unlink()
    with pytest.raises(mpi_launcher.LaunchError, match=r"failed .*; set MPIRUN to a launcher that works$"):
        mpi_launcher.version()


def test_doctor_says_so_where_the_library_is_of_intel(launcher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_output", lambda command: f"{OF_INTEL}\n\0" if command[0] == sys.executable else None)
    found = doctor._mpi()
    assert (found.ok, found.found) == (False, f"{OF_INTEL}; {launcher} does not start 2 ranks")
    assert found.fix.startswith(f"Intel MPI needs its directory in PATH (export PATH={launcher.parent}:$PATH)")
