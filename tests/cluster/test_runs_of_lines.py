"""Runs of JSON lines without a compile step: the same answers, rejects and bytes from any ranks, batches and feeds."""

from __future__ import annotations

import gzip
import json
import os
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_line import in_a_process, mpi_match
from lasting import lasting
from mpirun import execute, launch, needs_mpirun, said
from random_rows import random_event, random_subscription
from run_inputs import KEPT, leftovers

from mpi_match.cluster import FEEDS, ClusterError, RunOptions, RunSummary, run
from mpi_match.ingest.files import line_index
from mpi_match.ingest.rows.judge import EventForm, Reject, event_of_row, names_of, read_rows, subscription_filters
from mpi_match.journal.reader import journal_of
from mpi_match.matches.file import MatchesFile
from mpi_match.model import ModelError, match_naive
from mpi_match.storage import FileChanged
from mpi_match.table.table import Table
from mpi_match.verify.verify import VerifiedFiles, verify

FORM = EventForm(("x", "y"), "id")
WORDS = ("--location", "x,y", "--id", "id")
COMMAND = ("-m", "mpi4py", "-m", "mpi_match", "run")
BAD = [b"", b" ", b"[]", b'{"temp": 1, "temp": 2}', b'{"x": 1}', b'{"city": "\xff"}', b'{"temp": NaN}', b'{"id": 7}']


class Lines(NamedTuple):
    """A table, lines of events in a file and in a directory, and the naive matcher's answers and rejects."""

    table: Path
    events: Path
    directory: Path
    answers: list[list[str]]
    rejects: list[Reject]

    def options(self, output: Path, **more: Any) -> RunOptions:
        return RunOptions(self.table, self.events, output, form=FORM, engine="counting", **more)


def rejects_in(path: Path) -> list[Reject]:
    return [Reject(**json.loads(line)) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Lines:
    directory, generator = tmp_path_factory.mktemp("lines"), random.Random(19)
    filters = [each for _ in range(60) for each in subscription_filters(random_subscription(generator))]
    content = [
        json.dumps(random_event(generator, lists=False), ensure_ascii=generator.random() < 0.5).encode() for _ in range(400)
    ]
    content += BAD * 5
    generator.shuffle(content)
    (directory / "events.jsonl").write_bytes(b"\n".join(content))
    several = directory / "several"
    several.mkdir()
    for k in range(3):
        (several / f"{k}.jsonl").write_bytes(b"\n".join(content[k * 150 : (k + 1) * 150]) + b"\n")
    Table.from_filters(filters).save(directory / "table.h5")
    rejects: list[Reject] = []
    names = names_of(Table.from_filters(filters).vocabulary, FORM)
    events = list(read_rows([directory / "events.jsonl"], lambda row: event_of_row(row, FORM, names), rejects))
    answers = [match_naive(filters, event) for event in events]
    assert len(rejects) == 20
    return Lines(directory / "table.h5", directory / "events.jsonl", several, answers, rejects)


@pytest.fixture(scope="module")
def expected(lines: Lines, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The answers of one process, which are the naive matcher's."""
    output = tmp_path_factory.mktemp("alone") / "matches.h5"
    summary = run(lines.options(output, batch=1000, rejects=output.with_name("bad.jsonl")))
    assert summary is not None
    assert summary.rejected == len(lines.rejects)
    assert len(lines.rejects) <= summary.flagged <= len(lines.rejects) + 5
    assert summary.never_seen == ()
    assert rejects_in(output.with_name("bad.jsonl")) == lines.rejects
    assert list(MatchesFile.load(output).rows()) == lines.answers
    files = VerifiedFiles(lines.table, lines.events, output, form=FORM)
    for judge in ("naive", "counting"):
        assert verify(files, sample=0, judge=judge).difference is None
    return output.read_bytes()


def test_the_ids_of_lines_are_exported(lines: Lines, expected: bytes, tmp_path: Path) -> None:
    (tmp_path / "matches.h5").write_bytes(expected)
    words = ("export", tmp_path / "matches.h5", "--events", lines.events, "--id", "id", "-o", tmp_path / "m.jsonl")
    mpi_match(*words)
    rows = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    events = read_rows([lines.events], lambda row: event_of_row(row, FORM), [])
    assert [row["id"] for row in rows] == [event and event.id for event in events]
    assert sum(row["id"] is not None for row in rows) > 10
    assert [row["interfaces"] for row in rows] == lines.answers


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (3, "--batch 31 --feed shared --results local"),
        (3, "--batch 7 --feed file --results local --schedule static"),
        (5, "--batch 16 --placement hybrid --groups 2 --feed file"),
        *(
            pytest.param(ranks, options, marks=pytest.mark.lasting)
            for ranks, options in (
                (2, "--batch 1 --credits 1"),
                (3, "--batch 17"),
                (3, "--batch 16 --schedule static --feed shared"),
                (3, "--batch 1000 --feed file"),
                (3, "--batch 40 --placement shard"),
                (2, "--batch 3 --feed file"),
            )
        ),
    ],
)
def test_any_ranks_batches_and_feeds_give_the_same_answers_and_rejects(
    ranks: int, options: str, lines: Lines, expected: bytes, tmp_path: Path
) -> None:
    output, rejects = tmp_path / "matches.h5", tmp_path / "bad.jsonl"
    words = ("--table", lines.table, "--events", lines.events, "-o", output, *WORDS, "--rejects", rejects, "--json")
    done = execute(launch(ranks, *words, "--engine", "counting", *options.split(), python=COMMAND))
    assert done.returncode == 0, done.stderr
    assert rejects_in(rejects) == lines.rejects
    assert json.loads(done.stdout)["rejected"] == len(lines.rejects)
    if "local" in options:
        assert list(MatchesFile.load(output).rows()) == lines.answers
    else:
        assert output.read_bytes() == expected
        assert leftovers(output) == ["matches.h5", "matches.h5.run.json"]


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("feed", ["master", pytest.param("shared", marks=pytest.mark.lasting)])
def test_packed_lines_and_pipes_are_read_by_the_master(feed: str, lines: Lines, expected: bytes, tmp_path: Path) -> None:
    packed, pipe = tmp_path / "events.jsonl.gz", tmp_path / "pipe"
    packed.write_bytes(gzip.compress(lines.events.read_bytes()))
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.write_bytes(lines.events.read_bytes()), daemon=True).start()
    for events in (packed, pipe):
        output = tmp_path / f"{events.name}.h5"
        words = ("engine=counting", "form=x,y,id", "batch=50", f"feed={feed}")
        done = execute(launch(3, lines.table, events, output, *words))
        assert done.returncode == 0, done.stderr
        assert output.read_bytes() == expected


def test_standard_input_is_read_by_a_run_of_one_process(lines: Lines, expected: bytes, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    words = ("--table", lines.table, *WORDS, "--engine", "counting", "--events", "-", "-o", output)
    with lines.events.open("rb") as given:
        in_a_process(sys.executable, "-m", "mpi_match", "run", *words, stdin=given)
    assert output.read_bytes() == expected


@pytest.mark.mpi
@needs_mpirun
def test_ranks_do_not_wait_for_a_standard_input_that_does_not_end(lines: Lines, tmp_path: Path) -> None:
    """Open MPI 5 forwards its bytes, and not its end."""
    done = execute(launch(2, lines.table, "/dev/stdin", tmp_path / "matches.h5"))
    assert done.returncode == 2
    assert "name a file, or a pipe made with mkfifo" in said(done)


def interrupted(lines: Lines, output: Path, **more: Any) -> None:
    """A run of one process that ends after a third of the events."""

    def progress(n_answered: int, n_events: int) -> None:
        if n_answered > n_events // 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(lines.options(output, batch=10, progress=progress, **more))


def test_a_resumed_run_has_all_rejects_each_once(lines: Lines, expected: bytes, tmp_path: Path) -> None:
    output, rejects = tmp_path / "matches.h5", tmp_path / "bad.jsonl"
    interrupted(lines, output)
    assert journal_of(output).exists()
    summary = run(lines.options(output, batch=7, resume=True, rejects=rejects))
    assert summary is not None
    assert 0 < summary.resumed < summary.events
    assert summary.rejected == len(lines.rejects)
    assert rejects_in(rejects) == lines.rejects
    assert output.read_bytes() == expected


def test_without_a_file_of_rejects_only_those_of_the_run_are_counted(lines: Lines, expected: bytes, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    interrupted(lines, output)
    summary = run(lines.options(output, resume=True))
    assert summary is not None
    assert 0 < summary.rejected < len(lines.rejects)
    assert output.read_bytes() == expected


def test_a_run_of_other_lines_or_another_form_does_not_go_on(lines: Lines, tmp_path: Path) -> None:
    output, other = tmp_path / "matches.h5", tmp_path / "other.jsonl"
    interrupted(lines, output)
    other.write_bytes(lines.events.read_bytes().replace(b"Milan", b"Turin", 1))
    for options in (
        replace(lines.options(output, resume=True), events=other),
        replace(lines.options(output, resume=True), form=EventForm(None, "id")),
    ):
        with pytest.raises(Exception, match="but of other inputs: events digest found"):
            run(options)


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("feed", "results"),
    [
        ("file", "local"),
        *lasting(*(how for how in product(FEEDS, ("local", "master")) if how != ("file", "local"))),
    ],
)
def test_a_killed_run_goes_on_with_every_feed(
    feed: str, results: str, lines: Lines, expected: bytes, tmp_path: Path
) -> None:
    output, rejects = tmp_path / "matches.h5", tmp_path / "bad.jsonl"
    files = (lines.table, lines.events, output, "engine=counting", "form=x,y,id", f"rejects={rejects}")
    how = (f"feed={feed}", f"results={results}")
    done = execute(launch(3, *files, *how, "batch=5", "kept_bytes=0", "killed_at=200"))
    assert done.returncode != 0
    assert not output.exists()
    done = execute(launch(2, *files, *how, "batch=9", "resume=1"))
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads(done.stdout)["resumed"] < len(lines.answers)
    assert rejects_in(rejects) == lines.rejects
    if results == "master":
        assert output.read_bytes() == expected
    assert list(MatchesFile.load(output).rows()) == lines.answers


def test_changes_take_effect_before_the_rows_that_they_name(tmp_path: Path) -> None:
    """Rejected rows and blank lines between."""
    (tmp_path / "subs.jsonl").write_text('{"interface": "a", "constraints": [["n", ">", 0]], "id": "f"}\n')
    rows = ['{"n": 1}', "", "[]", '{"n": 2}', '{"n": 3}', "{"]
    (tmp_path / "events.jsonl").write_text("\n".join(rows))
    changes = [
        {"before_event": 2, "add": {"interface": "b", "constraints": [["n", "=", 2]], "id": "g"}},
        {"before_event": 3, "remove": "f"},
    ]
    (tmp_path / "changes.jsonl").write_text("".join(json.dumps(each) + "\n" for each in changes))
    filters = [each for found in read_rows([tmp_path / "subs.jsonl"], subscription_filters, []) if found for each in found]
    table = Table.from_filters(filters)
    table.save(tmp_path / "table.h5")
    from mpi_match.changes.log import ChangeLog
    from mpi_match.ingest.rows.judge import change_of_row

    ChangeLog.of(table, [change_of_row(each) for each in changes], []).save(tmp_path / "changes.h5")
    files = tmp_path / "table.h5", tmp_path / "events.jsonl"
    for size in (1, 2, 100):
        output = tmp_path / f"{size}.h5"
        run(RunOptions(*files, output, changes=tmp_path / "changes.h5", engine="reference", batch=size))
        assert list(MatchesFile.load(output).rows()) == [["a"], [], ["a", "b"], [], []]
        assert verify(VerifiedFiles(*files, output, tmp_path / "changes.h5"), sample=0).difference is None
    done = mpi_match(*("match", tmp_path / "subs.jsonl", files[1], "--changes", tmp_path / "changes.jsonl", "-o", "-"))
    assert [json.loads(line)["interfaces"] for line in done.stdout.splitlines()] == [["a"], [], ["a", "b"], [], []]


def test_the_files_of_a_directory_are_one_input(lines: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_index, "BLOCK_BYTES", 1000)
    rejects: list[Reject] = []
    names = names_of(Table.load(lines.table).vocabulary, FORM)
    list(read_rows(sorted(lines.directory.iterdir()), lambda row: event_of_row(row, FORM, names), rejects))
    options = lines.options(tmp_path / "matches.h5", batch=100, rejects=tmp_path / "bad.jsonl")
    run(replace(options, events=lines.directory))
    assert list(MatchesFile.load(tmp_path / "matches.h5").rows()) == lines.answers
    assert rejects_in(tmp_path / "bad.jsonl") == rejects
    assert {Path(reject.file).name for reject in rejects} == {"0.jsonl", "1.jsonl", "2.jsonl"}


CHANGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "shrinks": (lambda path: path.write_bytes(path.read_bytes()[:2000]), r"was truncated while it was read"),
    "is altered": (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"), "changed while it was read: CRC-32"),
    "is removed": (lambda path: path.unlink(), "changed while it was read: No such file or directory"),
}


@pytest.mark.parametrize("how", CHANGED)
def test_a_file_that_changes_meanwhile_is_one_clear_error(
    how: str, lines: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_index, "BLOCK_BYTES", 1000)
    content, output = lines.events.read_bytes(), tmp_path / "matches.h5"
    events = tmp_path / "events.jsonl"
    events.write_bytes(content)
    change, text = CHANGED[how]

    def progress(n_answered: int, n_events: int) -> None:
        if n_answered == 10:
            change(events)

    options = replace(lines.options(output, batch=10, progress=progress), events=events)
    with pytest.raises(FileChanged, match=text) as caught:
        run(options)
    assert caught.value.exit_code == 4
    events.write_bytes(content)
    run(replace(options, resume=True, progress=None))
    assert list(MatchesFile.load(output).rows()) == lines.answers


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("feed", [pytest.param("master", marks=pytest.mark.lasting), "file"])
def test_lines_that_shrink_end_a_run_of_ranks_in_one_line(feed: str, lines: Lines, tmp_path: Path) -> None:
    """No rank dies of SIGBUS."""
    events, output = tmp_path / "events.jsonl", tmp_path / "matches.h5"
    events.write_bytes(lines.events.read_bytes() * 60)
    files = (lines.table, events, output, "engine=counting", "form=x,y,id", "batch=20", f"feed={feed}")
    done = execute(launch(3, *files, "truncated_to=2000"))
    assert done.returncode == 4, done.stderr
    assert said(done).count("was truncated while it was read") == 1
    assert not output.exists()


def refused(options: RunOptions, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        run(options)
    assert leftovers(options.output) in ([], KEPT if options.strict else [])


def test_what_cannot_be_done_is_refused(lines: Lines, tmp_path: Path) -> None:
    options = lines.options(tmp_path / "matches.h5")
    packed, empty, bad = (tmp_path / name for name in ("events.jsonl.gz", "empty.jsonl", "all-bad.jsonl"))
    packed.write_bytes(gzip.compress(b"{}\n"))
    empty.write_bytes(b" \n\n")
    bad.write_bytes(b"[]\n{\n")
    refused(replace(options, events=packed, feed="file"), ClusterError, "use --feed master or --feed shared")
    os.mkfifo(tmp_path / "pipe")
    for once in (Path("/dev/stdin"), tmp_path / "pipe"):
        refused(replace(options, events=once, resume=True), ClusterError, "--resume needs the events in a file")
    refused(replace(options, events=empty), ModelError, r"empty\.jsonl: holds no event$")
    refused(replace(options, events=bad), ModelError, r"holds no usable event, all 2 rows are rejected; .*line 1: an event")
    refused(replace(options, rejects=lines.events), Exception, "is an input and would be overwritten")
    refused(replace(options, strict=True), ModelError, r"events\.jsonl, line \d+: .* \(--strict\)")


def test_names_that_no_event_has_are_reported(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"n": 1}\n')
    Table.from_filters(subscription_filters({"interface": "a", "constraints": []})).save(tmp_path / "table.h5")
    form = EventForm(("x", "y"), "key")
    options = RunOptions(tmp_path / "table.h5", tmp_path / "events.jsonl", tmp_path / "matches.h5", form=form)
    summary = run(options)
    assert isinstance(summary, RunSummary)
    assert summary.never_seen == ("x", "y", "key")
    with pytest.raises(ModelError, match=r"no event has 'x' or 'y' or 'key' \(--strict\)"):
        run(replace(options, strict=True, output=tmp_path / "strict.h5"))
