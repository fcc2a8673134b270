"""Mutants of journals, parts of answers and manifests, with corrected checksums."""

from __future__ import annotations

import json
import os
import random
import struct
import zlib
from pathlib import Path
from typing import Any

RECORD, PLACED = struct.Struct("<iqqq"), struct.Struct("<I4I2I2q")
MEMBERS: tuple[Any, ...] = (
    *(-1, 0, 1, 2**31, 2**32, 2**40, 2**63, 10**30, 3.5, True, None),
    *("", "filter", "interface", "x" * 100, "f" * 64, "\ud800", [], {}),
)
NESTED = (b"[" * 100_000, b'{"a":' * 50_000)
TEXTS = (b"[]", b"{}", b"3", b"null", b"\xff\xfe", b"{", b"", b"1" * 5000, b"NaN", b'"\\ud800"', b'{"state": 3}', *NESTED)


def records_of(data: bytes) -> tuple[bytes, list[bytearray]]:
    """The identity of a journal, and its records without their checksums."""
    (length,) = struct.unpack_from("<I", data, 22)
    at, records = 30 + length, []
    while at < len(data):
        kind, _, n_events, n_ids = RECORD.unpack_from(data, at + 4)
        size = n_events + n_ids if kind == 1 else 0
        if kind == 3:
            *_, n_counts, n_lists, rest_counts, rest_ids = PLACED.unpack_from(data, at + 32)
            size = PLACED.size + 16 * (n_counts + n_lists) + rest_counts + rest_ids
        records.append(bytearray(data[at + 4 : at + 32 + size]))
        at += 32 + size
    return data[30 : 30 + length], records


def change_records(path: Path, rng: random.Random) -> str:
    """Another head, or other records."""
    text, records = records_of(path.read_bytes())
    version = 1
    how = rng.choice((*["identity", "record", "body"] * 3, *["placed"] * 2, "text", "order", "version", "torn"))
    match how:
        case "identity":
            found = json.loads(text)
            key = rng.choice([*found, "more"])
            found[key] = rng.choice(MEMBERS)
            if rng.random() < 0.2:
                del found[key]
            text, how = json.dumps(found).encode(), f"identity: {key} {found.get(key)!r}"
        case "text":
            text = rng.choice((*TEXTS, text[:-1], text + b" "))
        case "record":
            record, field = rng.choice(records), rng.choice((0, 4, 12, 20))
            kind = "<i" if field == 0 else "<q"
            (old,) = struct.unpack_from(kind, record, field)
            near = (old + 1, old - 1, 0, 1, 2, 3, 4, -1, 2**31 - 1, -(2**31))
            struct.pack_into(
                kind, record, field, rng.choice(near if field == 0 else (*near, 2**40, 2**62, 2**63 - 1, -(2**63)))
            )
        case "body":
            record = rng.choice([each for each in records if len(each) > RECORD.size])
            for _ in range(rng.choice((1, 1, 2, 3))):
                i = rng.randrange(RECORD.size, len(record))
                record[i] = rng.choice((0, 1, 9, 10, 255, (record[i] + 1) % 256, (record[i] - 1) % 256))
        case "placed":
            for record in records:
                if RECORD.unpack_from(record)[0] == 3:
                    place = RECORD.size + rng.choice((28, 36, 44, 52, 60, 68))
                    struct.pack_into("<q", record, place, rng.choice((-1, 0, 1, 2, 5, 2**40, -(2**63), 2**63 - 1)))
        case "order":
            records = rng.sample(records, len(records)) if rng.random() < 0.5 else [*records, rng.choice(records)]
        case "version":
            version = rng.choice((0, 2, 2**32 - 1))
        case "torn":
            records = records[: rng.randrange(len(records) + 1)]
    body = b"".join(struct.pack("<I", zlib.crc32(each)) + bytes(each) for each in records)
    path.write_bytes(b"mpi-match journal\n" + struct.pack("<III", version, len(text), zlib.crc32(text)) + text + body)
    return how


def change_journal(path: Path, rng: random.Random) -> str:
    """The journal, or the file that it refers to."""
    if rng.random() < 0.8:
        return change_records(path, rng)
    other = path.with_name(path.name + ".1")
    content = other.read_bytes()
    other.unlink()
    how = rng.choice(("gone", "pipe", "directory", "short", "other"))
    match how:
        case "pipe":
            os.mkfifo(other)
        case "directory":
            other.mkdir()
        case "short":
            other.write_bytes(content[: rng.randrange(len(content))])
        case "other":
            other.write_bytes(rng.randbytes(len(content)))
    return f"{other.name} {how}"


def change_manifest(path: Path, rng: random.Random) -> str:
    """No manifest, or one with other content."""
    text = rng.choice(TEXTS)
    path.write_bytes(text)
    return repr(text[:30])
