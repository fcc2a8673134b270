"""Turns JSON lines into events on a GPU (`line_kernels`): the bytes are uploaded, and the codes stay there.

    GpuLineScanner   the tables of a vocabulary on a GPU          .scan(data, buffers) -> GpuRows
    ScanBuffers      memory for the rows of one block of lines, reused
    GpuRows          the rows of a block, on the GPU; rows that the scanner has flagged have no attributes

The capacity for rows and attributes is estimated from the number of bytes.  If it was too small, the bytes are scanned
again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import compile_once
from mpi_match.compute.compile_parts import Part
from mpi_match.compute.parallel import copy
from mpi_match.compute.words import WORD_BYTES
from mpi_match.events.batch import EventBatch
from mpi_match.gpu import line_kernels
from mpi_match.gpu.deferred_texts import (
    READ_BLOCK,
    TEXT_GROUPS,
    TextTables,
    join_rows_kernel,
    read_texts_kernel,
    thread_words,
)
from mpi_match.gpu.kernels import Argument, DeviceArray, Gpu, Mark, PinnedBuffer, open_gpu
from mpi_match.gpu.line_kernels import (
    ARENA_ROOM,
    ARENA_USED,
    ATTRIBUTES_FOUND,
    DATA_BYTES,
    ENTRY_BINS,
    FLAGGED_ROWS,
    IDENTIFIED_ROWS,
    LENGTH_BINS,
    LIST_WORDS,
    LOCATED_ROWS,
    N_STATE,
    NOT_PLAIN,
    ROW_ROOM,
    ROWS_FOUND,
    TEXT_ROOM,
    TEXT_WORDS,
    TEXTS_FOUND,
    WIDEST_ROW,
    JudgedArrays,
    PlacedRows,
    RowArrays,
    ScanTables,
)
from mpi_match.ingest.codes.atoms import NO_ATOM
from mpi_match.ingest.codes.code_tables import JOINED_ROOT, NAME_BYTES, NO_ENTRY, SCALARS, hashed
from mpi_match.ingest.codes.element_atoms import ELEMENT_RECORDS, IF_FALSE, NUMBER_EXTREMES, RECORD_WORDS
from mpi_match.ingest.files.row_ends import STRETCH_BYTES
from mpi_match.ingest.json.event_scanner import scanned_ids
from mpi_match.ingest.json.flat_gpu import PlainTables, plain_arrays
from mpi_match.ingest.json.line_judge import JudgedLines
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.table.vocabulary import Vocabulary

SCAN_BLOCKS, GATHER_BLOCKS = 6, 12
"""Blocks of `scan_rows`, and of `gather`, that run at once on a multiprocessor, limited by their registers."""
ROW_BYTES, ATTRIBUTE_BYTES = 24, 8
"""Bytes of input per row, and per attribute, for which the initial capacity is sufficient."""
TEXT_BYTES = 48
"""Bytes of input per deferred text for which the initial capacity is sufficient."""
MEMORY_SHARE = 256
"""One part in this many of a GPU's memory is the most for the threads of a kernel that read deferred texts of a block."""
SCAN_STEPS = ("copy", "rows", "scan", "order")
NOT_TRIED = 15
"""Blocks of lines that skip `scan_plain` after a block most of whose lines were not plain."""
MOST_SCANNED_BYTES = 2**32 - 2**16
"""Most bytes of a block of lines: positions are 32-bit numbers."""


class GpuRows(NamedTuple):
    """Rows on the GPU, valid until their buffers are reused.

    offsets, attributes   u32[n_rows + 1] and packed, as in an `EventBatch`
    location              f64[2 * n_rows]; None if no row has one
    id_bounds             i64[2 * n_rows]: bounds of each row's id in the bytes, zeros for a row without one; None if no row
                          has one
    widest                attributes of the widest row
    deferred              tells whether texts were deferred
    flagged, bounds       u32[m], ascending: the flagged rows; i64[m, 2]: their bytes, from the end of the row before
    steps_s               device time, in seconds, of copying the bytes, finding rows, scanning them, and ordering them
    """

    n_rows: int
    offsets: DeviceArray
    attributes: DeviceArray
    location: DeviceArray | None
    id_bounds: DeviceArray | None
    widest: int
    deferred: bool
    flagged: Array
    bounds: Array
    steps_s: dict[str, float]


class ScanBuffers:
    """Memory for one block of lines and its rows, and their stream; `unpinned` is the same stream for host memory that is
    not pinned, and those `beside` it read the groups of texts after the first.

    Launches keep Python's lock: otherwise threads that read and scan would take it from one another at each launch.
    """

    def __init__(self, gpu: Gpu, packed: np.dtype) -> None:
        self.stream = gpu.stream(keeps_lock=True)
        self.unpinned = self.stream.releasing_lock()
        self.marks = [Mark() for _ in range(len(SCAN_STEPS) + 1)]
        self.staged = PinnedBuffer(np.uint8)
        self.state, self.host_state = gpu.buffer(np.int64), PinnedBuffer(np.int64)
        self.words, self.found = gpu.buffer(np.uint64), gpu.buffer(np.uint64)
        self.byte_sums, self.row_sums = gpu.buffer(np.int64), gpu.buffer(np.int64)
        self.ends, self.counts, self.sources = (gpu.buffer(np.uint32) for _ in range(3))
        self.listed, self.places, self.flagged = (gpu.buffer(np.uint32) for _ in range(3))
        self.location, self.ids = gpu.buffer(np.float64), gpu.buffer(np.int64)
        self.arena, self.offsets, self.attributes = gpu.buffer(packed), gpu.buffer(np.uint32), gpu.buffer(packed)
        self.judged = gpu.buffer(np.uint32), gpu.buffer(np.uint32), gpu.buffer(packed), gpu.buffer(np.float64)
        self.more_offsets, self.more_attributes = gpu.buffer(np.uint32), gpu.buffer(packed)
        self.row_texts, self.order = gpu.buffer(np.uint32), gpu.buffer(np.uint32)
        self.texts, self.bins, self.row_bins, self.lists = (gpu.buffer(np.int64) for _ in range(4))
        self.beside = [gpu.stream(keeps_lock=True) for _ in TEXT_GROUPS[1:]]
        self.in_order, self.are_read = Mark(), Mark()
        self._text_memory = [gpu.buffer(np.int64) for _ in TEXT_GROUPS]
        self._n_readers = [0] * len(TEXT_GROUPS)

    def text_memory(self, which: int, n_threads: int) -> DeviceArray:
        """Memory for the threads that read deferred texts of a group; it is 0 at first."""
        memory = self._text_memory[which].array(n_threads * thread_words(TEXT_GROUPS[which]) + 1)
        if n_threads > self._n_readers[which]:
            self.stream.zero(memory)
            self._n_readers[which] = n_threads
        return memory


class GpuLineScanner:
    """Scans lines into codes of a vocabulary.  Any number of threads may scan, each with its own buffers.

    Unless `tries_plain`, `scan_plain` is not used.
    """

    def __init__(self, gpu: Gpu, vocabulary: Vocabulary, form: EventForm) -> None:
        self._fingerprint = vocabulary.fingerprint
        self._gpu, self._packed = gpu, np.dtype(vocabulary.packed_dtype)
        self._located, self._has_ids = form.location is not None, form.id is not None
        tables = _of_gpu(hashed(vocabulary, form).arrays)
        self._arrays, self._tables = _uploaded(gpu, tables)
        arrays, code_bits = plain_arrays(tables)
        self._plain_arrays = [gpu.upload(array) for array in arrays]
        names, codes, keys = (array.address for array in self._plain_arrays)
        self._plain = PlainTables(names, codes, keys, len(arrays[0]) - 1, code_bits)
        self.tries_plain, self._not_tried, self.defers = True, 0, False
        self._may_defer, self._text_bytes = may_defer(tables), float(TEXT_BYTES)
        packed = self._packed.name
        self._scan_rows = line_kernels.scan_rows_kernel(packed, self._located, self._has_ids)
        self._gather = line_kernels.gather_kernel(packed)
        for kernel in (  # before any line is read, since compiling takes longer than matching many files
            line_kernels.count_rows_kernel,
            line_kernels.write_rows_kernel,
            *(line_kernels.scan_plain_kernel(packed, n_stage) for n_stage in line_kernels.PLAIN_STAGES),
            self._gather,
            line_kernels.insert_kernel(packed),
            self._scan_rows,
        ):
            kernel.load()
        self._n_blocks, self._n_gather = (gpu.info.n_multiprocessors * n for n in (SCAN_BLOCKS, GATHER_BLOCKS))
        self._rooms, self._row_bytes = (1, 1), float(ROW_BYTES)
        self._n_stage = line_kernels.PLAIN_STAGES[-1]

    def buffers(self) -> ScanBuffers:
        """Allocate buffers for `scan`."""
        return ScanBuffers(self._gpu, self._packed)

    def scan(self, data: Array, buffers: ScanBuffers) -> GpuRows:
        """The rows of lines, u8, each with its line feed.  Raises ValueError for more than MOST_SCANNED_BYTES."""
        if len(data) > MOST_SCANNED_BYTES:
            raise ValueError(f"{len(data):,} bytes of lines are more than {MOST_SCANNED_BYTES:,}")
        buffers.marks[0].record(buffers.stream)
        self._copy_in(data, buffers)
        defers, (row_room, arena_room) = self.defers, self._rooms
        row_room, arena_room = max(row_room, len(data) // ROW_BYTES), max(arena_room, len(data) // ATTRIBUTE_BYTES)
        while True:
            is_tried = self.tries_plain and not defers and self._not_tried == 0
            rooms = (row_room, arena_room, int(len(data) / self._text_bytes) + 1 if defers else 0)
            state = self._launch(len(data), rooms, buffers, is_tried)
            n_texts = state[TEXTS_FOUND]
            if state[ROWS_FOUND] <= row_room and state[ARENA_USED] <= arena_room and n_texts <= state[TEXT_ROOM]:
                self._rooms, self._row_bytes = (row_room, arena_room), (len(data) + 1) / (state[ROWS_FOUND] + 1)
                self._n_stage = _stage_for(self._row_bytes)
                if is_tried:
                    self._not_tried = NOT_TRIED if 2 * state[NOT_PLAIN] > state[ROWS_FOUND] else 0
                else:
                    self._not_tried = max(self._not_tried - 1, 0)
                return self._rows(state, buffers)
            row_room, arena_room = max(row_room, state[ROWS_FOUND]), max(arena_room, state[ARENA_USED])
            self._text_bytes = min(self._text_bytes, max(len(data) / max(n_texts, 1) * 7 / 8, 1.0))

    def defer_texts(self) -> bool:
        """Leave texts that are read by automata to threads of their own, from now on.  Returns False if that would not be
        right: what is least among the elements of a list takes one thread."""
        if self.defers or not self._may_defer:
            return self.defers
        packed = self._packed.name
        for kernel in (
            line_kernels.bin_rows_kernel,
            line_kernels.sum_bins_kernel,
            line_kernels.order_rows_kernel,
            line_kernels.order_texts_kernel,
            read_texts_kernel(packed),
            join_rows_kernel(packed),
        ):
            kernel.load()
        self.defers = True
        return True

    def _readers_of(self, n_bytes: int) -> int:
        """The most threads with so many bytes each, for one block of lines."""
        return self._gpu.info.memory_bytes // MEMORY_SHARE // max(n_bytes, 1)

    def _order_rows(self, state: DeviceArray, rows: RowArrays, row_sums: DeviceArray, buffers: ScanBuffers) -> None:
        """Launch the kernels that list all rows."""
        bins, stream, block = buffers.row_bins.array(line_kernels.ROW_BINS), buffers.stream, line_kernels.LINE_BLOCK
        stream.zero(bins)
        line_kernels.bin_rows_kernel.bind((self._n_gather,), block, [state, rows, bins])(stream)
        line_kernels.sum_bins_kernel.bind((1,), line_kernels.ROW_THREADS, [bins])(stream)
        line_kernels.order_rows_kernel.bind((self._n_gather,), block, [state, rows, row_sums, bins])(stream)

    def _read_texts(self, data: int, given: ScanTables, arrays: tuple[Any, ...], buffers: ScanBuffers) -> None:
        """Launch the kernels for deferred texts."""
        texts, bins, (state, rows, row_sums, arena) = given.texts, given.bins, arrays
        n_texts = texts.size // TEXT_WORDS
        order = buffers.order.array(n_texts)
        block, packed = line_kernels.LINE_BLOCK, self._packed.name
        line_kernels.sum_bins_kernel.bind((1,), line_kernels.ROW_THREADS, [bins])(buffers.stream)
        line_kernels.order_texts_kernel.bind((self._n_gather,), block, [texts, state, bins, order])(buffers.stream)
        for which, stream in reversed([*enumerate((buffers.stream, *buffers.beside))]):
            group = TEXT_GROUPS[which]
            n_blocks = -(-min(group.threads, self._readers_of(8 * thread_words(group)), n_texts) // READ_BLOCK)
            memory = buffers.text_memory(which, n_blocks * READ_BLOCK)
            tables = TextTables(self._tables.address, texts, texts.address, order, bins, memory, memory.address)
            if stream is not buffers.stream:
                stream.wait(buffers.in_order.record(buffers.stream))
            read_texts_kernel(packed).bind((n_blocks,), READ_BLOCK, [data, tables, group, state, arena])(stream)
        for stream in buffers.beside:
            buffers.stream.wait(buffers.are_read.record(stream))
        join_rows_kernel(packed).bind((self._n_gather,), block, [texts, state, rows, row_sums, arena])(buffers.stream)

    def with_judged(self, rows: GpuRows, judged: EventBatch, buffers: ScanBuffers) -> GpuRows:
        """The rows, with the events `judged` in place of the flagged ones."""
        stream, n, n_attributes = buffers.unpinned, rows.n_rows, rows.attributes.size + judged.n_attributes
        offsets, attributes = buffers.more_offsets.array(n + 1), buffers.more_attributes.array(max(n_attributes, 1))
        location = buffers.location.array(2 * n if self._located else 1)
        where = judged.location if judged.location is not None else np.full((len(judged), 2), np.nan)
        arrays = (rows.flagged, judged.offsets, judged.attributes, where.reshape(-1) if self._located else where[0, :1])
        uploaded = JudgedArrays(*(to.array(max(len(array), 1)) for to, array in zip(buffers.judged, arrays, strict=True)))
        for to, array in zip(uploaded, arrays, strict=True):
            stream.copy_in(to, array)
        block = line_kernels.LINE_BLOCK
        insert = line_kernels.insert_kernel(self._packed.name)
        before = PlacedRows(rows.offsets, rows.attributes, location)
        to = PlacedRows(offsets, attributes, location)
        insert.bind((-(-n // block),), block, [before, uploaded, n, int(self._located), to])(stream)
        stream.synchronize()
        return rows._replace(
            offsets=offsets,
            attributes=attributes.part(0, n_attributes),
            location=location if rows.location is not None or judged.location is not None else None,
            widest=max(rows.widest, judged.widest),
        )

    def ids(self, rows: GpuRows, data: Array, judged: JudgedLines, buffers: ScanBuffers) -> Strings:
        """The ids of the rows of `data`, empty for a row without one; those of flagged rows are in `judged`."""
        bounds = np.zeros((rows.n_rows, 2), np.int64)
        if rows.id_bounds is not None:
            buffers.unpinned.copy_out(bounds, rows.id_bounds)
            buffers.unpinned.synchronize()
        return scanned_ids(data, [(bounds, np.zeros(0, np.uint8))], judged)

    def fetched(self, rows: GpuRows, buffers: ScanBuffers) -> EventBatch:
        """The rows as a batch on the host."""
        offsets, attributes = np.empty(rows.n_rows + 1, np.uint32), np.empty(rows.attributes.size, self._packed)
        location = None if rows.location is None else np.empty((rows.n_rows, 2))
        buffers.unpinned.copy_out(offsets, rows.offsets)
        buffers.unpinned.copy_out(attributes, rows.attributes)
        if location is not None and rows.location is not None:
            buffers.unpinned.copy_out(location, rows.location)
        buffers.unpinned.synchronize()
        return EventBatch(offsets, attributes, location, self._fingerprint)

    def _copy_in(self, data: Array, buffers: ScanBuffers) -> None:
        n_words, last = _words_of(len(data)), STRETCH_BYTES // 8
        words = buffers.words.array(n_words)
        if not self._gpu.pinned_regions.holds(data):
            staged = buffers.staged.array(len(data))
            copy(staged, data)
            data = staged
        begin = max(n_words - 2 * last, 0)  # stretches are read whole, also beyond the last byte
        buffers.stream.zero(words.part(begin, n_words))
        buffers.stream.copy_in(words.viewed(np.uint8), data)

    def _launch(self, n_bytes: int, rooms: tuple[int, int, int], buffers: ScanBuffers, plain: bool) -> list[int]:
        """Run all kernels and return the state; with `plain`, `scan_plain` runs first.

        rooms   the capacity in rows, attributes, and deferred texts; the last is 0 if none are deferred
        """
        stream, (row_room, arena_room, text_room) = buffers.stream, rooms
        host_state, state = buffers.host_state.array(N_STATE), buffers.state.array(N_STATE)
        host_state[:] = 0
        host_state[[DATA_BYTES, ROW_ROOM, ARENA_ROOM, TEXT_ROOM]] = n_bytes, *rooms
        stream.copy_in(state, host_state)
        words, arena = buffers.words.array(_words_of(n_bytes)), buffers.arena.array(arena_room)
        rows = RowArrays(
            ends=buffers.ends.array(row_room),
            counts=buffers.counts.array(row_room),
            sources=buffers.sources.array(-(-row_room // line_kernels.LINE_BLOCK)),
            listed=buffers.listed.array(row_room if plain or text_room else 1),
            places=buffers.places.array(row_room if plain or text_room else 1),
            texts=buffers.row_texts.array(row_room if text_room else 1),
            flagged=buffers.flagged.array(3 * row_room),
            location=buffers.location.array(2 * row_room if self._located else 1),
            ids=buffers.ids.array(2 * row_room if self._has_ids else 1),
        )
        block, threads = line_kernels.LINE_BLOCK, line_kernels.ROW_THREADS
        n_stretches = -(-n_bytes // STRETCH_BYTES)
        n_blocks = -(-n_stretches // threads)
        found, byte_sums = buffers.found.array(max(n_stretches, 1)), buffers.byte_sums.array(max(n_blocks, 1))
        row_sums = buffers.row_sums.array(-(-row_room // block))
        offsets, attributes = buffers.offsets.array(row_room + 1), buffers.attributes.array(arena_room)
        marks = iter(buffers.marks[1:])
        next(marks).record(stream)
        line_kernels.count_rows_kernel.bind((n_blocks,), threads, [words.address, state, found, byte_sums])(stream)
        line_kernels.write_rows_kernel.bind((n_blocks,), threads, [state, found, byte_sums, rows.ends])(stream)
        next(marks).record(stream)
        if plain:
            n_expected = max(int(n_bytes / self._row_bytes / block), 1)
            scan_plain = line_kernels.scan_plain_kernel(self._packed.name, self._n_stage)
            scan_plain.bind((n_expected,), block, [words, self._plain, state, rows, row_sums, arena])(stream)
        n_blocks, bins = self._n_blocks, buffers.bins.array(LENGTH_BINS * ENTRY_BINS)
        given = ScanTables(self._tables.address, buffers.lists.array(1), 0, buffers.texts.array(1), bins)
        if text_room:
            n_rows = int(n_bytes / self._row_bytes * 9 / 8)
            n_blocks = min(n_blocks, max(min(n_rows, self._readers_of(8 * LIST_WORDS)) // block, 1))
            texts = buffers.texts.array(text_room * TEXT_WORDS)
            stream.zero(bins)
            lists = buffers.lists.array(n_blocks * block * LIST_WORDS)
            given = given._replace(lists=lists, list_address=lists.address, texts=texts)
            self._order_rows(state, rows, row_sums, buffers)
        arguments: list[Argument] = [words.address, words, given, int(plain or text_room > 0), state, rows, row_sums, arena]
        self._scan_rows.bind((n_blocks,), block, arguments)(stream)
        if text_room:
            self._read_texts(words.address, given, (state, rows, row_sums, arena), buffers)
        next(marks).record(stream)
        self._gather.bind((self._n_gather,), block, [state, rows, row_sums, arena, offsets, attributes])(stream)
        next(marks).record(stream)
        stream.copy_out(host_state, state)
        stream.synchronize()
        return [int(word) for word in host_state]

    def _rows(self, state: list[int], buffers: ScanBuffers) -> GpuRows:
        n, n_attributes, n_flagged = state[ROWS_FOUND], state[ATTRIBUTES_FOUND], state[FLAGGED_ROWS]
        flagged, bounds = self._flagged(n_flagged, buffers)
        return GpuRows(
            n,
            buffers.offsets.array(n + 1),
            buffers.attributes.array(n_attributes),
            buffers.location.array(2 * n) if state[LOCATED_ROWS] else None,
            buffers.ids.array(2 * n) if state[IDENTIFIED_ROWS] else None,
            state[WIDEST_ROW],
            state[TEXT_ROOM] > 0,
            flagged,
            bounds,
            {
                step: ended.seconds_since(began)
                for step, began, ended in zip(SCAN_STEPS, buffers.marks, buffers.marks[1:], strict=False)
            },
        )

    def _flagged(self, n_flagged: int, buffers: ScanBuffers) -> tuple[Array, Array]:
        found = np.empty((n_flagged, 3), np.uint32)
        if n_flagged:
            buffers.unpinned.copy_out(found, buffers.flagged.array(3 * n_flagged))
            buffers.unpinned.synchronize()
            found = found[np.argsort(found[:, 0])]
        return np.ascontiguousarray(found[:, 0]), found[:, 1:].astype(np.int64)


def scan_rows_part(packed: str, form: EventForm) -> Part:
    """The kernel that takes longest to compile, for attributes of dtype `packed` and lines of this form."""
    variant = f"{packed},{int(form.location is not None)},{int(form.id is not None)}"
    return Part(f"scan_rows-{variant}", f"{__name__}:{compile_scan_rows.__name__}", variant)


def compile_scan_rows(variant: str) -> None:
    """Compile the kernel for "PACKED,LOCATED,HAS_IDS", such as "uint32,0,1"."""
    packed, located, has_ids = variant.split(",")
    with compile_once(f"scan_rows-{variant}", 1):
        _ = open_gpu()
        line_kernels.scan_rows_kernel(packed, located == "1", has_ids == "1").load()


def _of_gpu(tables: list[Array]) -> list[Array]:
    """The tables for threads that read strings one by one, without JOINED_ROOT."""
    tables = [*tables]
    tables[SCALARS] = tables[SCALARS].copy()
    tables[SCALARS][JOINED_ROOT] = NO_ENTRY
    tables[NAME_BYTES] = np.append(tables[NAME_BYTES], np.zeros(2 * WORD_BYTES, np.uint8))  # read beyond by `word_from`
    return tables


def may_defer(tables: list[Array]) -> bool:
    """Tells whether the texts of an event may be read one by one: no filter asks for the least or greatest of a list."""
    records = tables[ELEMENT_RECORDS].reshape(-1, RECORD_WORDS)
    return bool((records[:, NUMBER_EXTREMES:IF_FALSE] == NO_ATOM).all())


def _uploaded(gpu: Gpu, arrays: list[Array]) -> tuple[list[DeviceArray], DeviceArray]:
    """Upload arrays; returns them, and an array of their addresses."""
    found = [gpu.upload(array) for array in arrays]
    return found, gpu.upload(np.array([array.address for array in found], np.int64))


def _stage_for(row_bytes: float) -> int:
    """The words of shared memory for lines of about `row_bytes` bytes, with an eighth more for longer lines."""
    *smaller, most = line_kernels.PLAIN_STAGES
    needed = row_bytes * line_kernels.LINE_BLOCK * 9 / 64
    return next((n for n in smaller if n >= needed), most)


def _words_of(n_bytes: int) -> int:
    """Number of 64-bit words for whole stretches, with at least eight bytes after the last."""
    return ((n_bytes + 7) // STRETCH_BYTES + 1) * (STRETCH_BYTES // 8)
