"""Every kernel compiles for the GPUs that there are, and its PTX has what it must, and nothing that it must not have."""

from __future__ import annotations

from typing import Any

import pytest
from lasting import lasting
from text_kernel import texts_kernel

from mpi_match.engines.ccm.kernel import ccm_kernel
from mpi_match.engines.clcb import kernels as clcb_kernel
from mpi_match.engines.clcb import segment
from mpi_match.engines.clcb.options import ClcbVariant
from mpi_match.engines.keyed.kernels import bitmap, compact, grid_search, tag_sets, tidy, trie_group, trie_thread, trie_warp
from mpi_match.engines.keyed.kernels import grid as keyed_grid_kernel
from mpi_match.engines.tagmatch.kernel import match_kernel as tagmatch_kernel
from mpi_match.gpu import deferred_texts, extended_events, intrinsics, line_kernels, pinned_mailbox
from mpi_match.gpu import kernels as cuda

OLDEST, HOPPER = (8, 0), (9, 0)
"""What compiles for the older compiles for the later; for both, where the compiler chooses (local memory), and CCM."""
MOVE_KERNELS = (segment.stamp_kernel, segment.place_kernel)
LOC_KERNELS = {
    f"Loc {bits} bits {hashes} hashes groups={groups} {reset} {areas}": clcb_kernel.loc_kernel(
        ClcbVariant(4, bits, hashes, reset, areas, groups)
    )
    for bits, hashes, groups, reset, areas in (
        (32, 1, True, "memset", "rows"),
        (64, 1, True, "loc", "rows"),
        (8, 4, True, "memset", "columns"),
        (32, 2, False, "loc", "columns"),
    )
}
CONT_KERNELS = {f"Cont groups={groups}": clcb_kernel.cont_kernel(groups) for groups in (True, False)}
OTHERS = {kernel.name: kernel for kernel in (clcb_kernel.zip_kernel, *MOVE_KERNELS)}
CCM_KERNELS = {
    f"reset={reset} input={input_} phases={phases} sat={sat}": ccm_kernel(reset, input_, phases, sat)
    for reset, input_, phases, sat in (
        ("kernel", "shared", 2, "codes"),
        ("memset", "global", 2, "codes"),
        ("kernel", "shared", 3, "codes"),
        ("kernel", "global", 3, "codes"),
        ("memset", "shared", 3, "codes"),
        ("kernel", "shared", 2, "published"),
        ("memset", "global", 3, "published"),
    )
}


CCM_CHOSEN = {(0, HOPPER), (6, OLDEST)}
"""Of `CCM_KERNELS`, by number: every value of every parameter, and both GPUs."""


@pytest.mark.parametrize(
    ("variant", "compute_capability"),
    [
        pytest.param(variant, gpu, marks=[] if (at, gpu) in CCM_CHOSEN else pytest.mark.lasting)
        for at, variant in enumerate(CCM_KERNELS)
        for gpu in (OLDEST, HOPPER)
    ],
)
def test_ccm_compiles_and_its_doubles_are_not_fused(variant: str, compute_capability: tuple[int, int]) -> None:
    ptx = compiled(CCM_KERNELS[variant], compute_capability)
    assert f".target sm_{compute_capability[0]}{compute_capability[1]}" in ptx
    assert "mul.rn.f64" in ptx
    assert "fma.rn.f64" not in ptx
    assert "f32" not in ptx
    assert ptx.count("bar.sync") == 3 + ("input=shared" in variant)
    assert ptx.index("membar.gl") < ptx.index("membar.sys"), "the count is last"


@pytest.mark.parametrize("with_prefix", [True, False])
def test_the_kernel_of_tagmatch_compiles(with_prefix: bool) -> None:
    ptx = compiled(tagmatch_kernel(with_prefix))
    assert "bar.sync" in ptx
    assert "f64" not in ptx, "unsigned and signed words met"


@pytest.mark.parametrize("name", [*LOC_KERNELS, *CONT_KERNELS, *OTHERS])
def test_kernels_of_clcb_compile_and_their_doubles_are_not_fused(name: str) -> None:
    ptx = compiled((LOC_KERNELS | CONT_KERNELS | OTHERS)[name])
    assert "fma.rn.f64" not in ptx
    assert "f32" not in ptx
    assert ("mul.rn.f64" in ptx) == (name not in OTHERS)
    assert ("vote.sync.ballot" in ptx) == (name == "Cont groups=True")


@pytest.mark.parametrize(
    "kernel",
    [
        *lasting(trie_thread.match_kernel(trie_thread.WIDEST, "uint32", 0, False)),
        trie_thread.match_kernel(trie_thread.WIDEST, "uint64", 1, True),
        *(compact.count_kernel(is_mask, "uint8") for is_mask in (True, False)),
        compact.write_kernel(True, "uint8", "uint8"),
        *(compact.write_kernel(False, ids, ids) for ids in ("uint8", "uint16", "uint32")),
        compact.scan_kernel,
    ],
    ids=["u32 masks", "u64 lists long", "count masks", "count lists", "write masks"]
    + [f"write lists {ids}" for ids in ("u8", "u16", "u32")]
    + ["scan"],
)
def test_kernels_of_keyed_compile(kernel: cuda.Kernel) -> None:
    assert "fma.rn.f64" not in compiled(kernel)


@pytest.mark.parametrize(
    "kernel",
    [
        grid_search.grid_kernel(8, "uint32", 0, False),
        *lasting(grid_search.grid_kernel(64, "uint64", 1, True), grid_search.grid_kernel(8, "uint32", 2, False)),
        *(keyed_grid_kernel.put_kernel, keyed_grid_kernel.note_kernel),
        *(keyed_grid_kernel.step_kernel, keyed_grid_kernel.enter_kernel),
    ],
    ids=["8 u32 masks", "64 u64 lists", "8 u32 filters", "put", "note", "step", "enter"],
)
def test_kernels_of_the_grid_compile(kernel: cuda.Kernel) -> None:
    """Where they fuse, a factor is a power of two; the distance itself is not fused."""
    ptx = compiled(kernel)
    assert ("mul.rn.f64" in ptx) == (kernel.name == "grid_kernel_")


@pytest.mark.parametrize(
    ("width", "packed", "kind", "long"), [*lasting((8, "uint32", 0, False), (8, "uint32", 1, True)), (16, "uint64", 2, True)]
)
def test_the_kernel_for_groups_of_events_compiles(width: int, packed: str, kind: int, long: bool) -> None:
    """Attributes of events are in registers: it has no local memory of its own."""
    ptx = compiled(trie_group.group_kernel(width, packed, kind, long))
    assert "vote.sync.ballot" in ptx
    assert ".local" not in ptx
    assert "f64" not in ptx, "unsigned and signed words met"


@pytest.mark.parametrize("long", [pytest.param(False, marks=pytest.mark.lasting), True])
@pytest.mark.parametrize(("width", "packed", "kind"), [(64, "uint32", 0), *lasting((256, "uint64", 1), (64, "uint32", 2))])
def test_the_kernel_for_wide_events_compiles(width: int, packed: str, kind: int, long: bool) -> None:
    assert "atom" in compiled(trie_warp.wide_kernel(width, packed, kind, long))


@pytest.mark.parametrize(
    ("packed", "kind", "long"), [("uint64", 1, True), *lasting(("uint32", 0, False), ("uint32", 2, False))]
)
def test_the_kernel_of_the_bitmap_compiles(packed: str, kind: int, long: bool) -> None:
    """It keeps nothing in local memory."""
    for compute_capability in (OLDEST, HOPPER):
        ptx = compiled(bitmap.bitmap_kernel(packed, kind, long), compute_capability)
        assert "vote.sync.ballot" in ptx
        assert "st.local" not in ptx


@pytest.mark.parametrize("packed", ["uint32", *lasting("uint64")])
def test_the_kernel_that_changes_bitmaps_compiles(packed: str) -> None:
    assert "atom" in compiled(bitmap.enter_kernel(packed))


def test_kernels_that_tidy_answers_compile() -> None:
    assert "bar.sync" in compiled(tidy.tidy_kernel)
    assert "vote.sync.ballot" in compiled(tidy.digit_kernel)


@pytest.mark.parametrize(("width", "packed", "kind"), [(256, "uint32", 1), *lasting((32, "uint64", 0), (32, "uint64", 2))])
def test_the_kernel_of_tag_sets_compiles(width: int, packed: str, kind: int) -> None:
    """Its hashes are integers, and it keeps nothing in local memory."""
    for compute_capability in (OLDEST, HOPPER):
        ptx = compiled(tag_sets.tag_set_kernel(width, packed, kind), compute_capability)
        assert "mul.lo.s64" in ptx
        assert "f64" not in ptx, "unsigned and signed words met"
        assert "st.local" not in ptx


@pytest.mark.parametrize(
    "kernel",
    [pinned_mailbox.fetch_kernel, pinned_mailbox.deliver_kernel, pinned_mailbox.deliver_mask_kernel],
    ids=lambda kernel: kernel.name,
)
def test_kernels_of_the_mailbox_compile_and_the_count_comes_last(kernel: cuda.Kernel) -> None:
    assert ("membar.sys" in compiled(kernel)) == (kernel is not pinned_mailbox.fetch_kernel)


LINE_KERNELS = (
    line_kernels.count_rows_kernel,
    line_kernels.write_rows_kernel,
    line_kernels.scan_plain_kernel("uint32", line_kernels.PLAIN_STAGES[0]),
    line_kernels.scan_plain_kernel("uint64", line_kernels.PLAIN_STAGES[1]),
    line_kernels.gather_kernel("uint64"),
    line_kernels.insert_kernel("uint32"),
    line_kernels.bin_rows_kernel,
    line_kernels.order_rows_kernel,
    line_kernels.sum_bins_kernel,
    line_kernels.order_texts_kernel,
    deferred_texts.join_rows_kernel("uint32"),
    extended_events.extend_kernel("uint32", "uint16"),
    deferred_texts.read_texts_kernel("uint32"),
    line_kernels.scan_rows_kernel("uint32", False, False),
    line_kernels.scan_rows_kernel("uint64", True, True),
)


@pytest.mark.parametrize(
    "kernel",
    [*LINE_KERNELS[:-3], *lasting(*LINE_KERNELS[-3:])],
    ids=[
        *(
            "count",
            "write",
            "plain u32",
            "plain u64",
            "gather",
            "insert",
            "bin rows",
            "order rows",
            "sum bins",
            "order texts",
        ),
        *("join", "extend", "texts", "scan u32", "scan u64 located"),
    ],
)
def test_kernels_of_the_scanner_compile_into_one_function_and_their_doubles_are_not_fused(kernel: cuda.Kernel) -> None:
    """Four are too large to be copied to their callers: of a text, of it without its views, of these, and of a line."""
    ptx = compiled(kernel)
    assert "fma.rn.f64" not in ptx
    assert "f32" not in ptx
    functions = [line for line in ptx.splitlines() if ".func " in line]
    large = ("put_text", "put_itself", "put_views", "scan_line")
    assert all(any(name in line for name in large) for line in functions)
    assert ptx.count("callseq") <= 10 * bool(functions)


@cuda.device_function
def no_reader(data: int, at: int, tables: int, work: int) -> int:
    return data + at - tables - work


@pytest.mark.parametrize(("packed", "located", "has_ids"), [("uint32", False, False), ("uint64", True, True)])
def test_the_kernel_of_any_row_compiles_around_its_reader(
    packed: str, located: bool, has_ids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their reader, which `test_scanner` compiles for a CPU, the kernels take longer than all others: `lasting`."""
    monkeypatch.setattr(line_kernels, "scan_single_row", no_reader)
    line_kernels.scan_rows_kernel.cache_clear()
    ptx = compiled(line_kernels.scan_rows_kernel(packed, located, has_ids))
    line_kernels.scan_rows_kernel.cache_clear()
    assert "bar.sync" in ptx
    assert "fma.rn.f64" not in ptx
    assert "f32" not in ptx
    assert "call" not in ptx


def test_what_is_read_of_texts_compiles_into_one_function() -> None:
    ptx = compiled(texts_kernel)
    assert "f32" not in ptx
    assert "call" not in ptx


def test_intrinsics_of_a_warp_compile() -> None:
    ptx = compiled(warp_kernel, HOPPER)
    assert all(word in ptx for word in ("vote.sync.ballot", "shfl.sync.idx", "bar.warp.sync", "%laneid"))


@cuda.kernel("void(int64[::1])")
def warp_kernel(values: Any) -> None:
    """Every lane learns what the others hold."""
    lane = intrinsics.lane()
    mask = intrinsics.ballot(values[lane] > 0)
    intrinsics.sync_warp()
    values[lane] = intrinsics.shuffle(values[lane], mask & 31)


def compiled(kernel: cuda.Kernel, compute_capability: tuple[int, int] = OLDEST) -> str:
    """The kernel's PTX; skips, saying so, where numba-cuda has no compiler (its extras cu12 and cu13 bring one)."""
    try:
        return kernel.ptx(compute_capability)
    except Exception as error:
        if type(error).__name__ not in ("DynamicLibNotFoundError", "NvvmSupportError"):
            raise
        pytest.skip(f"no CUDA compiler, install mpi-match[gpu]: {str(error).splitlines()[0]}")
