"""Answers: the same bytes for any division into batches, and a lossless round trip through the file."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mpi_match.arrays.csr import Array, offsets_of, owners
from mpi_match.arrays.strings import Strings
from mpi_match.matches.file import MatchesFile, MatchesWriter
from mpi_match.matches.matches import Matches, id_dtype
from mpi_match.model import ModelError
from mpi_match.storage import Reader, StorageError, Writer
from mpi_match.storage.disk import Disk

LABELS = Strings.of(b"interface-%d" % i for i in range(7))
LISTS = [[0, 3], [], [6], [1, 2, 3, 4, 5, 6], [], [0]]

answers = st.lists(st.lists(st.integers(0, 6), max_size=5), max_size=20)


@given(answers)
def test_every_way_to_make_answers_gives_the_same(found: list[list[int]]) -> None:
    matches = Matches.of(found, 7)
    assert [matches[i].tolist() for i in range(len(found))] == [sorted(set(ids)) for ids in found]
    event = np.repeat(np.arange(len(found)), [len(ids) for ids in found])
    flat = np.array([i for ids in found for i in ids], np.int64)
    shuffled = np.random.default_rng(1).permutation(len(flat))
    assert Matches.from_pairs(event[shuffled], flat[shuffled], len(found), 7) == matches
    assert Matches.from_counts(matches.counts, matches.ids, 7) == matches
    assert np.array_equal(np.bincount(matches.event_of(), minlength=len(found)), np.diff(matches.offsets))
    assert matches.n_matches == sum(len(set(ids)) for ids in found)


@given(answers, st.data())
def test_joined_slices_are_the_whole(found: list[list[int]], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(found)), max_size=4)))
    bounds = [0, *cuts, len(found)]
    assert Matches.concat([Matches.of(found[a:b], 7) for a, b in pairwise(bounds)]) == Matches.of(found, 7)


def test_answers_are_a_sequence() -> None:
    """Like lists: indexed from the end, sliced, by any integer; a missing event raises IndexError, which ends a loop."""
    matches = Matches.of(LISTS, 7)
    assert [ids.tolist() for ids in cast(Sequence[Array], matches)] == LISTS
    assert [matches[i].tolist() for i in range(-6, 0)] == LISTS
    assert matches[np.int64(3)].tolist() == matches[np.uint8(3)].tolist() == LISTS[3]
    for i in (6, -7, 10**30):
        with pytest.raises(IndexError, match=f"event {i} of 6"):
            matches[i]
    bounds = (None, -7, -6, -2, 0, 1, 4, 6, 9)
    for at in (slice(a, b, step) for a in bounds for b in bounds for step in (None, 1, 2, -1, -3)):
        assert matches[at] == Matches.of(LISTS[at], 7)
        assert matches[at].labels(LABELS) == matches.labels(LABELS)[at]
    assert (matches[2:4].ids.dtype, matches[2:4].n_ids) == (matches.ids.dtype, 7)


def test_answers_differ_when_anything_does() -> None:
    matches = Matches.of(LISTS, 7)
    assert matches != Matches.of([*LISTS[:-1], [1]], 7)
    assert matches != Matches.of([*LISTS, []], 7)
    assert matches != Matches.of([[0], [3], *LISTS[2:]], 7)
    assert matches != LISTS


def test_labels() -> None:
    assert Matches.of(LISTS[:3], 7).labels(LABELS) == [["interface-0", "interface-3"], [], ["interface-6"]]


def test_filters_are_not_given_labels_of_interfaces() -> None:
    with pytest.raises(
        ModelError, match="are of 8 filters, not of the 7 interfaces with these labels; match without filters"
    ):
        Matches.of(LISTS[:3], 8).labels(LABELS)


@pytest.mark.parametrize(
    ("n_ids", "ids", "counts"),
    [(0, "u1", "u1"), (1, "u1", "u1"), (255, "u1", "u1"), (256, "u1", "u2"), (257, "u2", "u2"), (65_536, "u2", "u4")],
)
def test_types_follow_from_the_table_alone(n_ids: int, ids: str, counts: str) -> None:
    """An event may match every id: the type of the counts holds n_ids, that of the ids n_ids - 1."""
    assert id_dtype(n_ids) == np.dtype(ids)
    empty: list[list[int]] = [[]]
    for found in (empty, [list(range(n_ids))]):
        matches = Matches.of(found, n_ids)
        assert (matches.ids.dtype, matches.counts.dtype) == (np.dtype(ids), np.dtype(counts))
        assert int(matches.counts[0]) == len(found[0])
        assert Matches.from_counts(matches.counts, matches.ids, n_ids) == matches


# Files.


def write(path: Path, pieces: list[Matches], n_ids: int = 7, labels: Strings = LABELS) -> bytes:
    with MatchesWriter(path, n_ids, labels, table_digest="0" * 64) as writer:
        for piece in pieces:
            writer.append(piece)
    return path.read_bytes()


@settings(max_examples=examples(25))
@given(answers, st.randoms(use_true_random=False))
def test_the_file_does_not_show_how_it_was_cut(found: list[list[int]], rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr("mpi_match.storage.column.CHUNK_BYTES", 16)
        path = Path(directory) / "matches.h5"
        whole = write(path, [Matches.of(found, 7)])
        for _ in range(3):
            bounds = sorted(rng.randrange(len(found) + 1) for _ in range(rng.randrange(5)))
            pieces = [Matches.of(found[a:b], 7) for a, b in pairwise([0, *bounds, len(found)])]
            assert write(path, pieces) == whole
        loaded = MatchesFile.load(path)
    assert loaded.matches == Matches.of(found, 7)
    assert list(loaded.rows()) == Matches.of(found, 7).labels(LABELS)


def test_the_file_says_what_it_holds(matches_path: Path) -> None:
    write(matches_path, [Matches.of(LISTS[:2], 7), Matches.of(LISTS[2:], 7)])
    loaded = MatchesFile.load(matches_path)
    said = {"unit": "interface", "n_ids": 7, "n_events": 6, "n_matches": 10, "table_digest": "0" * 64}
    assert said.items() <= loaded.attributes.items()
    assert list(loaded.labels) == list(LABELS)
    with Reader(matches_path, "matches") as reader:
        assert reader.array("matches/counts").dtype == reader.array("matches/ids").dtype == np.uint8


def test_filters_have_numbers_for_labels(matches_path: Path) -> None:
    with MatchesWriter(matches_path, 300, Strings.of(()), "filter") as writer:
        writer.append(Matches.of([[299, 0], []], 300))
    loaded = MatchesFile.load(matches_path)
    assert loaded.attributes["unit"] == "filter"
    assert list(loaded.rows()) == [["0", "299"], []]


def test_counts_and_ids_as_they_travel(matches_path: Path) -> None:
    matches = Matches.of(LISTS, 7)
    expected = write(matches_path, [matches])
    with MatchesWriter(matches_path, 7, LABELS, table_digest="0" * 64) as writer:
        writer.append_raw(matches.counts, matches.ids)
    assert matches_path.read_bytes() == expected


def test_more_answers_than_a_chunk(matches_path: Path) -> None:
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 3, 1_200_000).astype(np.uint16)
    ids = rng.integers(0, 150, int(counts.sum())).astype(np.uint16)
    ids[1:][owners(offsets_of(counts))[1:] == owners(offsets_of(counts))[:-1]] += 150  # of two, the second is larger
    with MatchesWriter(matches_path, 300, Strings.of(()), "filter") as writer:
        for at in range(0, len(counts), 99_999):
            first, last = (int(counts[:stop].sum()) for stop in (at, at + 99_999))
            writer.append_raw(counts[at : at + 99_999], ids[first:last])
    loaded = MatchesFile.load(matches_path).matches
    assert np.array_equal(np.diff(loaded.offsets), counts)
    assert np.array_equal(loaded.ids, ids)


def test_an_interrupted_run_leaves_no_answers(matches_path: Path) -> None:
    def run(error: BaseException) -> None:
        with MatchesWriter(matches_path, 7, LABELS) as writer:
            writer.append(Matches.of(LISTS, 7))
            raise error

    for error in (KeyboardInterrupt(), StorageError("worker"), SystemExit(1)):
        with pytest.raises(type(error)):
            run(error)
        assert list(matches_path.parent.iterdir()) == []


def test_no_room_for_the_last_arrays_leaves_no_answers(matches_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> None:
        with MatchesWriter(matches_path, 7, LABELS) as writer:
            writer.append(Matches.of(LISTS, 7))
            monkeypatch.setattr(Disk, "need", full)

    def full(disk: Disk, n_bytes: int) -> None:
        raise StorageError(f"{disk.path}: disk full")

    with pytest.raises(StorageError, match="disk full"):
        run()
    assert list(matches_path.parent.iterdir()) == []


def test_a_flipped_bit_is_refused_or_harmless(matches_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_match.storage.column.CHUNK_BYTES", 64)
    whole = write(matches_path, [Matches.of(LISTS * 40, 7)])
    rng = random.Random(3)
    refused = 0
    for _ in range(200):
        damaged = bytearray(whole)
        at, bit = rng.randrange(len(whole)), rng.randrange(8)
        damaged[at] ^= 1 << bit
        matches_path.write_bytes(damaged)
        try:
            loaded = MatchesFile.load(matches_path)
        except StorageError:
            refused += 1
        else:
            assert loaded.matches == Matches.of(LISTS * 40, 7), f"bit {bit} of byte {at} changed an answer silently"
            assert list(loaded.labels) == list(LABELS)
    assert refused > 120, "most of the file should matter"


def ids_of(*ids: bytes) -> dict[str, Array]:
    return dict(Strings.of(ids).named("ids"))


@pytest.mark.parametrize(
    ("change", "attributes", "said"),
    [
        pytest.param(ids_of(b"", b"", b"", b"", b""), {}, "ids/offsets has 5 rows and 1, expected 6", id="too few ids"),
        pytest.param(
            ids_of(b"a", b"\xff", *[b""] * 4),
            {},
            "ids/offsets and its data hold a string that is not UTF-8, number 1",
            id="no text",
        ),
        pytest.param(
            ids_of(b"\xc3", b"\xa9", *[b""] * 4), {}, "a string that is not UTF-8, number 0", id="half a character"
        ),
        pytest.param(
            ids_of(*[b"a"] * 6) | {"ids/offsets": np.arange(1, 8)}, {}, "ids/offsets does not fit", id="bounds of ids"
        ),
        pytest.param(
            {"matches/counts": np.full(6, 2, np.uint8)},
            {},
            "matches/counts and matches/ids have inconsistent lengths",
            id="counts",
        ),
        pytest.param({"matches/ids": np.full(10, 7, np.uint8)}, {}, "matches/ids holds 7, and there are 7", id="ids"),
        pytest.param(
            {}, {"n_events": 5}, "matches/counts has 6 rows, expected 5, as the attribute n_events says", id="n_events"
        ),
        pytest.param({}, {"n_matches": 11}, "matches/ids has 10 rows, expected 11", id="n_matches"),
        pytest.param({}, {"n_ids": 8}, "there are 7 labels for 8 ids", id="labels"),
        pytest.param({}, {"n_ids": None}, "there is no attribute n_ids", id="no n_ids"),
    ],
)
def test_answers_that_lie_are_refused(
    change: dict[str, Array], attributes: dict[str, int | None], said: str, matches_path: Path
) -> None:
    matches = Matches.of(LISTS, 7)
    arrays = {"matches/counts": matches.counts, "matches/ids": matches.ids}
    arrays |= {"labels/data": LABELS.data, "labels/offsets": LABELS.offsets} | change
    with Writer(matches_path, "matches") as writer:
        stated: dict[str, int | str | None] = {"unit": "interface", "n_ids": 7, "n_events": 6, "n_matches": 10}
        for name, value in {**stated, **attributes}.items():
            if value is not None:
                writer.attribute(name, value)
        for name, array in arrays.items():
            writer.array(name, array)
    with pytest.raises(StorageError, match=said):
        MatchesFile.load(matches_path)


def test_the_bytes_do_not_show_how_answers_were_cut(matches_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with many chunks of counts and of ids, whose order in the file must be deterministic."""
    monkeypatch.setattr("mpi_match.storage.column.CHUNK_BYTES", 16)
    rng = np.random.default_rng(5)
    whole = Matches.of([list(range(rng.choice((0, 0, 1, 7)))) for _ in range(200)], 7)
    files = set()
    for most in (1, 2, 15, 16, 17, 50, 200):
        with MatchesWriter(matches_path, 7, LABELS) as writer:
            at = 0
            while at < 200:
                stop = min(at + int(rng.integers(1, most + 1)), 200)
                writer.append_raw(whole.counts[at:stop], whole.ids[whole.offsets[at] : whole.offsets[stop]])
                at = stop
        files.add(matches_path.read_bytes())
        assert MatchesFile.load(matches_path).matches == whole
    assert len(files) == 1


def test_a_file_of_a_few_answers_is_small(matches_path: Path) -> None:
    few = Matches.of([[0], [], [0, 1]], 2)
    with MatchesWriter(matches_path, 2, Strings.of([b"a", b"b"])) as writer:
        writer.append(few)
    assert matches_path.stat().st_size < 30_000
    assert MatchesFile.load(matches_path).matches == few
