"""Tests of the kernels under Numba's CUDA simulator: a process of their own, because Numba decides when it is first
imported.

    NUMBA_ENABLE_CUDASIM=1 python -m pytest tests/kernels

The simulator runs some thousands of threads a second, so blocks are a few threads here: small inputs then cross the
borders of blocks, of groups of events in flight and of passes, which is where the mistakes are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.exit("tests/kernels need NUMBA_ENABLE_CUDASIM=1 and a process of their own: make test-simulator", returncode=2)

TURN_S = 0.0002
LANES = int(os.environ.get("SIMULATED_LANES", "1"))
"""Lanes of a warp; more than one take longer."""
if LANES > 1:
    from simulated_warps import install

    install(LANES)


def pytest_configure(config: pytest.Config) -> None:
    """Hashes overflow on purpose, of which NumPy warns where the compiler does not."""
    config.addinivalue_line("filterwarnings", "ignore:overflow encountered in scalar multiply:RuntimeWarning")


@pytest.fixture(autouse=True)
def _keys_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables get keys of several features, as large ones do (`tests/engines/conftest.py`)."""
    from mpi_match.engines.keyed.index import features

    monkeypatch.setattr(features, "COST_OF_EVENT", 0.0)
    monkeypatch.setattr(features, "COST_OF_ATTRIBUTE", 0.0)


@pytest.fixture(scope="session", autouse=True)
def _quick_simulator() -> Iterator[None]:
    """The simulator without its waiting; threads take turns often, which mixes them more."""
    from quick_simulator import quick_simulator

    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    with quick_simulator():
        yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="session", autouse=True)
def _tiny_shapes() -> Iterator[None]:
    from mpi_match.engines.ccm import batch as ccm_batch
    from mpi_match.engines.ccm import kernel as ccm_kernel
    from mpi_match.engines.ccm import one_or_many
    from mpi_match.engines.ccm import single as ccm_event
    from mpi_match.engines.clcb import batch as clcb_batch
    from mpi_match.engines.clcb import segment, updates
    from mpi_match.engines.clcb import single as clcb_event
    from mpi_match.engines.keyed import cuda as keyed_cuda
    from mpi_match.engines.keyed import cuda_grid, cuda_pipeline, cuda_results, cuda_slot
    from mpi_match.engines.keyed.grid import hash_grid
    from mpi_match.engines.keyed.kernels import (
        bitmap,
        compact,
        grid_search,
        tag_sets,
        tidy,
        trie_group,
        trie_thread,
        trie_warp,
    )
    from mpi_match.engines.tagmatch import gpu_match as tagmatch
    from mpi_match.engines.tagmatch import kernel as tagmatch_kernel
    from mpi_match.gpu import line_kernels

    patch = pytest.MonkeyPatch()
    patch.setattr(ccm_kernel, "CCM_BLOCK", 3)
    patch.setattr(one_or_many, "LEAST_ATTRIBUTES", 1)
    patch.setattr(ccm_batch, "ROWS_PER_THREAD", 2)
    patch.setattr(ccm_batch, "MOST_IN_FLIGHT", 2)
    patch.setattr(ccm_batch, "CCM_PASS_EVENTS", 5)
    patch.setattr(ccm_batch, "CCM_FIRST_PAIRS", 1)
    patch.setattr(ccm_event, "CCM_FIRST_IDS", 1)
    patch.setattr(segment, "CLCB_BLOCK", 2)
    patch.setattr(segment, "BLOCKS_PER_MULTIPROCESSOR", 1)
    patch.setattr(segment, "FEW_MOVES", 2)
    patch.setattr(segment, "MOVES_UNDER_WAY", 3)
    patch.setattr(updates, "JOINED_AT_ONCE", 2)
    patch.setattr(updates, "GROWTH", 2)
    patch.setattr(clcb_batch, "COUNTER_BYTES", 200)
    patch.setattr(clcb_batch, "CLCB_PASS_EVENTS", 11)
    patch.setattr(clcb_batch, "CLCB_FIRST_PAIRS", 1)
    patch.setattr(clcb_event, "CLCB_FIRST_IDS", 1)
    for module in (compact, bitmap, cuda_slot, cuda_grid, grid_search, trie_group, trie_warp):
        patch.setattr(module, "KEYED_BLOCK", max(4, 2 * LANES))
    for module in (trie_thread, trie_warp, tag_sets, bitmap, grid_search, cuda_slot):
        patch.setattr(module, "SORTED_ANSWERS", 3)
    patch.setattr(grid_search, "FULL_WARPS", 1)
    patch.setattr(grid_search, "INSERTED", 2)
    patch.setattr(tidy, "TIDIED_ALONE", 5)
    for module in (tidy, cuda_slot):
        patch.setattr(module, "TIDIED_TOGETHER", 24)
        patch.setattr(module, "DIGIT_WARPS", 4)
    patch.setattr(tidy, "RADIX_BITS", 2)
    patch.setattr(tidy, "DIGIT_COUNTS", 16)
    patch.setattr(tag_sets, "LONG_BUCKET", 12)
    patch.setattr(tag_sets, "LONG_BUCKETS", 2)
    patch.setattr(cuda_slot, "SHARING_WARPS", 4)
    for module in (compact, cuda_slot):
        patch.setattr(module, "ANSWERS_SHARED", 2)
    patch.setattr(compact, "WRITTEN_ALONE", 2)
    for module in (compact, cuda_slot):
        patch.setattr(module, "SCAN_THREADS", 4)
    patch.setattr(cuda_grid, "LEAST_SPARE", 1)
    patch.setattr(hash_grid, "LEAST_BLOCKS_LOG", 1)
    patch.setattr(keyed_cuda, "CPU_EVENTS", 1)
    for module in (keyed_cuda, cuda_pipeline):
        patch.setattr(module, "SLICE_EVENTS", 6 if LANES == 1 else 5 * LANES)
        patch.setattr(module, "FIRST_EVENTS", 6 if LANES == 1 else 5 * LANES)
    patch.setattr(cuda_pipeline, "CUDA_ANSWER_ROOM", 1)
    patch.setattr(cuda_pipeline, "SLICE_S", 1.0)
    patch.setattr(cuda_pipeline, "GROUP_S", 0.5)
    patch.setattr(cuda_pipeline, "ANSWER_S", 0.001)
    patch.setattr(cuda_pipeline, "MERGED_S", 0.0)
    patch.setattr(cuda_pipeline, "SPARSE", 2)
    patch.setattr(cuda_pipeline, "LONG_SLICE_BYTES", 16)
    patch.setattr(cuda_pipeline, "LONG_GROUP_BYTES", 16)
    patch.setattr(cuda_pipeline, "LONG_SLICE_EVENTS", 2)
    patch.setattr(keyed_cuda, "POOL_BYTES", 100)
    patch.setattr(cuda_results, "LEAST_BYTES", 4)
    patch.setattr(line_kernels, "LINE_BLOCK", 8)
    patch.setattr(line_kernels, "ROW_THREADS", 4)
    patch.setattr(tagmatch_kernel, "TAGMATCH_BLOCK", 3)
    patch.setattr(tagmatch, "FIRST_RESULTS", 2)
    yield
    patch.undo()
