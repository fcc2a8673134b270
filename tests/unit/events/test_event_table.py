"""Event tables: as they are or encoded again, as one file or in parts, the events are the same; damage is reported, never
matched.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import format_judge
import h5py
import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from strategies import subscriptions_and_events
from test_events import assert_equal, sorted_event

from mpi_match.api import make_events, make_table
from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.events import event_table, schema
from mpi_match.events.batch import EventBatch
from mpi_match.events.event_table import EventTable, event_counts, save_events
from mpi_match.events.events import Events
from mpi_match.model import Event, Filter, make_event, make_filter
from mpi_match.storage import FilePart, Reader, StorageError, Writer, parts_directory, write_index
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

VOCABULARY = Table.from_filters(
    [make_filter("i", [["a", ">", 3], ["b", "=", "x"], ["b", "suffix", "y"], ["flag", "=", True]], [0, 0, 1])]
).vocabulary
OTHER = Table.from_filters([make_filter("i", [["a", "<", 5], ["c", "contains", "z"]])]).vocabulary


def published(n: int = 50, located: bool = True, named: bool = True) -> list[Event]:
    return [
        make_event(
            {"a": i % 9, "b": "xyz"[i % 3] * (i % 2 + 1), "c": f"z{i % 4}", "flag": i % 5 == 0} if i % 7 else {},
            (i, i / 2) if located and i % 3 else None,
            f"e{i}" if named and i % 4 else None,
        )
        for i in range(n)
    ]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight events to a block, twelve to a step of encoding, four compared: so fifty events cross many borders."""
    monkeypatch.setattr(schema, "BLOCK_EVENTS", 8)
    monkeypatch.setattr(event_table, "ENCODE_EVENTS", 12)
    monkeypatch.setattr(event_table, "COMPARED_EVENTS", 4)


RANGES = [(0, 50), (0, 0), (7, 7), (50, 50), (0, 8), (8, 16), (3, 29), (15, 17), (49, 50), (40, 50)]


# The same events, however they come.


@pytest.mark.parametrize("vocabulary", [VOCABULARY, OTHER], ids=["as it is", "encoded again"])
@pytest.mark.parametrize("located", [True, False])
def test_ranges_of_a_file_are_ranges_of_the_events(vocabulary: Vocabulary, located: bool, events_path: Path) -> None:
    found = published(located=located)
    digest = save_events(Events.of(found), events_path, VOCABULARY)
    whole = Events.of(found).encode(vocabulary)
    with EventTable(events_path, vocabulary) as table:
        assert len(table) == table.n_events == 50
        assert table.encoded_for_vocabulary == (vocabulary is VOCABULARY)
        for start, stop in RANGES:
            assert_equal(table.batch(start, stop), whole[start:stop])
        for size in (1, 7, 8, 50, 1000):
            pieces = list(table.batches(size))
            assert all(len(piece) == size for piece in pieces[:-1])
            assert_equal(EventBatch.concat(pieces), whole)
        assert [repr(sorted_event(table.event(i))) for i in range(50)] == [repr(sorted_event(e)) for e in found]
        assert list(table.ids()) == [e.id for e in found]
    with Reader(events_path, "events") as reader:
        assert reader.attributes["digest"] == digest


@pytest.mark.untraced
@pytest.mark.parametrize("vocabulary", [VOCABULARY, OTHER], ids=["as it is", "encoded again"])
@pytest.mark.parametrize("in_parts", [False, True])
def test_rejected_rows_keep_their_numbers(vocabulary: Vocabulary, in_parts: bool, events_path: Path) -> None:
    found: list[Event | None] = [None if i in (0, 7, 8, 9, 31, 49) else event for i, event in enumerate(published())]
    if in_parts:
        write_parts(events_path, [found[:8], found[8:10], found[10:30], found[30:]])
    else:
        save_events(Events.of(found), events_path, VOCABULARY)
    whole = Events.of(found).encode(vocabulary)
    with EventTable(events_path, vocabulary) as table:
        for start, stop in RANGES:
            assert_equal(table.batch(start, stop), whole[start:stop])
        assert_equal(EventBatch.concat(list(table.batches(7))), whole)
        assert [table.event(i) is None for i in range(50)] == [event is None for event in found]
        assert list(table.ids()) == [event and event.id for event in found]


@pytest.mark.parametrize("vocabulary", [VOCABULARY, OTHER], ids=["as it is", "encoded again"])
@pytest.mark.parametrize(
    ("rejected", "said"),
    [
        ([3], "a rejected row has attributes|events/rejected names a row that has attributes"),
        ([7, 7], "events/rejected is not sorted, or not distinct"),
        ([-1], "events/rejected holds -1, expected at least 0"),
        ([0, 50], "events/rejected holds 50, and there are 50"),
    ],
)
def test_rejected_rows_that_lie_are_refused(
    vocabulary: Vocabulary, rejected: list[int], said: str, events_path: Path
) -> None:
    found: list[Event | None] = [None, *published()[1:]]
    save_events(Events.of(found), events_path, VOCABULARY)
    rewrite(events_path, {"events/rejected": np.array(rejected)})
    with pytest.raises(StorageError, match=said), EventTable(events_path, vocabulary) as table:
        table.batch(0, 10)


@pytest.mark.parametrize("vocabulary", [VOCABULARY, OTHER], ids=["as it is", "encoded again"])
def test_a_rejected_row_with_a_location_is_refused(vocabulary: Vocabulary, events_path: Path) -> None:
    """It has neither attributes nor an id, so that no other rule is broken."""
    found: list[Event | None] = [None, *published()[1:]]
    events = Events.of(found)
    assert events.location is not None
    events.location[0] = (1.0, 2.0)
    save_events(events, events_path, VOCABULARY)
    with (
        pytest.raises(StorageError, match="has a location"),
        EventTable(events_path, vocabulary) as table,
    ):
        table.batch(0, 10)


@pytest.mark.parametrize("vocabulary", [VOCABULARY, OTHER], ids=["as it is", "encoded again"])
def test_a_rejected_row_with_an_id_is_refused(vocabulary: Vocabulary, events_path: Path) -> None:
    events = Events.of([None, *published()[1:]])
    assert events.ids is not None
    ids = Strings.of([b"x", *list(events.ids)[1:]])
    events = replace(events, ids=ids)
    save_events(events, events_path, VOCABULARY)
    with EventTable(events_path, vocabulary) as table:
        for read in (lambda: list(table.ids()), lambda: table.event(0)):
            with pytest.raises(StorageError, match="events/rejected names a row that has an id"):
                read()


def test_short_batches_share_the_blocks_that_were_read_last(events_path: Path) -> None:
    save_events(Events.of(published()), events_path, VOCABULARY)
    with EventTable(events_path, VOCABULARY) as table:
        memory = [table.batch(*events).offsets.base for events in ((9, 12), (12, 16), (8, 16), (17, 18), (10, 11))]
        assert memory[0] is not None
        assert [each is memory[0] for each in memory] == [True, True, True, False, True]
        with pytest.raises(IndexError, match="events 0 to 51 of 50"):
            table.batch(0, 51)


def test_blocks_are_read_into_the_memory_that_an_engine_gives(events_path: Path) -> None:
    given: list[Array] = []

    def memory(n_bytes: int) -> Array:
        given.append(np.empty(n_bytes, np.uint8))
        return given[-1]

    save_events(Events.of(published()), events_path, VOCABULARY)
    with EventTable(events_path, VOCABULARY) as table:
        table.read_into(memory)
        batch = table.batch(24, 48)
        assert all(np.shares_memory(column, given[0]) for column in batch.columns)
        assert len(given) == 1


@pytest.mark.parametrize("vocabulary", [VOCABULARY, OTHER], ids=["as it is", "encoded again"])
def test_no_events(vocabulary: Vocabulary, events_path: Path) -> None:
    save_events(Events.of([]), events_path, VOCABULARY)
    with EventTable(events_path, vocabulary) as table:
        assert len(table.batch(0, 0)) == 0
        assert list(table.batches(10)) == []
        assert list(table.ids()) == []


def write_parts(path: Path, groups: Sequence[Sequence[Event | None]], vocabulary: Vocabulary = VOCABULARY) -> None:
    directory = parts_directory(path)
    directory.mkdir()
    parts = []
    for i, group in enumerate(groups):
        digest = save_events(Events.of(group), directory / f"p{i}.h5", vocabulary, "events-part")
        parts.append(FilePart(f"p{i}.h5", len(group), digest))
    write_index(path, "events", parts, event_counts(sum(map(len, groups)), vocabulary))


@pytest.mark.parametrize("vocabulary", [VOCABULARY, OTHER], ids=["as it is", "encoded again"])
def test_parts_read_as_one(vocabulary: Vocabulary, events_path: Path) -> None:
    """Parts of different sizes, an empty one, some with locations and ids and some without."""
    groups = [published(9), [], published(20, located=False, named=False), published(1), published(20, named=False)]
    write_parts(events_path, groups)
    found = [event for group in groups for event in group]
    whole = Events.of(found).encode(vocabulary)
    with EventTable(events_path, vocabulary) as table:
        assert len(table) == 50
        for start, stop in RANGES:
            assert_equal(table.batch(start, stop), whole[start:stop])
        assert_equal(EventBatch.concat(list(table.batches(6))), whole)
        assert [repr(sorted_event(table.event(i))) for i in range(50)] == [repr(sorted_event(e)) for e in found]
        assert list(table.ids()) == [e.id for e in found]


def test_offsets_beyond_two_to_the_thirty_two(events_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes begin just below 2^32 in 32-bit counting: offsets wrap in the middle of a block."""
    flat = Events.of(published())
    whole = flat.encode(VOCABULARY)
    for before_the_wrap in (0, 1, int(whole.bounds[12]), int(whole.bounds[16]), len(whole.attributes) - 1):
        start = np.uint32((2**32 - before_the_wrap) % 2**32)
        moved = EventBatch(whole.offsets + start, whole.attributes, whole.location, whole.fingerprint)
        monkeypatch.setattr(event_table, "_encoded", lambda events, vocabulary, moved=moved: moved)
        save_events(flat, events_path, VOCABULARY)
        with h5py.File(events_path) as file:
            assert file["encoded/offsets"][0] == start
        with EventTable(events_path, VOCABULARY) as table:
            for begin, end in RANGES:
                assert_equal(table.batch(begin, end), whole[begin:end])


# Damage and lies.


def place_of(path: Path, dataset: str) -> int:
    with h5py.File(path) as file:
        return int(file[dataset].id.get_offset())


@pytest.mark.parametrize("column", ["encoded/offsets", "encoded/attributes", "encoded/location"])
def test_damage_to_encoded_columns_is_refused_naming_the_block(column: str, events_path: Path) -> None:
    save_events(Events.of(published()), events_path, VOCABULARY)
    with h5py.File(events_path) as file:
        itemsize, starts = file[column].dtype.itemsize, file["encoded/block_attributes"][...]
    row = {"encoded/offsets": 20, "encoded/attributes": int(starts[2]) + 1, "encoded/location": 20 * 2}[column]
    damaged = bytearray(events_path.read_bytes())
    damaged[place_of(events_path, column) + row * itemsize] ^= 1
    events_path.write_bytes(damaged)
    whole = Events.of(published()).encode(VOCABULARY)
    with EventTable(events_path, VOCABULARY) as table:
        for start, stop in ((0, 16), (24, 50)):
            assert_equal(table.batch(start, stop), whole[start:stop])
        for start, stop in ((0, 50), (15, 17), (23, 24)):
            with pytest.raises(StorageError, match=r"encoded events 16 to 24 are damaged: CRC-32 found \w{8}, expected"):
                table.batch(start, stop)


@pytest.mark.untraced
def test_a_flipped_bit_is_refused_or_harmless(events_path: Path) -> None:
    found = published()
    save_events(Events.of(found), events_path, VOCABULARY)
    whole, raw = events_path.read_bytes(), Events.of(found)
    expected = {id(v): raw.encode(v) for v in (VOCABULARY, OTHER)}
    rng = random.Random(11)
    refused = 0
    for _ in range(150):
        damaged = bytearray(whole)
        at, bit = rng.randrange(len(whole)), rng.randrange(8)
        damaged[at] ^= 1 << bit
        events_path.write_bytes(damaged)
        for vocabulary in (VOCABULARY, OTHER):
            try:
                with EventTable(events_path, vocabulary) as table:
                    assert_equal(table.batch(0, 50), expected[id(vocabulary)])
                    kept = [table.event(i) for i in range(50)]
                    assert [event and event.id for event in kept] == [e.id for e in found]
            except StorageError:
                refused += 1
    assert refused > 100, "most of the file should matter"


def test_truncated_files_are_refused(events_path: Path) -> None:
    save_events(Events.of(published()), events_path, VOCABULARY)
    whole = events_path.read_bytes()
    for length in range(0, len(whole), 997):
        events_path.write_bytes(whole[:length])
        with pytest.raises(StorageError, match=r"events\.h5: is not a readable HDF5 file"):
            EventTable(events_path, VOCABULARY)


def rewrite(path: Path, change: dict[str, Array], drop: str = "", **attributes: int | str) -> None:
    """The event table of `published()` with some datasets or attributes replaced: sound checksums, wrong content."""
    save_events(Events.of(published()), path, VOCABULARY)
    with h5py.File(path) as file:
        arrays: dict[str, Array] = {}
        file.visititems(lambda name, item: arrays.update({name: item[...]}) if isinstance(item, h5py.Dataset) else None)
    with Writer(path, "events") as writer:
        for name, value in (event_counts(50, VOCABULARY) | attributes).items():
            if name != drop:
                writer.attribute(name, value)
        for name, array in (arrays | change).items():
            if name != drop:
                writer.array(name, array, contiguous=name.startswith("encoded/") and "block" not in name)


def test_rewriting_unchanged_is_accepted(events_path: Path) -> None:
    rewrite(events_path, {})
    with EventTable(events_path, VOCABULARY) as table:
        assert_equal(table.batch(0, 50), Events.of(published()).encode(VOCABULARY))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(
            {"encoded/offsets": np.arange(50, dtype=np.uint32)},
            "encoded/offsets has 49 rows and 1, expected 50",
            id="offsets",
        ),
        pytest.param(
            {"encoded/attributes": np.arange(9, dtype=np.uint32)}, "encoded/block_attributes does not fit", id="attributes"
        ),
        pytest.param(
            {"encoded/attributes": np.arange(9, dtype=np.uint64)}, "encoded/block_attributes does not fit", id="width"
        ),
        pytest.param({"encoded/location": np.zeros((49, 2))}, "encoded/location has 49 rows, expected 50", id="location"),
        pytest.param(
            {"encoded/block_crc32": np.zeros(3, np.uint32)}, "encoded/block_crc32 has 3 rows, expected 7", id="blocks"
        ),
    ],
)
def test_encoded_columns_that_lie_are_refused(change: dict[str, Array], said: str, events_path: Path) -> None:
    rewrite(events_path, change)
    with pytest.raises(StorageError, match=said):
        EventTable(events_path, VOCABULARY)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"events/offsets": np.arange(51)[::-1].copy()}, id="offsets"),
        pytest.param({"events/offsets": np.zeros(40, np.int64)}, id="n_events"),
        pytest.param({"events/type": np.zeros(3, np.uint8)}, id="type"),
        pytest.param({"events/name": np.full(168, 99, np.uint32)}, id="name"),
        pytest.param({"events/string": np.full(168, 99, np.uint32)}, id="string"),
        pytest.param({"events/location": np.zeros((50, 3))}, id="location"),
        pytest.param({"ids/offsets": np.zeros(9, np.int64)}, id="ids"),
    ],
)
def test_raw_columns_that_lie_are_refused(change: dict[str, Array], events_path: Path) -> None:
    rewrite(events_path, change)

    def read() -> None:
        with EventTable(events_path, OTHER) as table:
            table.batch(0, 1)

    with pytest.raises(StorageError, match=r"events\.h5: is not a valid event table: .*; compile the events again"):
        read()


@pytest.mark.parametrize("name", ["n_events", "vocabulary"])
def test_a_missing_attribute_is_refused(name: str, events_path: Path) -> None:
    rewrite(events_path, {}, drop=name)
    with pytest.raises(StorageError, match=f"is not a valid event table: there is no attribute {name}"):
        EventTable(events_path, VOCABULARY)


@pytest.mark.parametrize("name", ["encoded/attributes", "events/number", "names/offsets"])
def test_a_missing_dataset_is_refused(name: str, events_path: Path) -> None:
    rewrite(events_path, {}, drop=name)
    vocabulary = VOCABULARY if name.startswith("encoded") else OTHER

    def read() -> None:
        with EventTable(events_path, vocabulary) as table:
            table.batch(0, 50)

    with pytest.raises(StorageError, match=f"there is no dataset {name}"):
        read()


def test_an_index_whose_parts_hold_other_events_is_refused(events_path: Path) -> None:
    write_parts(events_path, [published(5), published(6)])
    with Reader(events_path, "events") as reader:
        names, digests = reader._read("parts/name"), reader._read("parts/digest")
    parts = [FilePart(n.decode(), rows, d.decode()) for n, rows, d in zip(names, (5, 6), digests, strict=True)]
    write_index(events_path, "events", parts, event_counts(12, VOCABULARY))
    with pytest.raises(StorageError, match="its parts hold 11 events, expected 12"):
        EventTable(events_path, VOCABULARY)
    (parts_directory(events_path) / "p1.h5").unlink()
    with pytest.raises(StorageError, match=r"its part .*p1\.h5 is missing"):
        EventTable(events_path, VOCABULARY)


# What the file does not have.


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_vocabulary_that_names_what_was_left_out_is_refused(in_parts: bool, tmp_path: Path) -> None:
    path, events = tmp_path / "events.h5", Events.of(published(4))
    if in_parts:
        directory = parts_directory(path)
        directory.mkdir()
        parts = []
        for name, left_out in (("a", {"c": 1}), ("b", {"c": 2, "when": 3})):  # a part says what it lacks itself
            digest = save_events(replace(events, left_out=left_out), directory / name, VOCABULARY, "events-part")
            parts.append(FilePart(name, 4, digest))
        write_index(path, "events", parts, event_counts(8, VOCABULARY))
    else:
        save_events(replace(events, left_out={"when": 3, "c": 3}), path, VOCABULARY)
    with EventTable(path, VOCABULARY) as table:
        assert table.left_out == {"c": 3, "when": 3}
    with pytest.raises(StorageError, match=r"events\.h5: was compiled without 'c', which no filter named"):
        EventTable(path, OTHER)
    with EventTable(path, Table.from_filters([make_filter("i", [["a", ">", 4]])]).vocabulary) as table:
        assert not table.encoded_for_vocabulary


def test_a_list_of_5000_elements_fits_the_page_of_the_format(tmp_path: Path) -> None:
    table = make_table([{"interface": "a", "constraints": [["tags", "any =", 4999]]}])
    table.save(tmp_path / "table.h5")
    save_events(make_events([{"tags": list(range(5000))}]), tmp_path / "events.h5", table.vocabulary)
    format_judge.events(tmp_path / "events.h5", format_judge.table(tmp_path / "table.h5").vocabulary)


@settings(max_examples=examples(25), deadline=None)
@given(subscriptions_and_events(max_filters=6, with_conditions=True))
def test_views_in_an_event_table_are_those_of_the_page_of_the_format(
    tmp_path_factory: pytest.TempPathFactory, found: tuple[list[Filter], list[Event | None]]
) -> None:
    directory, (filters, events) = tmp_path_factory.mktemp("views"), found
    table = Table.from_filters(filters)
    if table.vocabulary.asks_every_string:
        return
    table.save(directory / "table.h5")
    save_events(Events.of(events), directory / "events.h5", table.vocabulary)
    format_judge.events(directory / "events.h5", format_judge.table(directory / "table.h5").vocabulary)


def test_the_judge_of_the_format_objects_to_a_view_that_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = [
        {"interface": "a", "constraints": [["s", "suffix i", "É"], ["l", "any = i", "x"]]},
        {"interface": "b", "constraints": [["ip", "in net", "10.0.0.0/8"], ["ip", "in net", "fe80::/10"]]},
        {"interface": "c", "constraints": [["t", "between", ["2026-01-01", "2026-02-01T00:00:00.000000001Z"]]]},
    ]
    events = make_events([{"s": "CAFÉ", "l": ["X", "y"], "ip": ["10.1.2.3", "fe80::1"], "t": "2026-01-05"}])
    table = make_table(rows)
    table.save(tmp_path / "table.h5")
    vocabulary = format_judge.table(tmp_path / "table.h5").vocabulary
    save_events(events, tmp_path / "events.h5", table.vocabulary)
    format_judge.events(tmp_path / "events.h5", vocabulary)
    for letter in b"fit":
        left = {each: view for each, view in format_judge.VIEWS.items() if each != bytes([letter])}
        with monkeypatch.context() as patch:
            patch.setattr(format_judge, "VIEWS", left)
            with pytest.raises(format_judge.Objection, match="the encoded columns say something else"):
                format_judge.events(tmp_path / "events.h5", vocabulary)
