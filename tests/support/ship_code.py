"""Compile the code that a wheel has in `mpi_match/compiled`, for `compile_cache.SHIPPED` and the Python that runs this: what
first commands need, and the kernels of first commands on GPUs.

    python tests/support/ship_code.py       about ten minutes; `make wheel` builds a wheel with it

Commands are run on small inputs as if this were a processor of that kind, with the folder as their cache, and so are
functions for what depends on the size of a table.  Another Python adds to the folder; code of other sources is removed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import compile_code

from mpi_match.compute.code_files import SUFFIX
from mpi_match.compute.compile_cache import SHIPPED, SHIPPED_CODE, runs_here
from mpi_match.engines.keyed.kernels import bitmap, compact, grid, grid_search, tidy, trie_group
from mpi_match.engines.keyed.kernels.trie_thread import INTERFACES, MASKS
from mpi_match.environment import source_digest
from mpi_match.gpu import deferred_texts, extended_events, kernel_code, line_kernels, pinned_mailbox
from mpi_match.gpu.kernels import Kernel

MAILBOX = pinned_mailbox.fetch_kernel, pinned_mailbox.deliver_kernel, pinned_mailbox.deliver_mask_kernel
PROCESSORS = [each for each in SHIPPED if runs_here(each)]
"""Those whose code this machine runs: code is compiled by running it."""

SUBSCRIPTIONS = [
    {"interface": "a", "constraints": [["price", ">", 10], ["name", "=", "x"]]},
    {"interface": "b", "filters": [{"constraints": [["city", "prefix", "Lon"]]}, {"constraints": [["temp", "<", 0.5]]}]},
    {"interface": "c", "constraints": [["temp", "between", [3.5, 9]], ["name", "in", ["x", "y"]]]},
    {"interface": "d", "constraints": [["alarm", "=", True], ["price", "exists"]]},
]
TEXTS = {"interface": "e", "constraints": [["text", "contains", "rain"], ["city", "suffix", "on"]]}
CONDITION = {"interface": "f", "predicate": "price > 3 and (city = 'Rome' or not name = 'x')"}
LOCATED = {"interface": "g", "id": "g1", "constraints": [["price", ">", 2]], "area": [9.2, 45.5, 1.0]}
TAGS = [{"interface": f"{n}", "constraints": [[f"tag{n}", "exists"], [f"tag{n + 1}", "exists"]]} for n in range(8)]
EVENT = {"price": 12, "name": "x", "city": "London", "temp": 4.25, "alarm": True, "text": "it will rain", "id": "7"}
CHANGES = [
    {"before_event": 1, "move": "g1", "area": [9.0, 45.0, 1.0]},
    {"before_event": 2, "add": SUBSCRIPTIONS[0]},
    {"before_event": 3, "remove_interface": "b"},
]


def write_inputs(place: Path) -> None:
    """Write the inputs of `COMMANDS`."""
    event = EVENT | {"position": {"x": 9.1, "y": 45.4}, "tag1": 1, "tag2": 2, "tags": ["a", "b"]}
    tables: dict[str, list[Any]] = {"plain": SUBSCRIPTIONS, "texts": [*SUBSCRIPTIONS, TEXTS, CONDITION]}
    tables |= {"located": [*SUBSCRIPTIONS, LOCATED], "tags": TAGS, "changes": CHANGES, "events": [event] * 3000}
    for name, rows in tables.items():
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cells = [json.dumps(each) if isinstance(each, str) else str(each) for each in EVENT.values()]
    (place / "events.csv").write_text("\n".join([",".join(EVENT), *[",".join(cells)] * 3000, ""]))


COMMANDS = (
    "match plain.jsonl events.jsonl -o plain.h5",
    "match plain.jsonl events.jsonl -o plain.out.jsonl --id id",
    "match texts.jsonl events.jsonl -o texts.h5",
    "match texts.jsonl events.jsonl -o texts.csv",
    "match texts.jsonl events.jsonl -o rows.jsonl --with-rows",
    "match located.jsonl events.jsonl -o located.h5 --location position.x,position.y",
    "match located.jsonl events.jsonl -o live.h5 --location position.x,position.y --changes changes.jsonl",
    "match plain.jsonl events.csv -o csv.h5",
    "match tags.jsonl events.jsonl -o tags.h5",
    "match plain.jsonl -",
    "match plain.jsonl events.jsonl -o twophase.h5 --engine twophase",
    "export plain.h5",
    "generate ccm-strings -o work --filters 2000 --events 2000",
    "run --table work/table.h5 --events work/events.h5 -o run.h5",
    "verify --table work/table.h5 --events work/events.h5 --matches run.h5",
    "generate ccm -o work --filters 2000 --events 2000",
    "run --table work/table.h5 --events work/events.h5 -o run.h5",
)


def run_commands(caches: str = "") -> None:
    """Run the commands in an empty directory, with a user's directory of `caches`; all have to succeed."""
    paths = os.pathsep.join(filter(None, (str(SHIPPED_CODE.parent.parent), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": paths} | ({"XDG_CACHE_HOME": caches} if caches else {})
    with tempfile.TemporaryDirectory() as there:
        write_inputs(Path(there))
        for command in COMMANDS:
            with (Path(there) / "events.jsonl").open("rb") as lines:
                done = subprocess.run(
                    [sys.executable, "-m", "mpi_match", *command.split()],
                    cwd=there,
                    env=environment,
                    stdin=lines,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    check=False,
                )
            if done.returncode:
                sys.exit(f"mpi-match {command}: {done.stderr}")


def compiled_by_users() -> list[str]:
    """The functions that the commands compile on a machine that has compiled nothing: there should be none."""
    with tempfile.TemporaryDirectory() as caches:
        run_commands(caches)
        return [path.name for path in Path(caches).rglob(f"*{SUFFIX}")]


def kernels() -> list[Kernel]:
    """The kernels of `keyed_cuda` and its scanner for first commands: tables whose names have few operands or many, events
    of up to 16 attributes, answers that are labels."""
    found = [*MAILBOX, line_kernels.count_rows_kernel, line_kernels.write_rows_kernel]
    found += [line_kernels.bin_rows_kernel, line_kernels.order_rows_kernel]
    found += [line_kernels.sum_bins_kernel, line_kernels.order_texts_kernel]
    found += [compact.scan_kernel, tidy.tidy_kernel, tidy.digit_kernel]
    found += [grid.put_kernel, grid.note_kernel, grid.step_kernel, grid.enter_kernel]
    dtypes = ("uint8", "uint8"), ("uint16", "uint8"), ("uint16", "uint16"), ("uint32", "uint16"), ("uint32", "uint32")
    for is_mask, (counts, ids) in product((True, False), dtypes):
        found += [compact.count_kernel(is_mask, counts), compact.write_kernel(is_mask, counts, ids)]
    for packed in ("uint32", "uint64"):
        found += [line_kernels.gather_kernel(packed), line_kernels.insert_kernel(packed), bitmap.enter_kernel(packed)]
        found += [line_kernels.scan_plain_kernel(packed, n_stage) for n_stage in line_kernels.PLAIN_STAGES]
        found += [line_kernels.scan_rows_kernel(packed, located, False) for located in (False, True)]
        found += [deferred_texts.read_texts_kernel(packed), deferred_texts.join_rows_kernel(packed)]
        found += [extended_events.extend_kernel(packed, ids) for ids in ("uint8", "uint16", "uint32")]
        for kind, long in product((MASKS, INTERFACES), (False, True)):
            found.append(bitmap.bitmap_kernel(packed, kind, long))
            for width in trie_group.WIDTHS:
                found += [
                    trie_group.group_kernel(width, packed, kind, long),
                    grid_search.grid_kernel(width, packed, kind, long),
                ]
    found.append(line_kernels.scan_rows_kernel("uint32", False, True))
    return list({kernel.label: kernel for kernel in found}.values())


MARKS = tuple(
    mark
    for packed in ("uint32", "uint64")
    for mark in (
        *(f"keyed_cuda-{packed}{live}" for live in ("", "-live")),
        f"keyed_kernels-{packed}",
        *(f"scan_rows-{packed},{located},0" for located in (0, 1)),
    )
)
"""The parts of compiled code that are whole with these kernels."""


def compile_kernel(number: int) -> None:
    """Compile a kernel for all GPUs of `kernel_code.SHIPPED_GPUS`."""
    kernel = kernels()[number]
    for capability in kernel_code.SHIPPED_GPUS:
        place = kernel_code.shipped_directory(capability)
        place.mkdir(exist_ok=True)
        if kernel_code.find(kernel.label, capability) is None:
            kernel_code.write(place, kernel.label, capability, kernel.compile(capability))


def main() -> None:
    """Compile everything."""
    SHIPPED_CODE.mkdir(exist_ok=True)
    for folder in SHIPPED_CODE.iterdir():
        if not folder.name.startswith(source_digest.digest()):
            shutil.rmtree(folder)
    work: tuple[Callable[[], None], ...] = tuple(partial(compile_kernel, n) for n in range(len(kernels())))
    settings = {"NUMBA_CACHE_DIR": str(SHIPPED_CODE), "NUMBA_CPU_FEATURES": ""}
    for processor in PROCESSORS:
        os.environ |= settings | {"NUMBA_CPU_NAME": processor}  # of processes that compile; this one has imported Numba
        compile_code.compile_all((*work, *compile_code.SHIPPED))
        run_commands()
        work = ()
    for name in (*settings, "NUMBA_CPU_NAME"):
        os.environ.pop(name, None)
    for capability in kernel_code.SHIPPED_GPUS:
        for mark in MARKS:
            (kernel_code.shipped_directory(capability) / f"{mark}.compiled").touch()
    for lock in SHIPPED_CODE.glob("*/*.lock"):
        lock.unlink()
    n_bytes = sum(path.stat().st_size for path in SHIPPED_CODE.rglob("*") if path.is_file())
    print(f"{n_bytes / 1e6:.1f} MB in {SHIPPED_CODE}, for {', '.join(PROCESSORS)} of {', '.join(SHIPPED)}")  # noqa: T201
    if missing := compiled_by_users():
        sys.exit(f"first commands still compile {', '.join(missing)}")


if __name__ == "__main__":
    main()
