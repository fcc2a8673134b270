"""The pages keep their word: commands on the README run and print what it shows, names of files and options exist.

How commands stand on a page is told in `pages`.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from bench import survival
from bench.results_rows import command_of, records_in, row_of, run_row_of, runs_in
from mpirun import TIMEOUT_S, needs_mpirun
from pages import README, REPOSITORY, Block, Step, blocks_of, section_of, steps_of, without_chance

from mpi_match.cli.errors import Group
from mpi_match.cli.main import commands
from mpi_match.commands import doctor
from mpi_match.engines import ENGINES
from mpi_match.ingest.predicates import parse
from mpi_match.ingest.rows import change_of_row, subscription_filters
from mpi_match.model import OPS_OF_TYPE, Change

DESIGN = (REPOSITORY / "mpi_match" / "docs" / "design.md").read_text(encoding="utf-8")
PAGES = ("README.md", "CHANGELOG.md", "mpi_match/docs/design.md", "mpi_match/docs/format.md")

BLOCKS = list(blocks_of(README))


@pytest.fixture
def shell(tmp_path):
    """Run a command as if in an activated environment, in a directory where `launch` is that of the project."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, what in (("mpi-match", "-m mpi_match "), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {what}"$@"\n')
        (tools / name).chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    for name in ("launch", "hostfiles"):
        (work / name).symlink_to(REPOSITORY / name)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "MPI_MATCH_PYTHON": sys.executable,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PYTHONUNBUFFERED": "1",  # lines of standard output and error in their order, as on a terminal
    }

    def run(command: str) -> str:
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(["bash", "-c", command], cwd=work, env=environment, timeout=TIMEOUT_S, check=False, **both)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        return done.stdout

    return run


def run_steps(name, shell):
    (block,) = (block for block in BLOCKS if block.run == name)
    for command, shown in steps_of(block.lines):
        said = shell(command)
        assert without_chance(said) == without_chance("\n".join(shown)), f"$ {command}\n{said}"


def test_blocks_are_read():
    page = "<!-- run: a -->\n```console\n$ x <<E\n> y\n> E\nshown\n$ z\n```\n\n```python\n1\n```\n"
    first, second = blocks_of(page)
    assert (first.language, first.run, second) == ("console", "a", Block("python", "", ["1"]))
    assert steps_of(first.lines) == [Step("x <<E\ny\nE", ["shown"]), Step("z", [])]
    assert without_chance("in 5.67 s: 8.82 k events/s; keyed on 2 x cpu, 1 thread, 2 workers\n") == [
        "in TIME: RATE; ENGINE, 2 workers"
    ]
    assert {block.run for block in BLOCKS if block.run} == {"local", "changes", "ranks", "pipeline"}


@pytest.mark.parametrize("name", ["local", "changes"])
def test_rows_in_answers_out(shell, name):
    run_steps(name, shell)


@pytest.mark.mpi
@needs_mpirun
def test_several_ranks(shell):
    run_steps("ranks", shell)


@pytest.mark.spark
@pytest.mark.mpi
@pytest.mark.skipif(find_spec("pyspark") is None or not doctor.java_version(), reason="needs pyspark and Java")
def test_the_whole_pipeline(shell):
    run_steps("pipeline", shell)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "python"], ids=["fixed", "live"])
def test_python(block):
    examples = doctest.DocTestParser().get_doctest("\n".join(block.lines) + "\n", {}, "README.md", "README.md", 0)
    assert len(examples.examples) > 5
    assert doctest.DocTestRunner().run(examples).failed == 0


def test_the_rows_shown_are_rows():
    subscriptions, changes = ([json.loads(line) for line in block.lines] for block in BLOCKS if block.language == "json")
    filters = [parse(row["predicate"]) if "predicate" in row else subscription_filters(row) for row in subscriptions]
    assert [len(found) for found in filters] == [1, 2, 2]
    assert {change_of_row(row).kind for row in changes} == set(Change)


# Commands and options


def every_command(group: click.Group = commands, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, Group):
            yield from every_command(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(every_command())


def options_of(command: click.Command) -> set[str]:
    """The options of a command as the table shows them: the short name where that is the usual one."""
    found = {option.opts[0] for option in command.params if isinstance(option, click.Option)}
    return found - {"-v"}  # every command has it, which the page says once


def test_the_table_of_commands_is_that_of_the_program():
    rows = re.findall(r"^\| `([^`]+)` \|[^|]+\| (.*) \|$", section_of(README, "Commands"), re.MULTILINE)
    shown = {" ".join(re.findall(r"(?<!\S)[a-z]+(?!\S)", name)): options for name, options in rows}
    assert shown.keys() == COMMANDS.keys()
    for name, options in shown.items():
        assert set(re.findall(r"`([^`]+)`", options)) == options_of(COMMANDS[name]), name
    for name, _ in rows:
        arguments = re.findall(r"[A-Z]+", name)
        path = " ".join(re.findall(r"(?<!\S)[a-z]+(?!\S)", name))
        taken = [p for p in COMMANDS[path].params if isinstance(p, click.Argument)]
        assert [(p.metavar or p.name or "").rstrip(".").upper() for p in taken] == arguments


def lines_with_commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of the program on the pages, also through a launcher: name of the command, its arguments."""
    for page in PAGES:
        for block in blocks_of((REPOSITORY / page).read_text(encoding="utf-8")):
            for step in steps_of(block.lines) if block.language == "console" else ():
                *supervise, command = step.command.split("<<")[0].split(" -- ")
                yield from (("supervise", shlex.split(each)[2:]) for each in supervise)
                words = shlex.split(command, comments=True)
                if words[:1] == ["mpi-match"] or "mpi_match" in words:
                    words = words[words.index("mpi-match" if "mpi-match" in words else "mpi_match") + 1 :]
                    size = 2 if words[0] == "compile" else 1
                    yield " ".join(words[:size]), words[size:]
                elif any(word.startswith("launch/") for word in words):
                    yield "run", words[next(i for i, word in enumerate(words) if word.startswith("launch/")) + 1 :]


def test_options_on_the_pages_exist():
    found = list(lines_with_commands())
    assert {"match", "run", "compile events"} <= {name for name, _ in found}
    for name, arguments in found:
        known = {spelling for option in COMMANDS[name].params for spelling in option.opts}
        used = {word.split("=")[0] for word in arguments if word.startswith("-")}
        assert used <= known | {"-n"}, (name, arguments)  # -n: the launcher's ranks


# Names of things


def test_links_lead_somewhere():
    for page in PAGES:
        path = REPOSITORY / page
        links = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
        missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
        assert not missing, page


def test_files_named_on_the_pages_exist():
    folders = "launch|hostfiles|tests|mpi_match|spark_prep"
    names = set(re.findall(rf"(?<![\w/])(?:{folders})/[\w./-]+", README + DESIGN))
    assert len(names) > 8
    assert {name for name in names if not (REPOSITORY / name.rstrip(".")).exists()} == set()
    sources = {path.name for folder in ("mpi_match", "spark_prep", "tests") for path in (REPOSITORY / folder).rglob("*.py")}
    assert {name.rsplit("/")[-1] for name in re.findall(r"`([\w/]+\.py)`", README + DESIGN)} <= sources
    hostfiles = {path.name for path in (REPOSITORY / "hostfiles").iterdir()}
    assert set(re.findall(r"`([\w-]+\.(?:openmpi|mpich))`", README)) <= hostfiles


def test_make_targets_on_the_pages_exist():
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = set(re.findall(r"(?:^\$ |`)make ([a-z-]+)", README, re.MULTILINE))
    assert {"demo", "test", "check"} <= used <= targets


def test_the_table_of_engines_is_the_registry():
    assert set(re.findall(r"^\| `(\w+)`", section_of(README, "Engines"), re.MULTILINE)) == set(ENGINES)


def test_the_table_of_operators_is_that_of_the_model():
    rows = re.findall(
        r"^\| (number|string|boolean|none) \| (.*) \|$", section_of(README, "Operators and types"), re.MULTILINE
    )
    shown = {("any" if type_ == "none" else type_): set(re.findall(r"`([^`]+)`", ops)) for type_, ops in rows}
    assert shown == {type_.name.lower(): {op.symbol for op in ops} for type_, ops in OPS_OF_TYPE.items()}


def test_the_map_of_the_design_has_every_module():
    modules = {
        path.relative_to(REPOSITORY).as_posix()
        for package in ("mpi_match", "spark_prep")
        for path in (REPOSITORY / package).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    section = section_of(DESIGN, "Map")
    shown = {
        f"{head[1]}/{name}.py"
        for head in re.finditer(r"^### `([\w/]+)/`\n(.*?)(?=^### |\Z)", section, re.M | re.S)
        for name in re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", head[2], re.M)))
    }
    assert shown == modules


def test_the_results_are_the_records():
    files = sorted((REPOSITORY / "tests/bench/records").glob("*.jsonl"))
    rows = {row_of(record): record for path in files for record in records_in(path)}
    section = section_of(README, "Results")
    runs = {run_row_of(record) for path in files for record in runs_in(path)}
    shown = [row for row in re.findall(r"^\| `.*$", section, re.MULTILINE) if row not in runs]
    assert set(shown) <= rows.keys()
    assert len(shown) > 3
    commands_shown = re.findall(r"^\$ (mpi-match bench .*)$", section, re.MULTILINE)
    assert {command_of(rows[row]) for row in shown} == set(commands_shown)
    assert not [row for row in shown if not rows[row]["checked"] or rows[row]["commit"].endswith("-dirty")]


def rows_under(columns: str, page: str) -> list[str]:
    """The rows of the table with this head."""
    return re.findall(r"^\|.*$", page.split(f"\n{columns}\n")[1].split("\n\n")[0], re.MULTILINE)[1:]


def test_what_was_survived_is_in_the_records():
    files = sorted((REPOSITORY / "tests/bench/records").glob("*.jsonl"))
    kills = [record for path in files for record in survival.records_in(path) if record["what"] != "what survives"]
    assert rows_under(survival.COLUMNS, README) == [*map(survival.row_of, kills)]
    assert {record["what"] for record in kills} == {"workers killed", "masters killed", "hosts killed"}
    assert not [record for record in kills if record["commit"].endswith("-dirty")]


def test_what_is_survived_under_which_launcher_is_in_the_records():
    files = sorted((REPOSITORY / "tests/bench/records").glob("*.jsonl"))
    records = [record for path in files for record in survival.records_in(path)]
    rows = rows_under(survival.LAUNCHER_COLUMNS, README)
    assert rows == [*survival.launcher_rows(records)]
    assert len(rows) == len(set(rows)) > 3
    assert not [row for row in rows if "-dirty" in row]


def test_a_record_of_what_was_not_survived_says_so():
    same = {"mpi": "mpirun (Open MPI) 5.0.11", "commit": "abc", "kills": 9, "runs": 2, "hangs": 1, "right": False}
    row = survival.row_of({"what": "masters killed", "ranks": 3, **same})
    assert row == (
        "| SIGKILL to the master of a run of 3 ranks, then `--resume` (Open MPI 5.0.11) | 9 in 2 runs "
        "| 2 times NOT the bytes of an undisturbed run; 1 hang | `abc` |"
    )
    assert survival.cell_of(["resumes"] * 3) == "resumes"
    assert survival.cell_of(["resumes", "lost, mpirun stays", "resumes"]) == "2 × resumes, 1 × lost¹"
    outcomes = [{"flags": "", "what": "worker killed", "outcomes": ["resumes"]}]
    hosts = {"what": "hosts killed", "flags": "", "outcomes": ["resumes"], **same}
    (row,) = survival.launcher_rows([{"what": "what survives", "outcomes": outcomes, **same}, hosts])
    assert row == "| Open MPI 5.0.11 | resumes | resumes | `abc` |"
