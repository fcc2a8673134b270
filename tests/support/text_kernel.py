"""A kernel that asks of each text what compiled code can tell of texts, and the same answers from `mpi_match.texts`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.memory import f64_bits
from mpi_match.gpu import kernels as cuda
from mpi_match.gpu.intrinsics import address_of
from mpi_match.ingest.codes.addresses import ADDRESS_DIGITS, address_at
from mpi_match.ingest.codes.folding import fold_table, fold_text
from mpi_match.ingest.codes.instants import instant_at
from mpi_match.ingest.codes.regexps import REGEXP_STATE_WORDS, regexp_matches, regexp_table
from mpi_match.ingest.codes.wildcards import wildcard_bytes, wildcard_matches
from mpi_match.model import split
from mpi_match.texts.address import address
from mpi_match.texts.folding import fold
from mpi_match.texts.instant import instant
from mpi_match.texts.regexp import compiled, matches
from mpi_match.texts.wildcard import matches as matches_wildcard

ROOM = 256
"""Bytes for the folding of a text; most have room."""
FOLDED, KIND, NUMBER, IS_INSTANT, NEAREST, RESIDUE, FITTING, FOUND, N_ANSWERS = range(9)
"""Answers of a text: length of its folding; address; instant, the double as an integer; bits of wildcards and regexps."""
WILDCARDS = ("*", "?", "a*b?c", "*.exe", "*a*b*c*", r"C:\\*\\*", "10.*.1", "*é?*", "????-??-*", r"*\**")
REGEXPS = (
    *("a.c", "^a", "b$", r"\bexe\b", "(?i)straße", r"[0-9]{4}-[0-9]{2}", "(?:a|b)*c", r"\pL{3}", "x{70}", "^$", r"\B"),
    *(r"(?m)^[^\n]*z$", r"(?i)\.exe", r"\d+\.\d+\.\d+\.\d+", "(?:[a-z]+:){2}", "(?s)a.*é.*b"),
)


class TextTables(NamedTuple):
    """What texts are compared with: `fold_table`, wildcards and their offsets, regexps and their places."""

    folds: Any
    wildcards: Any
    wildcard_offsets: Any
    regexps: Any
    regexp_places: Any


@cuda.kernel(
    "void(uint8[::1], int64[::1], TextTables(int32[::1], uint8[::1], int64[::1], uint64[::1], int64[::1]), uint8[::1], "
    "uint64[::1], int64[::1])",
    named_tuples=(TextTables,),
)
def texts_kernel(data: Any, offsets: Any, tables: Any, scratch: Any, state: Any, answers: Any) -> None:
    """Each thread answers for a text, data[offsets[k]:offsets[k + 1]]."""
    k = cuda.cuda.grid(1)
    if k >= len(offsets) - 1:
        return
    text, start, stop, to = address_of(data), offsets[k], offsets[k + 1], N_ANSWERS * k
    own = address_of(scratch) + k * (ROOM + ADDRESS_DIGITS)
    answers[to + FOLDED] = fold_text(text, start, stop, own, ROOM, address_of(tables.folds))
    answers[to + KIND], answers[to + NUMBER] = address_at(text, start, stop, own + ROOM)
    is_instant, nearest, residue = instant_at(text, start, stop)
    answers[to + IS_INSTANT], answers[to + RESIDUE] = np.int64(is_instant), residue
    answers[to + NEAREST] = np.int64(f64_bits(nearest))
    fitting, found = np.int64(0), np.int64(0)
    for i in range(len(tables.wildcard_offsets) - 1):
        begin = tables.wildcard_offsets[i]
        length = tables.wildcard_offsets[i + 1] - begin
        if wildcard_matches(text, start, stop, address_of(tables.wildcards) + begin, length):
            fitting |= np.int64(1) << i
    for i in range(len(tables.regexp_places)):
        automaton = address_of(tables.regexps) + 8 * tables.regexp_places[i]
        if regexp_matches(text, start, stop, automaton, address_of(state) + 8 * k * REGEXP_STATE_WORDS):
            found |= np.int64(1) << i
    answers[to + FITTING], answers[to + FOUND] = fitting, found


def texts(n: int) -> list[str]:
    """Texts of all kinds, some nearly of a kind."""
    draw = random.Random(37)
    pieces = ["a", "b", "c", "é", "ẞ", "Straße", ".exe", "\n", "C:\\", "10", "::", ":", ".", "-", "x" * 35, "İ", "1970", "z"]
    found = ["", "x" * 70, "C:\\a\\b.exe", "É" * 120, "É" * 200, "10.2.3.1", "ab?c", "a*"]
    while len(found) < n:
        kind = draw.randrange(5)
        if kind == 0:
            found.append(".".join(str(draw.randrange(300)) for _ in range(4)))
        elif kind == 1:
            groups = [f"{draw.randrange(65_536):x}" for _ in range(draw.randrange(1, 9))]
            found.append(":".join(groups) + draw.choice(["", "", "::", "::1", ":1.2.3.4"]))
        elif kind == 2:
            fraction = draw.choice(["", ".5", f".{draw.randrange(10**9):09}", ".1234567890"])
            date = f"{draw.randrange(10_000):04}-{draw.randrange(1, 13):02}-{draw.randrange(1, 32):02}"
            time = f"{draw.randrange(24):02}:{draw.randrange(61):02}:{draw.randrange(60):02}"
            found.append(draw.choice([date, f"{date}T{time}{fraction}{draw.choice(['Z', '+05:30', '-23:59', ''])}"]))
        else:
            found.append("".join(draw.choices(pieces, k=draw.randrange(9))))
    return found


def expected_answers(tried: Sequence[str]) -> Array:
    """What the kernel must answer, i64[n, N_ANSWERS]."""
    rows = np.zeros((len(tried), N_ANSWERS), np.int64)
    for row, text in zip(rows, tried, strict=True):
        n_folded, read, time = len(fold(text).encode()), address(text), instant(text)
        row[FOLDED] = n_folded if n_folded <= ROOM else -1
        row[KIND] = 0 if read is None else 1 if isinstance(read, int) else 2
        row[NUMBER] = read if isinstance(read, int) else 0
        if time is not None:
            nearest, residue = split(time)
            row[IS_INSTANT], row[NEAREST], row[RESIDUE] = 1, int(np.float64(nearest).view(np.int64)), residue
        row[FITTING] = sum(matches_wildcard(text.encode(), w.encode()) << i for i, w in enumerate(WILDCARDS))
        row[FOUND] = sum(matches(text.encode(), r.encode()) << i for i, r in enumerate(REGEXPS))
    return rows


def scratch_of(tried: Sequence[str]) -> list[tuple[Array, Array]]:
    """What a text's folding and its address's digits are, as bytes u8; empty where there are none."""
    found = []
    for text in tried:
        folded, read = fold(text).encode(), address(text)
        digits = read.encode() if isinstance(read, str) else b""
        found.append((np.frombuffer(folded if len(folded) <= ROOM else b"", np.uint8), np.frombuffer(digits, np.uint8)))
    return found


def _joined(strings: Sequence[bytes]) -> tuple[Array, Array]:
    return np.frombuffer(b"".join(strings) + b"\0", np.uint8), np.cumsum([0, *map(len, strings)], dtype=np.int64)


def answered_on_gpu(tried: Sequence[str]) -> tuple[Array, Array]:
    """The kernel's answers, i64[n, N_ANSWERS], and its scratch, u8[n, ROOM + ADDRESS_DIGITS]."""
    gpu = cuda.open_gpu()
    table, places = regexp_table([compiled(pattern) for pattern in REGEXPS])
    tables = (fold_table(), *_joined([wildcard_bytes(pattern) for pattern in WILDCARDS]), table, places)
    data, offsets = (gpu.upload(each) for each in _joined([text.encode() for text in tried]))
    scratch = gpu.upload(np.zeros(len(tried) * (ROOM + ADDRESS_DIGITS), np.uint8))
    state = gpu.upload(np.zeros(len(tried) * REGEXP_STATE_WORDS, np.uint64))
    answers = gpu.upload(np.zeros(len(tried) * N_ANSWERS, np.int64))
    stream = gpu.stream()
    arguments = data, offsets, TextTables(*map(gpu.upload, tables)), scratch, state, answers
    texts_kernel.bind((-(-len(tried) // 128),), 128, arguments)(stream)
    found, written = np.zeros(answers.size, np.int64), np.zeros(scratch.size, np.uint8)
    stream.copy_out(found, answers)
    stream.copy_out(written, scratch)
    stream.synchronize()
    return found.reshape(-1, N_ANSWERS), written.reshape(len(tried), -1)
