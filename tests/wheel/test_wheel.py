"""The installed wheel, away from the tree: every file is there, and the README's first examples work.

`make test-wheel` builds the sdist, and the wheel from that, into dist/ before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mpirun import LAUNCHERS, TIMEOUT_S
from pages import README, REPOSITORY, Step, blocks_of, section_of, steps_of, without_chance

from mpi_match.environment import source_digest

pytestmark = [pytest.mark.wheel, pytest.mark.mpi]

NEEDS_MORE = ("mpi-match compile", "launch/")
"""Blocks with these need Spark and Java, or a checkout; `test_docs` runs them."""
FIVE_MINUTES = (*(f"mpi-match {name}" for name in ("generate", "match", "export", "verify")), "mpirun -n 3 ")
"""Commands that the README's examples must include."""


@pytest.fixture(scope="session")
def wheel() -> Path:
    found = list((REPOSITORY / "dist").glob("*.whl"))
    assert len(found) == 1, "one wheel is wanted in dist/; make test-wheel builds it"
    return found[0]


class Installation:
    """An environment with only the wheel and its dependencies; commands run beside it, with an empty home.

    Compiled code is that of the tree, whose sources it has.
    """

    def __init__(self, place: Path, python: str, requirement: str) -> None:
        self._home, self._work, binaries = place / "home", place / "work", place / "env" / "bin"
        for each in (self._home, self._work):
            each.mkdir(parents=True)
        own = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", *LAUNCHERS))}
        self._run([python, "-m", "venv", "--without-pip", str(place / "env")], own)
        pip = [sys.executable, "-m", "pip", "--python", str(binaries / "python")]  # without one in each environment
        self._run([*pip, "install", "--quiet", "--no-compile", requirement], own)
        kept: dict[str, str] = {name: own[name] for name in ("TMPDIR", "LANG", "NUMBA_CACHE_DIR") if name in own}
        kept["XDG_CACHE_HOME"] = own.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PYTHONUNBUFFERED": "1"}
        self._environment = {**kept, **as_root, "HOME": str(self._home), "PATH": f"{binaries}:/usr/bin:/bin"}

    def run(self, command: str) -> str:
        """The output of a shell command on both streams; it has to succeed."""
        return self._run(["bash", "-c", command], self._environment)

    def _run(self, command: list[str], environment: dict[str, str]) -> str:
        done = subprocess.run(
            command,
            cwd=self._work,
            env=environment,
            timeout=TIMEOUT_S,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout


def five_minutes() -> list[Step]:
    """The commands of the README that need nothing but the wheel and MPI."""
    blocks = [block for block in blocks_of(section_of(README, "Five minutes")) if block.run]
    return [step for b in blocks if not any(more in "\n".join(b.lines) for more in NEEDS_MORE) for step in steps_of(b.lines)]


def other_pythons() -> Iterator[str]:
    """An interpreter of each version from 3.11 on but this one: on PATH, or one that pyenv has."""
    pyenv = shutil.which("pyenv")
    root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip() if pyenv else None
    for name in (f"python3.{minor}" for minor in range(11, 30) if minor != sys.version_info.minor):
        beside = sorted(map(str, Path(root).glob(f"versions/*/bin/{name}"))) if root else []
        found = [python for python in (shutil.which(name), *reversed(beside)) if python is not None]
        yield from [python for python in found if makes_environments(python)][:1]


def makes_environments(python: str) -> bool:
    """Can it create environments?  A pyenv shim that only prints an error cannot, nor Debian's Python without ensurepip."""
    return subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode == 0


def files_of_the_packages() -> set[str]:
    """The files that the wheel must have, by their names in the tree; `launch` and `hostfiles` are links in the package."""
    folders = ("mpi_match", "spark_prep", "launch", "hostfiles")
    paths = [path for folder in folders for path in (REPOSITORY / folder).rglob("*") if path.is_file()]
    names = {path.relative_to(REPOSITORY).as_posix() for path in paths if path.parent.name != "__pycache__"}
    return {name if name.startswith(folders[:2]) else f"mpi_match/{name}" for name in names}


def test_the_wheel_and_the_sdist_have_every_file_of_the_packages(wheel: Path) -> None:
    wanted = files_of_the_packages()
    assert {"mpi_match/storage/reader.py", "mpi_match/docs/format.md", "mpi_match/launch/slurm.sbatch"} <= wanted
    elsewhere = {"mpi_match/languages/sigma_backends/mpi_match.py": "sigma/backends/mpi_match.py"}  # pySigma looks there
    with zipfile.ZipFile(wheel) as found:
        packed = {name for name in found.namelist() if ".dist-info/" not in name}
    assert packed == {elsewhere.get(name, name) for name in wanted}
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert wanted <= {name.partition("/")[2] for name in archive.getnames()}


def test_five_minutes_of_the_readme(wheel: Path, tmp_path: Path) -> None:
    there = Installation(tmp_path, sys.executable, f"{wheel}[mpi]")
    assert there.run("python -c 'import mpi_match; print(mpi_match.__file__)'").startswith(str(tmp_path))
    same = there.run("python -c 'from mpi_match.environment import source_digest; print(source_digest.digest())'").strip()
    assert same == source_digest.digest(), "ranks of the tree and of the wheel may run together, and share compiled code"
    steps = five_minutes()
    assert not [name for name in FIVE_MINUTES if not any(name in step.command for step in steps)]
    for command, shown in steps:
        said = there.run(command)
        assert without_chance(said) == without_chance("\n".join(shown)), f"$ {command}\n{said}"
    assert "MISSING" not in there.run("mpi-match doctor")
    there.run("mpi-match launch local > local.sh")
    assert "2 workers" in there.run("bash local.sh 2 --table work/table.h5 --events work/events.h5 -o work/again.h5")
    there.run("cmp work/again.h5 work/matches.h5")


def test_other_pythons_match_as_well(wheel: Path, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Without MPI, and with an engine of which nothing has to be compiled."""
    for python in other_pythons():
        with subtests.test(python=python):
            there = Installation(tmp_path / Path(python).name, python, str(wheel))
            there.run("mpi-match generate ccm-strings -o work --filters 2000 --events 100")
            files = "--table work/table.h5 --events work/events.h5"
            assert "counting on" in there.run(f"mpi-match run {files} -o matches.h5 --engine counting")
            there.run(f"mpi-match verify {files} --matches matches.h5")
            assert "MISSING" not in there.run("mpi-match doctor")
            assert "#SBATCH" in there.run("mpi-match launch slurm")
