"""`launch`: printed scripts run without the project's tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from command_line import mpi_match
from pages import REPOSITORY

from mpi_match.commands.launch import FILES, launch_file


def test_each_file_is_listed_with_a_description() -> None:
    lines = mpi_match("launch").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(FILES)
    assert all(20 < len(line) < 120 and not line.endswith(".") for line in lines)


def test_every_file_can_be_printed() -> None:
    needs_the_tree = {"mpi-env.sh", "setup.sh", "demo.sh"}
    there = {path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "launch").iterdir()}
    assert {name for name in there if name not in FILES.values()} == {f"launch/{name}" for name in needs_the_tree}
    for name, place in FILES.items():
        printed, text = mpi_match("launch", name).stdout, (REPOSITORY / place).read_text()
        assert printed.splitlines()[:2] == text.splitlines()[:2]
        assert "mpi-env.sh\nsource" not in printed
    assert mpi_match("launch", "docker").stdout == (REPOSITORY / "launch" / "Dockerfile").read_text()


def test_recipes_for_containers_install_existing_extras() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for name in ("docker", "apptainer"):
        text = launch_file(name)
        (extras,) = set(re.findall(r"^ *(?:ARG )?EXTRAS=(\S+)$", text, re.MULTILINE))
        assert set(extras.split(",")) <= project["optional-dependencies"].keys()
        (version,) = set(re.findall(r"\bpython:3\.(\d+)-", text))
        assert f">=3.{version}" >= project["requires-python"]


def run_script(directory: Path, name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a printed script with launchers that only print their arguments, and a Python that can import everything."""
    script = directory / "script"
    python = directory / "an other" / "python"
    if not python.parent.exists():
        python.parent.mkdir()
        python.write_text("#!/bin/sh\n")
        python.chmod(0o755)
    script.write_text(launch_file(name, python=str(python)))
    tools = directory / "bin"
    tools.mkdir()
    for tool in ("mpirun", "srun"):
        (tools / tool).write_text(
            '#!/bin/sh\n[ "$1" = --version ] && echo "mpirun (Open MPI) 5.0.8" || printf "[%s]" "$@"\n'
        )
        (tools / tool).chmod(0o755)
    own = {"HOME": str(directory), "PATH": f"{tools}:/usr/bin:/bin", **environment}
    return subprocess.run(
        ["bash", str(script), *arguments], cwd=directory, env=own, capture_output=True, text=True, check=False
    )


IN_A_JOB = {
    **{"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": "/nowhere", "SLURM_CPUS_PER_TASK": "3", "SLURM_JOB_NUM_NODES": "2"},
    "SLURM_JOB_PARTITION": "all",
}


@pytest.mark.parametrize(
    ("name", "first", "environment"),
    [
        ("slurm", (), IN_A_JOB),
        ("local", ("2",), {}),
        ("hosts", ("hosts",), {}),
    ],
)
def test_a_printed_script_needs_no_tree_and_runs_the_python_that_printed_it(
    tmp_path: Path, name: str, first: str, environment: dict[str, str]
) -> None:
    (tmp_path / "hosts").write_text("localhost slots=3\n")
    done = run_script(tmp_path, name, *first, "--table", "t.h5", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"[{tmp_path}/an other/python][-m][mpi4py][-m][mpi_match][run]" in done.stdout
    assert "[--table][t.h5]" in done.stdout


@pytest.mark.parametrize("name", ["slurm", "local", "hosts"])
def test_a_printed_script_is_clean(name: str) -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, "-"], input=launch_file(name), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("#!/bin/sh\necho No module named mpi4py >&2\nexit 1\n", "No module named mpi4py"),
        (None, "No such file or directory"),
    ],
)
def test_the_slurm_script_ends_at_once_where_python_lacks_the_package(tmp_path: Path, python: str | None, why: str) -> None:
    """Else srun would end with 143, and the job be queued again."""
    (tmp_path / "an other").mkdir()
    if python is not None:
        (tmp_path / "an other" / "python").write_text(python)
        (tmp_path / "an other" / "python").chmod(0o755)
    done = run_script(tmp_path, "slurm", "--table", "t.h5", **IN_A_JOB)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith(f"script: {tmp_path}/an other/python cannot run mpi-match: ")
    assert done.stderr.endswith(f"{why}\n")


def test_the_slurm_script_is_refused_outside_of_slurm(tmp_path: Path) -> None:
    done = run_script(tmp_path, "slurm", "--table", "t.h5")
    assert done.returncode != 0
    assert "this script is for sbatch" in done.stderr


def test_the_python_that_prints_is_the_one_that_runs() -> None:
    assert sys.executable in mpi_match("launch", "local").stdout
    assert os.path.isabs(sys.executable)  # noqa: PTH117  # a path as the script has it


def test_the_set_up_empties_no_environment_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "launch").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").write_text("")
    (tmp_path / ".venv").symlink_to("other")
    script = tmp_path / "launch" / "set_up"  # under its own name `without_ranks` takes it for a launcher
    script.write_bytes((REPOSITORY / "launch" / "setup.sh").read_bytes())
    done = subprocess.run(["bash", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5
    assert "is a link" in done.stderr
    assert (tmp_path / "other" / "kept").exists()
