"""`gpu/kernel_code.py`: code of kernels is found again, on the disk and in the package, and never that of another kernel."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import numba
import pytest

from mpi_match.compute import compile_cache
from mpi_match.errors import EngineError

kernel_code = pytest.importorskip("mpi_match.gpu.kernel_code")
line_kernels = pytest.importorskip("mpi_match.gpu.line_kernels")

from mpi_match.engines.ccm.kernel import ccm_kernel  # noqa: E402  they need numba-cuda
from mpi_match.engines.clcb import kernels as clcb  # noqa: E402
from mpi_match.engines.clcb.options import ClcbVariant  # noqa: E402
from mpi_match.engines.keyed.kernels import bitmap, compact, grid_search, tag_sets, trie_group, trie_thread, trie_warp  # noqa: E402
from mpi_match.engines.keyed.kernels.trie_thread import FILTER_IDS, INTERFACES, MASKS  # noqa: E402
from mpi_match.engines.tagmatch import kernel as tagmatch  # noqa: E402
from mpi_match.gpu import kernels  # noqa: E402
from mpi_match.gpu.kernels import Kernel, simulated  # noqa: E402

AMPERE, LATER_AMPERE, HOPPER, BLACKWELL = (8, 0), (8, 9), (9, 0), (10, 0)
CODE = kernel_code.KernelCode("_Zname", b"\x7fELF\0\1\2")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with code of the kernel "k" for `SHIPPED_GPUS`; the user's directory is empty."""
    (tmp_path / "own").mkdir()
    monkeypatch.setattr(compile_cache, "directory", lambda: tmp_path / "own")
    monkeypatch.setattr(compile_cache, "SHIPPED_CODE", tmp_path / "package" / "compiled")
    for capability in kernel_code.SHIPPED_GPUS:
        place = kernel_code.shipped_directory(capability)
        place.mkdir(parents=True)
        kernel_code.write(place, "k", capability, CODE)
    return tmp_path / "package"


def files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.cubin"))


def test_kept_code_is_found_for_its_kernel_and_its_gpu(package: Path) -> None:
    own = CODE._replace(cubin=b"own")
    kernel_code.keep("k", HOPPER, own)
    assert kernel_code.find("k", HOPPER) == own, "before that of the package"
    assert kernel_code.find("other", HOPPER) is None
    assert kernel_code.find("k", AMPERE) == CODE
    kernel_code.keep("k", BLACKWELL, own)
    assert kernel_code.find("k", BLACKWELL) == own


def test_damaged_code_is_as_good_as_none(package: Path) -> None:
    kernel_code.keep("k", BLACKWELL, CODE)
    for file in files(package.parent):
        content = file.read_bytes()
        file.write_bytes(content[:-1] + b"?")
    assert [kernel_code.find("k", each) for each in (AMPERE, HOPPER, BLACKWELL)] == [None] * 3


def test_code_of_the_package_is_for_the_same_major_version_and_from_hopper_on_for_one_alone(package: Path) -> None:
    found = [kernel_code.runs_as(each) for each in ((7, 5), AMPERE, LATER_AMPERE, HOPPER, (9, 1), BLACKWELL)]
    assert found == [None, AMPERE, AMPERE, HOPPER, None, None]
    assert kernel_code.find("k", LATER_AMPERE) == CODE
    assert kernel_code.find("k", BLACKWELL) is None


@pytest.mark.parametrize("other", ["numba", "numba-cuda", "sources"])
def test_code_of_another_compiler_or_of_other_sources_is_not_found(
    package: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    if other == "numba":
        monkeypatch.setattr(numba, "__version__", f"{numba.__version__}.1")
    elif other == "numba-cuda":
        monkeypatch.setattr(kernel_code, "version", lambda _: "0.30.99")
    else:
        monkeypatch.setattr(kernel_code.source_digest, "digest", lambda: "0" * 64)
    assert kernel_code.find("k", HOPPER) is None


def test_the_parts_that_a_package_has_for_a_gpu_count_as_compiled(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel_code.shipped_directory(AMPERE) / "keyed_cuda-uint32.compiled").touch()
    monkeypatch.setattr(compile_cache, "shipped_marks", set())
    monkeypatch.setattr(compile_cache, "shipped_directory", lambda: package)
    for capability, is_compiled in ((HOPPER, False), (BLACKWELL, False), (LATER_AMPERE, True)):
        kernel_code.use_shipped(capability)
        assert compile_cache.is_compiled("keyed_cuda-uint32") == is_compiled
    monkeypatch.setattr(compile_cache, "shipped_marks", set())
    monkeypatch.setattr(compile_cache, "shipped_directory", lambda: None)
    kernel_code.use_shipped(LATER_AMPERE)
    assert not compile_cache.is_compiled("keyed_cuda-uint32"), "the processor would have to compile its own part"


def variants() -> list[Kernel]:
    """Variants of all kernels that have some."""
    kinds, packed, either = (MASKS, INTERFACES, FILTER_IDS), ("uint32", "uint64"), (False, True)
    found = [line_kernels.scan_rows_kernel(*each) for each in product(packed, either, either)]
    found += [line_kernels.scan_plain_kernel(*each) for each in product(packed, line_kernels.PLAIN_STAGES)]
    for search, widths in (
        (trie_group.group_kernel, trie_group.WIDTHS),
        (trie_thread.match_kernel, (trie_thread.WIDEST,)),
        (trie_warp.wide_kernel, trie_warp.WIDE_WIDTHS),
        (grid_search.grid_kernel, trie_group.WIDTHS),
    ):
        found += [search(*each) for each in product(widths, packed, kinds, either)]
    found += [bitmap.bitmap_kernel(*each) for each in product(packed, kinds, either)]
    found += [tag_sets.tag_set_kernel(*each) for each in product(tag_sets.TAG_WIDTHS, packed, kinds)]
    found += [compact.count_kernel(*each) for each in product(either, ("uint8", "uint16"))]
    found += [compact.write_kernel(*each) for each in product(either, ("uint8", "uint16"), ("uint8", "uint16"))]
    found += [tagmatch.match_kernel(each) for each in either]
    found += [clcb.cont_kernel(each) for each in either]
    for bits, hashes, reset, areas, groups in product((8, 64), (1, 2), ("loc", "memset"), ("rows", "columns"), either):
        found.append(clcb.loc_kernel(ClcbVariant(4, bits, hashes, reset, areas, groups)))
    for each in product(("kernel", "memset"), ("shared", "global"), (2, 3), ("codes", "published")):
        found.append(ccm_kernel(*each))
    return found


LABELS = "import test_kernel_code; print(*(kernel.label for kernel in test_kernel_code.variants()), sep='\\n')"


def test_labels_tell_variants_of_a_kernel_apart_and_are_the_same_in_every_process() -> None:
    labels = [kernel.label for kernel in variants()]
    assert len(set(labels)) == len(labels)
    done = subprocess.run(
        [sys.executable, "-c", LABELS], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.split() == labels


def test_a_closure_with_an_object_of_unknown_content_is_refused() -> None:
    anything = object()

    def kernel() -> object:
        return anything

    with pytest.raises(TypeError, match="a kernel's closure holds <object"):
        list(kernel_code.described(kernel))


@pytest.mark.skipif(simulated, reason="the simulator compiles nothing")
def test_a_kernel_is_compiled_without_a_gpu_and_kept(package: Path) -> None:
    """And its name is in its code."""
    kernel = line_kernels.count_rows_kernel
    try:
        code = kernel._compiled_once(HOPPER)
    except EngineError:
        pytest.skip("no CUDA compiler, install mpi-match[gpu]")
    assert code.cubin.startswith(b"\x7fELF")
    assert code.name.encode() in code.cubin
    assert kernel_code.find(kernel.label, HOPPER) == code


def test_code_that_the_driver_refuses_is_compiled_and_kept(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, own = line_kernels.count_rows_kernel, CODE._replace(cubin=b"own")

    def load(code: object) -> int:
        if code == CODE:
            raise RuntimeError("cuModuleLoadData: device kernel image is invalid (200)")
        return 7

    monkeypatch.setattr(kernels, "_loaded", load)
    monkeypatch.setattr(Kernel, "compile", lambda self, capability: own)
    assert kernel._loaded(CODE, HOPPER) == 7
    assert kernel_code.find(kernel.label, HOPPER) == own
