"""The pages are true: commands on them run and print the output shown, files and options that they name exist.

The form of commands on a page is described in `pages`.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import bias
import cli_reference
import pytest
import results
import systems
from mpirun import TIMEOUT_S, needs_mpirun
from pages import README, REPOSITORY, Block, Step, blocks_of, section_of, steps_of, without_chance

from mpi_match.cli.main import commands
from mpi_match.commands import doctor
from mpi_match.engines import REGISTRY
from mpi_match.ingest.rows.judge import change_of_row, subscription_filters
from mpi_match.ingest.rows.predicate_text import parse
from mpi_match.model import OPS_OF_TYPE, Change

DOCS = REPOSITORY / "mpi_match" / "docs"
PAGES = {path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
PAGES |= {name: (REPOSITORY / name).read_text(encoding="utf-8") for name in ("README.md", "CHANGELOG.md")}

BLOCKS = {page: list(blocks_of(text)) for page, text in PAGES.items()}
RUN = {block.run: block for blocks in BLOCKS.values() for block in blocks if block.run}


@pytest.fixture
def shell(tmp_path: Path) -> Callable[[str], str]:
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
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=work,
            env=environment,
            timeout=TIMEOUT_S,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        return done.stdout

    return run


def run_steps(name: str, shell: Callable[[str], str]) -> None:
    for command, shown in steps_of(RUN[name].lines):
        said = shell(command)
        assert without_chance(said) == without_chance("\n".join(shown)), f"$ {command}\n{said}"


def test_blocks_are_read() -> None:
    page = "<!-- run: a -->\n```console\n$ x <<E\n> y\n> E\nshown\n$ z\n```\n\n```python\n1\n```\n"
    first, second = blocks_of(page)
    assert (first.language, first.run, second) == ("console", "a", Block("python", "", ["1"]))
    assert steps_of(first.lines) == [Step("x <<E\ny\nE", ["shown"]), Step("z", [])]
    assert without_chance("in 5.67 s: 8.82 k events/s; keyed on 2 x cpu, 1 thread, 2 workers\n") == [
        "in TIME: RATE; ENGINE, 2 workers"
    ]
    assert RUN.keys() == {"local", "changes", "follow", "ranks", "pipeline", "spark-frames", "spark-source"}


@pytest.mark.parametrize("name", ["local", "changes", "follow"])
def test_rows_in_answers_out(shell: Callable[[str], str], name: str) -> None:
    run_steps(name, shell)


@pytest.mark.lasting  # `make test-wheel` runs the same commands
@pytest.mark.mpi
@needs_mpirun
def test_several_ranks(shell: Callable[[str], str]) -> None:
    run_steps("ranks", shell)


@pytest.mark.lasting  # `make demo` runs the same commands
@pytest.mark.spark
@pytest.mark.mpi
@pytest.mark.skipif(find_spec("pyspark") is None or not doctor.java_version(), reason="needs pyspark and Java")
def test_the_whole_pipeline(shell: Callable[[str], str]) -> None:
    run_steps("pipeline", shell)


@pytest.mark.spark
@pytest.mark.skipif(find_spec("pyspark") is None or not doctor.java_version(), reason="needs pyspark and Java")
def test_frames_of_spark(shell: Callable[[str], str]) -> None:
    """The scripts of both blocks in one session, which takes longer to start than they take."""
    scripts, shown = [], []
    for name in ("spark-frames", "spark-source"):
        written, ran = steps_of(RUN[name].lines)
        shell(written.command)
        scripts += [ran.command.removeprefix("python ")]
        shown += [*ran.shown, "."]
    said = shell(f"python -c 'import runpy\nfor script in {json.dumps(scripts)}:\n runpy.run_path(script)\n print(\".\")'")
    assert without_chance(said) == without_chance("\n".join(shown)), said


@pytest.mark.parametrize("page", ["README.md", "mpi_match/docs/live-updates.md", "mpi_match/docs/frames.md"])
def test_python(page: str) -> None:
    (block,) = (block for block in BLOCKS[page] if block.language == "python")
    examples = doctest.DocTestParser().get_doctest("\n".join(block.lines) + "\n", {}, page, page, 0)
    assert len(examples.examples) > 5
    assert doctest.DocTestRunner().run(examples).failed == 0


def rows_shown(page: str) -> list[Any]:
    (block,) = (block for block in BLOCKS[f"mpi_match/docs/{page}"] if block.language == "json")
    return [json.loads(line) for line in block.lines]


def test_the_rows_shown_are_rows() -> None:
    filters = [parse(row["predicate"]) if "predicate" in row else subscription_filters(row) for row in rows_shown("rows.md")]
    assert [len(found) for found in filters] == [1, 2, 1, 2, 1]
    assert {change_of_row(row).kind for row in rows_shown("live-updates.md")} == set(Change)


def test_the_readme_is_short() -> None:
    assert len(PAGES["README.md"].splitlines()) < 200


# Commands and options


COMMANDS = {" ".join(path[1:]): command for path, command in cli_reference.every_command(commands, ("mpi-match",))}


def lines_with_commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of the program on the pages, also through a launcher: name of the command, its arguments."""
    for blocks in BLOCKS.values():
        for block in blocks:
            for step in steps_of(block.lines) if block.language == "console" else ():
                *supervise, command = step.command.split("<<")[0].split(" -- ")
                yield from (("supervise", shlex.split(each)[2:]) for each in supervise)
                words = shlex.split(command, comments=True)
                if words[:1] == ["mpi-match"] or "mpi_match" in words:
                    words = words[words.index("mpi-match" if "mpi-match" in words else "mpi_match") + 1 :]
                    size = 2 if " ".join(words[:2]) in COMMANDS else 1
                    yield " ".join(words[:size]), words[size:]
                elif any(word.startswith("launch/") for word in words):
                    yield "run", words[next(i for i, word in enumerate(words) if word.startswith("launch/")) + 1 :]


def test_the_page_of_commands_is_what_help_says() -> None:
    assert cli_reference.PAGE.read_text(encoding="utf-8") == cli_reference.reference(), "`make cli-reference` writes it"


def test_options_on_the_pages_exist() -> None:
    found = list(lines_with_commands())
    assert {"match", "run", "compile events"} <= {name for name, _ in found}
    for name, arguments in found:
        known = {spelling for option in COMMANDS[name].params for spelling in option.opts}
        used = {word.split("=")[0] for word in arguments if word.startswith("-")}
        assert used <= known | {"-n"}, (name, arguments)  # -n: the launcher's ranks


# Names of things


def test_links_lead_somewhere() -> None:
    for page, text in PAGES.items():
        links = re.findall(r"\]\(([^)#]+)\)", text)
        missing = [link for link in links if "://" not in link and not (REPOSITORY / page).parent.joinpath(link).exists()]
        assert not missing, page


def test_every_page_is_linked() -> None:
    linked = {
        (REPOSITORY / page).parent.joinpath(link).resolve()
        for page, text in PAGES.items()
        for link in re.findall(r"\]\(([^)#]+)\)", text)
    }
    records = DOCS / "adr"  # linked as a folder
    assert records.resolve() in linked
    assert [p for p in DOCS.rglob("*.md") if p.parent != records and p.resolve() not in linked] == []


def test_files_named_on_the_pages_exist() -> None:
    text = "\n".join(text for page, text in PAGES.items() if page != "CHANGELOG.md")
    folders = "launch|hostfiles|tests|mpi_match|spark_prep"
    names = set(re.findall(rf"(?<![\w/.])(?:{folders})/[\w./-]*\w", text))
    assert len(names) > 8
    assert {name for name in names if not (REPOSITORY / name).exists()} == set()
    sources = {path.name for folder in ("mpi_match", "spark_prep", "tests") for path in (REPOSITORY / folder).rglob("*.py")}
    assert {name.rsplit("/")[-1] for name in re.findall(r"`([\w/]+\.py)`", text)} <= sources
    hostfiles = {path.name for path in (REPOSITORY / "hostfiles").iterdir()}
    assert set(re.findall(r"`([\w-]+\.(?:openmpi|mpich))`", text)) <= hostfiles


def test_make_targets_on_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = {name for text in PAGES.values() for name in re.findall(r"(?:^\$ |`)make ([a-z-]+)", text, re.MULTILINE)}
    assert {"demo", "test", "check"} <= used <= targets


def test_the_tables_of_engines_are_the_registry() -> None:
    shown = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", section_of(README, "Which engine when"), re.MULTILINE)
    assert {name: ("GPU" in runs_on, use.split("; ").count("changes")) for name, runs_on, use in shown} == {
        name: (entry.runs_on == "GPU", entry.takes_changes) for name, entry in REGISTRY.items()
    }
    assert all(("fixed tables" in use) != ("changes" in use) for _, _, use in shown)
    pages = dict(re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \|", PAGES["mpi_match/docs/engines/README.md"], re.MULTILINE))
    assert pages == {name: name for name in REGISTRY}


def test_the_table_of_operators_is_that_of_the_model() -> None:
    rows = re.findall(
        r"^\| (number|string|boolean|none) \| (.*) \|$", section_of(README, "Operators and types"), re.MULTILINE
    )
    shown = {("any" if type_ == "none" else type_): set(re.findall(r"`([^`]+)`", ops)) for type_, ops in rows}
    assert shown == {type_.name.lower(): {op.symbol for op in ops} for type_, ops in OPS_OF_TYPE.items() if ops}


def test_the_design_has_a_heading_for_every_folder() -> None:
    headings = re.findall(r"^## (.+)$", PAGES["mpi_match/docs/design.md"], re.MULTILINE)
    folders = {path.parent.name for path in (REPOSITORY / "mpi_match").glob("*/__init__.py")}
    assert folders | {"model", "spark_prep", "tests"} == {name for heading in headings for name in heading.split(", ")}


# Results


def test_the_pages_of_results_are_those_of_the_records() -> None:
    records = results.all_records()
    assert results.PAGE.read_text(encoding="utf-8") == results.page(records), "run python tests/support/results.py"
    assert results.with_highlights(README, records) == README, "run python tests/support/results.py"
    best, published = results.highlights(records).split("\n\n")
    assert len(best.splitlines()) == 2 + 5
    assert len(published.splitlines()) == 2 + 5
    losses = PAGES["mpi_match/docs/bias.md"]
    assert bias.with_losses(losses, results.RECORDS) == losses, "run python tests/support/results.py"


def test_rows_show_the_workload_that_they_were_made_with() -> None:
    row = {"scenario": "tagmatch", "parameters": {"constraints": "3-5", "tagmatch.max_p": "9", "threads": "8"}}
    assert results.workload_of(row) == "`tagmatch`, constraints=3-5"
    of_files = {
        "scenario": "tagmatch",
        "command": "generate tagmatch --param constraints=3-5 --param name_exponent=0.5 -o .",
    }
    assert results.workload_of(of_files) == "`tagmatch`, constraints=3-5, name_exponent=0.5"
    assert results.kernels_of({"kernel_events_per_s": 90e3, "events_per_s": 188e3}) == "", "streams overlap"
    assert results.kernels_of({"kernel_events_per_s": 258e6, "events_per_s": 234e6}) == "258 M"


def test_systems_are_beside_what_their_own_papers_print() -> None:
    _, published = results.highlights(results.all_records()).split("\n\n")
    ccm, mpi_cuda, _, tagmatch, _ = published.splitlines()[2:]
    assert "49.6 µs an event, 21.8 without encoding" in ccm, "with half strings, the median of five seeds"
    assert "153.5 µs an event, four K600" in mpi_cuda
    assert "15.4 µs an event with 4 workers and 20,000 events; 31.0 with 1 worker" in mpi_cuda, "as its table 2"
    assert "136.6 k queries/s; 163.6 k queries/s with 64 batches a launch" in tagmatch, "with more keys than sets"


def test_a_system_measured_with_several_seeds_has_their_median() -> None:
    """The least time of five seeds stood beside the printed one."""
    seeds = [{"engine_options": {}, "seed": seed, "us_per_event": us} for seed, us in enumerate([3.0, 1.0, 2.0, 9.0, 8.0])]
    other = {"engine_options": {"order": "given"}, "seed": 0, "us_per_event": 4.0}
    best = systems._best([other, *seeds], lambda record: -float(record["us_per_event"]))
    assert list(best) == seeds, "3 is the median of these, and less than 4"
    of_seeds = [{"us_per_event": us, "scenario": "ccm", "encode_s": 1e-3, "n_events": n} for us, n in ((5, 50), (9, 500))]
    assert systems._us([*of_seeds, {**of_seeds[0], "us_per_event": 7}]) == "25.0 µs an event, 7.0 without encoding"


def test_a_loss_is_a_point_where_another_is_better_and_not_by_noise() -> None:
    def record(engine: str, us: float, parameters: dict[str, str], spread: float = 0.01) -> dict[str, Any]:
        times = {"median": us, "min": us * (1 - spread), "max": us * (1 + spread)}
        same = {"experiment": "e", "scenario": "s", "commit": "c", "machine": {"cpu": "x"}, "repetitions": 3}
        return {**same, "parameters": parameters, "engine": engine, "us_per_event": us, "match_s": times}

    here, there = {"names": "1"}, {"names": "2", "ccm.reset": "kernel"}
    found, compared = bias.losses(
        [
            *(record("keyed", 10, here), record("ccm", 5, here), record("sff", 9.95, here)),
            {**record("betree", 2, here), "repetitions": 1},
            *(record("keyed", 10, there), record("ccm", 11, there), record("sff", 5, there, spread=0.99)),
        ]
    )
    assert [(loss.other, loss.times, loss.where) for loss in found] == [("ccm", 2, "e names=1")]
    assert compared == {("us_per_event", "keyed", "ccm"): 2, ("us_per_event", "keyed", "sff"): 2}


def test_records_were_checked_and_are_of_committed_sources() -> None:
    records = results.all_records()
    assert {record["what"] for record in records} >= {
        "bench",
        "end to end",
        "workers killed",
        "masters killed",
        "hosts killed",
    }
    assert not [record for record in records if record["commit"].endswith("-dirty")]
    assert not [record for record in records if record["what"] == "bench" and not record["checked"]]


def test_a_printed_value_stands_beside_one_commit_and_machine(tmp_path: Path) -> None:
    def measured(us: float, commit: str, cores: int = 8, exponent: str = "0", engine: str = "ccm") -> str:
        record = {"experiment": "ccm-table-2", "scenario": "ccm-strings", "scale": 1.0, "engine": engine, "us_per_event": us}
        machine = {"gpus": [{"name": "H200"}], "cores": cores, "cpu": "one"}
        more = {"commit": commit, "command": "x", "machine": machine, "engine_options": {}, "repetitions": 1}
        return json.dumps({**record, **more, "parameters": {"name_exponent": exponent}})

    path = tmp_path / "some-experiments.jsonl"
    lines = [measured(9, "old"), measured(5, "new"), measured(7, "old", 16, "1"), measured(40, "new", engine="sff")]
    path.write_text("\n".join(lines) + "\n")
    found = [r for r in results.load(path) if r["what"] == "printed" and r["claim"].measured is not None]
    times = {
        (r["claim"].printed.subject, r["commit"], r["machine"]["cores"], round(r["claim"].measured, 6))
        for r in found
        if r["claim"].printed.metric == "processing_time" and r["claim"].printed.parameters.get("scenario") == "default"
    }
    assert times == {("CCM", "new", 8, 0.005), ("SFF", "new", 8, 0.04)}, "the old time of this point counts no more"
    ratios = [r["claim"] for r in results.load(path) if r["what"] == "printed" and r["claim"].printed.metric == "speedup"]
    assert {claim.measured for claim in ratios if claim.measured is not None} == {8.0}, "none without the baseline"


def test_a_record_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no table takes records of 'new'"):
        results.page([{"what": "new", "commit": "abc", "command": "x"}])


def test_a_wrong_answer_has_no_row() -> None:
    record = {"what": "end to end", "verified": {"verified": False}, "command": "x", "commit": "abc"}
    with pytest.raises(ValueError, match="the answers of x were not right"):
        results.page([record])


def test_a_record_of_what_was_not_survived_says_so() -> None:
    same = {"mpi": "mpirun (Open MPI) 5.0.11", "commit": "abc", "kills": 9, "runs": 2, "hangs": 1, "right": False}
    row = results.kill_row({"what": "masters killed", "ranks": 3, **same})
    assert row == (
        "| SIGKILL to the master of a run of 3 ranks, then `--resume` (Open MPI 5.0.11) | 9 in 2 runs "
        "| 2 times NOT the bytes of an undisturbed run; 1 hang | `abc` |"
    )
    assert results.cell_of(["resumes"] * 3) == "resumes"
    assert results.cell_of(["resumes", "lost, mpirun stays", "resumes"]) == "2 × resumes, 1 × lost¹"
    outcomes = [{"flags": "", "what": "worker killed", "outcomes": ["resumes"]}]
    hosts = {"what": "hosts killed", "flags": "", "outcomes": ["resumes"], **same}
    (row,) = results.launcher_rows([{"what": "what survives", "outcomes": outcomes, **same}, hosts])
    assert row == "| Open MPI 5.0.11 | resumes | resumes | `abc` |"
