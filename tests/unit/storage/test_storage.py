"""HDF5 storage: atomic writing, verified reading."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpi_match.arrays.csr import Array
from mpi_match.storage import FileChanged, FilePart, Reader, StorageError, Writer, kind_of_file, parts_directory, write_index
from mpi_match.storage.large_dataset import read_large

ARRAYS: dict[str, Array] = {
    "a/bytes": np.arange(7, dtype=np.uint8),
    "a/short": np.arange(9, dtype=np.uint16),
    "a/words": np.arange(300_000, dtype=np.uint32),
    "a/offsets": np.arange(5),
    "doubles": np.array([[1.5, -0.0, np.inf], [np.nan, 0.1, 5e-324]]),
    "empty": np.zeros((0, 3)),
}
ATTRIBUTES: dict[str, Any] = {"count": 7, "negative": -3, "ratio": 0.1, "label": "desk"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.h5"


def write(path: Path, kind: str = "table") -> str:
    with Writer(path, kind) as writer:
        for name, value in ATTRIBUTES.items():
            writer.attribute(name, value)
        for name, array in ARRAYS.items():
            writer.array(name, array, contiguous=name == "a/words")
    return writer.digest


def left_in(directory: Path) -> list[str]:
    return [item.name for item in directory.iterdir()]


def edited(path: Path, change: Callable[[h5py.File], None]) -> Path:
    """The file, changed by another tool."""
    with h5py.File(path, "r+") as file:
        change(file)
    return path


# What is written is what is read.


def test_arrays_and_attributes_come_back(path: Path) -> None:
    digest = write(path)
    with Reader(path, "table") as reader:
        assert ATTRIBUTES.items() <= reader.attributes.items()
        assert reader.attributes["digest"] == digest
        assert reader.rows is None
        for name, array in ARRAYS.items():
            found = reader.array(name)
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert found.tobytes() == array.tobytes()
        assert "a/words" in reader
        assert "a/none" not in reader
    assert left_in(path.parent) == [path.name]


def test_ranges_of_contiguous_arrays_are_read(path: Path) -> None:
    write(path)
    words = ARRAYS["a/words"]
    with Reader(path, "table") as reader:
        rows = reader.stored_rows("a/words")
        memory = np.empty(words.nbytes, np.uint8)
        for start, stop in ((0, len(words)), (1, 2), (2, 2)):
            found = rows.array(stop - start, memory)
            rows.read(start, found)
            assert np.array_equal(found, words[start:stop])
        assert reader.stored_rows("empty").array(0, memory).shape == (0, 3)
        with pytest.raises(StorageError, match="'a/short' is not contiguous"):
            reader.stored_rows("a/short")
        os.truncate(path, rows.at + 1)
        with pytest.raises(FileChanged, match=r"was truncated while it was read: it ends at byte"):
            rows.read(0, memory)


def test_files_are_opened_without_locks(path: Path) -> None:
    """Some file systems have none.  Here another open file holds a lock, which HDF5 would ask for."""
    write(path)
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with Reader(path, "table") as reader:
            assert np.array_equal(reader.array("a/words"), ARRAYS["a/words"])
        assert kind_of_file(path) == "table"


def test_files_are_written_where_nothing_can_be_locked(path: Path) -> None:
    """HDF5 would hold a lock on the file that it writes."""
    with Writer(path, "table") as writer:
        writer.array("a", np.arange(3))
        (temporary,) = path.parent.glob(".*.writing")
        with temporary.open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_checksums_are_what_the_format_page_says(path: Path) -> None:
    """Computed here from docs/format.md alone, without the package."""
    write(path)
    lines, attributes = [], []
    with h5py.File(path, "r") as file:

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                crc = zlib.crc32(item[...].tobytes())
                assert item.attrs["crc32"] == crc
                assert item.attrs["crc32"].dtype == np.uint32
                lines.append(f"{name} {item.dtype.str} {item.shape} {crc:08x}")

        file.visititems(visit)
        for name, value in file.attrs.items():
            if name not in ("digest", "complete"):
                attributes.append(f"@{name}={value.decode() if isinstance(value, bytes) else value.item()}")
        text = "\n".join([*sorted(lines), *sorted(attributes)])
        assert file.attrs["digest"].decode() == hashlib.sha256(text.encode()).hexdigest()
        assert file.attrs["complete"].dtype == np.uint8
        assert file.attrs["format_version"].dtype == np.int64


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_match.storage.column.CHUNK_BYTES", 64)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 32, 100])
def test_columns_do_not_show_how_they_were_appended(n: int, tmp_path: Path, small_chunks: None) -> None:
    values = np.arange(n, dtype=np.uint32)
    files = []
    for step in (1, 3, 16, 1000):
        file = tmp_path / f"{step}.h5"
        with Writer(file, "matches") as writer:
            column = writer.column("c", np.dtype(np.uint32))
            for at in range(0, n, step):
                column.append(values[at : at + step])
        files.append(file.read_bytes())
        with Reader(file, "matches") as reader:
            assert np.array_equal(reader.array("c"), values)
    assert len(set(files)) == 1


@settings(max_examples=12)
@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=4))
def test_offsets_of_parts_are_joined(lists: list[list[int]]) -> None:
    """Each part holds one list of lists as offsets and items; the index reads as all of them."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "index.h5"
        parts_directory(path).mkdir()
        parts = []
        for i, sizes in enumerate(lists):
            with Writer(parts_directory(path) / f"p{i}.h5", "table-part") as writer:
                writer.attribute("rows", len(sizes))
                writer.array("x/offsets", np.cumsum([0, *sizes]))
                writer.array("x/items", np.arange(sum(sizes)))
            parts.append(FilePart(f"p{i}.h5", len(sizes), writer.digest))
        write_index(path, "table", parts, {"n": len(lists)})
        with Reader(path, "table") as reader:
            flat = [size for sizes in lists for size in sizes]
            assert reader.array("x/offsets").tolist() == np.cumsum([0, *flat]).tolist()
            assert reader.array("x/items").tolist() == [i for sizes in lists for i in range(sum(sizes))]
            assert reader.rows == [len(sizes) for sizes in lists]


def test_kind_of_file(path: Path, tmp_path: Path) -> None:
    write(path, "events")
    assert kind_of_file(path) == "events"
    assert kind_of_file(tmp_path / "none") is None
    (tmp_path / "text").write_text("no HDF5")
    assert kind_of_file(tmp_path / "text") is None
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file.attrs["magic"] = "something else"
    assert kind_of_file(tmp_path / "foreign.h5") is None


@pytest.mark.parametrize("version", [2, 3])
def test_files_of_each_version_that_is_known_are_read(version: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_match.storage.writer.FORMAT_VERSION", version)
    write(path)
    with Reader(path, "table") as reader:
        assert reader.attributes["format_version"] == version
        for name, array in ARRAYS.items():
            assert reader.array(name).tobytes() == array.tobytes()


# What is refused.


def set_attribute(name: str, value: object) -> Callable[[h5py.File], None]:
    return lambda file: file.attrs.__setitem__(name, value)


def add_dataset(file: h5py.File) -> None:
    file.create_dataset("more", data=np.arange(3)).attrs["crc32"] = np.uint32(0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(
            set_attribute("magic", np.bytes_("other")),
            "not a file of mpi-match: magic found 'other', expected 'mpi-match'",
            id="magic",
        ),
        pytest.param(lambda file: file.attrs.__delitem__("magic"), "magic found None, expected 'mpi-match'", id="no magic"),
        pytest.param(
            set_attribute("format_version", 99), "format_version found 99, expected 2 or 3; compile it again", id="version"
        ),
        pytest.param(
            lambda file: file.attrs.__delitem__("format_version"),
            "format_version found None, expected 2 or 3",
            id="no version",
        ),
        pytest.param(
            set_attribute("kind", np.bytes_("events")),
            "holds 'events', expected 'table'; were two files exchanged",
            id="kind",
        ),
        pytest.param(lambda file: file.attrs.__delitem__("complete"), "was not written to its end", id="no complete"),
        pytest.param(set_attribute("complete", np.uint8(0)), "was not written to its end", id="complete 0"),
        pytest.param(set_attribute("count", 8), "is damaged: digest found", id="count"),
        pytest.param(set_attribute("digest", np.bytes_("0" * 64)), f"expected {'0' * 64}", id="digest"),
        pytest.param(
            lambda file: file["a/short"].attrs.__delitem__("crc32"), "'a/short' has not the attribute crc32", id="no crc32"
        ),
        pytest.param(
            lambda file: file["a/short"].attrs.__setitem__("crc32", np.uint32(1)), "is damaged: digest found", id="crc32"
        ),
        pytest.param(lambda file: file.__delitem__("a/short"), "is damaged: digest found", id="dataset gone"),
        pytest.param(add_dataset, "is damaged: digest found", id="dataset more"),
    ],
)
def test_a_changed_file_is_refused(change: Callable[[h5py.File], None], said: str, path: Path) -> None:
    write(path)
    with pytest.raises(StorageError, match=said) as caught:
        Reader(edited(path, change), "table")
    assert str(path) in str(caught.value)


def test_changed_values_are_refused_when_read(path: Path) -> None:
    write(path)

    def change(file: h5py.File) -> None:
        file["a/words"][1000] = 1

    with Reader(edited(path, change), "table") as reader:
        assert np.array_equal(reader.array("a/short"), ARRAYS["a/short"])
        with pytest.raises(StorageError, match=r"'a/words' is damaged: CRC-32 found [0-9a-f]{8}, expected [0-9a-f]{8}"):
            reader.array("a/words")


def test_large_arrays_are_read_by_threads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_match.storage.reader.LARGE_BYTES", 1)
    seen = []

    def read(*args: Any) -> int | None:
        seen.append(read_large(*args))
        return seen[-1]

    monkeypatch.setattr("mpi_match.storage.reader.read_large", read)
    values = {"long": np.arange(700_001, dtype=np.uint32), "pairs": np.arange(300_000.0).reshape(-1, 2), "one": np.arange(1)}
    with Writer(path, "table") as writer:
        for name, array in values.items():
            writer.array(name, array)
        writer.array("flat", values["long"], contiguous=True)
    with Reader(path, "table") as reader:
        for name, array in values.items():
            assert np.array_equal(reader.array(name), array)
        assert seen == [zlib.crc32(array.tobytes()) for array in values.values()]
        assert np.array_equal(reader.array("flat"), values["long"])
        assert seen[-1] is None, "not in chunks"
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(np.uint32(600_000).tobytes() + np.uint32(600_001).tobytes())] ^= 1
    path.write_bytes(damaged)
    with Reader(path, "table") as reader, pytest.raises(StorageError, match=r"'long' is damaged: CRC-32 found"):
        reader.array("long")


def test_a_group_is_no_array_and_an_absent_one_is_named(path: Path) -> None:
    write(path)
    with Reader(path, "table") as reader:
        with pytest.raises(StorageError, match="has no dataset 'a', which a file of table must have"):
            reader.array("a")
        with pytest.raises(StorageError, match="has no dataset 'b/c', which a file of table must have"):
            reader.array("b/c")
        with pytest.raises(StorageError, match="has no attribute 'n_events'"):
            reader.attribute("n_events")


def test_what_is_no_file_of_ours_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.h5"
    text.write_text("interface,constraint\n" * 100)
    for path in (text, tmp_path):
        with pytest.raises(StorageError, match="is not a readable HDF5 file"):
            Reader(path, "table")


def test_reserved_attributes_cannot_be_set(path: Path) -> None:
    with Writer(path, "table") as writer, pytest.raises(ValueError, match="'digest' is written by the storage layer"):
        writer.attribute("digest", 1)


# All or nothing.


def write_half(path: Path, error: BaseException) -> None:
    with Writer(path, "table") as writer:
        writer.array("a", np.arange(10))
        writer.column("c", np.dtype(np.uint8)).append(np.zeros(3_000_000, np.uint8))
        raise error


def test_a_failed_write_leaves_nothing(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_half(path, KeyboardInterrupt())
    assert left_in(path.parent) == []


def test_a_failed_write_leaves_the_earlier_file(path: Path) -> None:
    write(path)
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError):
        write_half(path, ZeroDivisionError())
    assert path.read_bytes() == before
    assert left_in(path.parent) == [path.name]


def test_a_killed_writer_leaves_nothing_under_the_final_name(path: Path, repository: Path) -> None:
    script = """
import os, signal, sys
import numpy as np
from mpi_match.storage import Writer
with Writer(sys.argv[1], "table") as writer:
    writer.array("a", np.arange(10))
    writer._file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script, str(path)], cwd=repository, check=False)
    assert done.returncode == -9
    assert not path.exists()
    for left in path.parent.iterdir():
        with pytest.raises(StorageError):
            Reader(left, "table")


def test_too_little_room_is_seen_before_writing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 100_000

    monkeypatch.setattr("mpi_match.storage.disk.shutil.disk_usage", lambda _: Usage)
    said = "disk full: 1,200,000 bytes to write, 100,000 free; make room or write elsewhere"
    with pytest.raises(StorageError, match=said):
        write(path)
    with pytest.raises(StorageError, match="disk full"), Writer(path, "matches") as writer:
        writer.column("c", np.dtype(np.uint32)).append(np.zeros(300_000, np.uint32))
    assert left_in(path.parent) == []


FULL = """
import resource, signal, sys
import numpy as np
from mpi_match.storage import StorageError, Writer

def small(writer): writer.array("a/b", np.arange(500))
def chunked(writer): writer.array("a/b", np.arange(30_000))
def contiguous(writer): writer.array("a/b", np.arange(30_000), contiguous=True)
def column(writer): writer.column("a/b", np.dtype(np.int64)).append(np.arange(30_000))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for write in (small, chunked, contiguous, column):
    for limit in (0, 100, 1000, 3000, 4400, 100_000, 239_000):
        if write is small and limit > 5000:
            continue
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            with Writer(sys.argv[1], "table") as writer:
                write(writer)
        except StorageError as error:
            print(str(error).lower())
        else:
            print("written", write.__name__, limit)
"""


def test_a_disk_that_fills_up_is_one_clear_error(path: Path, repository: Path) -> None:
    """A limit on file sizes fails the same calls of the system as a full disk, and needs no privileges.

    In a process of its own: HDF5 may crash when it cannot write, and the point is that it does not.
    """
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], cwd=repository, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{path}: cannot be written: file too large".lower()] * 26
    assert left_in(path.parent) == []


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"the directory .*nowhere does not exist; create it first"):
        write(tmp_path / "nowhere" / "file.h5")
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageError, match=r"taken: cannot be written: .*directory"):
        write(tmp_path / "taken")
    with pytest.raises(StorageError, match=r"/proc/mpi-match\.h5: cannot be written"):
        write(Path("/proc/mpi-match.h5"))
    assert left_in(tmp_path) == ["taken"]
