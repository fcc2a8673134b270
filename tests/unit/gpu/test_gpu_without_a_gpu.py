"""`gpu/kernels.py` and the GPU engines without a GPU: choice of device, errors, memory, launches."""

from __future__ import annotations

import ctypes
import gc
import logging
import mmap
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpi_match import engines
from mpi_match.engines import Engine, EngineError, open_engine, registry
from mpi_match.environment.mpi_launcher import LOCAL_RANK_VARIABLES
from mpi_match.events.events import Events
from mpi_match.gpu import device_memory, driver, kernel_code, presence
from mpi_match.gpu import kernels as cuda
from mpi_match.gpu.kernel_code import KernelCode
from mpi_match.model import make_event, make_filter, match_naive
from mpi_match.table.table import Table

GPUS = [cuda.GpuInfo(i, "a GPU", f"GPU-{i}", (9, 0), 132, 50 << 20, 139 << 30) for i in range(2)]
TABLE = Table.from_filters([make_filter("a", [["x", "=", 1]])])


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in LOCAL_RANK_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cuda, "visible_gpus", lambda: GPUS)
    monkeypatch.setattr(cuda.Gpu, "make_current", lambda self: None)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a driver, also where there is one."""

    def fail(flags: int) -> Any:
        raise RuntimeError("Failed to dlopen libcuda.so.1\nand more")

    driver._initialise.cache_clear()
    monkeypatch.setattr(driver.driver, "cuInit", fail)


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "SLURM_LOCALID": "0"}, 1),  # mpirun inside a Slurm job
        ({"MPI_LOCALRANKID": "2", "SLURM_LOCALID": "0"}, 2),
        ({"SLURM_LOCALID": "3"}, 3),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "", "SLURM_LOCALID": "3"}, 3),
    ],
)
def test_local_rank_is_that_of_the_innermost_launcher(environment: dict[str, str], rank: int | None) -> None:
    assert cuda.local_rank(environment) == rank


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """What a driver that pins everything was asked for; it counts pages, as the real one does."""
    asked: list[tuple[int, ...]] = []

    def accept(*given: int) -> tuple[int]:
        asked.append(given)
        return (0,)

    monkeypatch.setattr(driver.driver, "cuMemHostRegister", accept)
    monkeypatch.setattr(driver.driver, "cuMemHostUnregister", accept)
    return asked


def test_memory_is_pinned_where_it_lies_in_whole_pages(registered: list[tuple[int, ...]]) -> None:
    pages = np.frombuffer(mmap.mmap(-1, 4 * mmap.PAGESIZE), np.uint32)
    first = int(pages.__array_interface__["data"][0])
    regions = cuda.PinnedRegions()
    regions.hold(pages[3:1500])  # bytes 12 to 6000: two pages
    portable_and_read_only = 9
    assert registered == [(first, 2 * mmap.PAGESIZE, portable_and_read_only)]
    assert [regions.holds(pages[a:b]) for a, b in ((3, 1500), (10, 20), (2, 20), (10, 1501))] == [True, True, False, False]
    regions.hold(pages[:0])
    assert len(registered) == 1
    others = [np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.uint8) for _ in range(9)]
    for other in others[1:]:
        regions.hold(other)
    assert [regions.holds(other) for other in others] == [False] + [True] * 8
    assert regions.holds(pages[3:1500])
    del registered[:]
    del regions
    gc.collect()
    assert len(registered) == 9
    assert (first,) in registered


def test_memory_is_pinned_also_by_a_driver_that_does_not_know_of_reading_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse_read_only(start: int, n_bytes: int, flags: int) -> tuple[int]:
        asked.append(flags)
        return (801 if flags & 8 else 0,)

    monkeypatch.setattr(driver.driver, "cuMemHostUnregister", lambda start: (0,))
    monkeypatch.setattr(driver.driver, "cuMemHostRegister", refuse_read_only)
    regions, memory = cuda.PinnedRegions(), np.zeros(2**20, np.uint8)
    regions.hold(memory)
    assert asked == [9, 1]
    assert regions.holds(memory)


def test_memory_that_cannot_be_pinned_is_refused_and_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.driver, "cuMemHostRegister", lambda *given: (801,))
    regions, memory = cuda.PinnedRegions(), np.zeros(2**20, np.uint8)
    with pytest.raises(EngineError, match="1 MiB cannot be pinned in place: 801"):
        regions.hold(memory)
    assert not regions.holds(memory)


def test_copies_begin_where_arrays_do() -> None:
    table, fixed = np.zeros((10, 3)), np.frombuffer(bytes(64), np.uint32)
    for array in (table, table[3], table[4:7], table.reshape(-1)[5:].view(np.uint8), fixed, fixed[3:]):
        assert device_memory.address_of(array) == array.ctypes.data
    assert device_memory.address_of(table[1]) == table.ctypes.data + 24


def test_a_context_that_another_library_has_made_current_is_changed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    current, asked = [0], list[tuple[str, int]]()

    def select(index: int) -> None:
        asked.append(("select", index))
        current[0] = 77

    def set_current(context: int) -> tuple[int]:
        asked.append(("set", context))
        current[0] = context
        return (0,)

    monkeypatch.setattr(cuda, "_chosen", threading.local())
    monkeypatch.setattr(cuda, "cuda", SimpleNamespace(select_device=select))
    monkeypatch.setattr(cuda, "current_context", lambda: current[0])
    monkeypatch.setattr(driver.driver, "cuCtxSetCurrent", set_current)
    gpu, same = cuda.Gpu(GPUS[1]), cuda.Gpu(GPUS[1])
    gpu.make_current()
    assert asked == [("select", 1)]
    for other in (88, 0):
        current[0] = other
        same.make_current()
        gpu.make_current()
        assert current == [77]
    assert asked == [("select", 1), ("set", 77), ("set", 77)]
    elsewhere = threading.Thread(target=gpu.make_current)
    elsewhere.start()
    elsewhere.join()
    assert asked[3:] == [("select", 1)]


@pytest.mark.usefixtures("two_gpus")
def test_ranks_take_gpus_in_turn_and_an_argument_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cuda.open_gpu().info.index == 0
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3")
    assert cuda.open_gpu().info.index == 1
    assert cuda.open_gpu(0).info.index == 0
    with pytest.raises(EngineError, match="no GPU 2: 2 visible"):
        cuda.open_gpu(2)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", ["ccm", "clcb", "keyed_cuda"])
def test_without_a_gpu_the_error_is_one_line(name: str) -> None:
    with pytest.raises(EngineError) as caught:
        open_engine(name, TABLE)
    assert str(caught.value) == "no usable GPU on this machine: Failed to dlopen libcuda.so.1; use --engine keyed"


@pytest.mark.usefixtures("no_gpu")
def test_auto_takes_the_cpu_logs_why_and_loads_no_engine_of_a_gpu(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, load = [], registry.engine_class

    def noted(name: str) -> type[Engine]:
        loaded.append(name)
        return load(name)

    monkeypatch.setattr(registry, "engine_class", noted)
    with caplog.at_level(logging.INFO, logger=engines.__name__):
        assert open_engine("auto", TABLE).name == "keyed"
    assert "keyed_cuda skipped: no usable GPU" in caplog.text
    assert loaded == ["keyed"]


def test_without_a_driver_its_bindings_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "LIBRARY", "libnone.so.1")
    monkeypatch.delitem(sys.modules, "mpi_match.gpu.driver")
    with pytest.raises(EngineError, match=r"^no usable GPU on this machine: libnone.so.1: .*; use --engine keyed$"):
        registry._require_gpu()
    assert "mpi_match.gpu.driver" not in sys.modules


def test_importing_the_package_asks_for_no_gpu() -> None:
    """Neither CUDA's bindings nor Numba's CUDA are loaded by what every process imports."""
    code = (
        "import sys; at_start = set(sys.modules)\n"  # the bindings for CUDA 12 put an empty `cuda` there
        "import mpi_match.engines, mpi_match.table.table\n"
        "print([m for m in sys.modules if m.startswith(('cuda', 'numba')) and m not in at_start])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Recorder:
    """A stand-in for the driver: remembers calls, and what a launch's parameters point to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
        self.n_words = 0

    def cuLaunchKernel(self, *arguments: Any) -> int:
        *shape, parameters, _ = arguments
        pointers = (ctypes.c_void_p * self.n_words).from_address(parameters)
        self.calls.append(("launch", shape, [ctypes.c_int64.from_address(p or 0).value for p in pointers]))
        return 0

    def cuGraphLaunch(self, *arguments: Any) -> int:
        self.calls.append(("cuGraphLaunch", *arguments))
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> tuple[int, ...]:
            self.calls.append((name, *arguments))
            return (0, 77) if name in ("cuStreamEndCapture", "cuGraphInstantiate") else (0,)

        call.__name__ = name
        return call


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(cuda, "driver", recorder)
    monkeypatch.setattr(cuda.Kernel, "_handle", lambda self: 1234)
    return recorder


def test_a_launch_gives_numba_s_words_for_its_arguments(recorder: Recorder) -> None:
    recorder.n_words = 7 + 1 + 7
    first = cuda.DeviceArray(0x1000, 5, np.dtype(np.uint32), None)
    second = cuda.DeviceArray(0x2000, 3, np.dtype(np.float64), None)
    launch = cuda.Kernel(lambda a, n, b: None, "void()").bind((4, 2), 128, [first, 9, second])
    stream: Any = SimpleNamespace(handle=55, intake=recorder)
    launch(stream)
    launch.set(1, -1)
    launch.resize((1,))
    launch(stream)
    arrays = [0, 0, 5, 4, 0x1000, 5, 4], [0, 0, 3, 8, 0x2000, 3, 8]
    assert recorder.calls == [
        ("launch", [1234, 4, 2, 1, 128, 1, 1, 0, 55], [*arrays[0], 9, *arrays[1]]),
        ("launch", [1234, 1, 1, 1, 128, 1, 1, 0, 55], [*arrays[0], -1, *arrays[1]]),
    ]


def test_a_named_tuple_has_the_words_of_its_fields_in_a_launch(recorder: Recorder) -> None:
    recorder.n_words = 7 + 7 + 1 + 1
    arrays = [cuda.DeviceArray(0x1000 * i, i, np.dtype(np.uint32), None) for i in (1, 2)]
    stream: Any = SimpleNamespace(handle=55, intake=recorder)
    launch = cuda.Kernel(lambda pair, n: None, "void()").bind((4,), 128, [(*arrays, 8), 9])
    launch(stream)
    launch.set(1, -1)
    launch(stream)
    words = [0, 0, 1, 4, 0x1000, 1, 4, 0, 0, 2, 4, 0x2000, 2, 4, 8]
    shape = [1234, 4, 1, 1, 128, 1, 1, 0, 55]
    assert recorder.calls == [("launch", shape, [*words, 9]), ("launch", shape, [*words, -1])]


def test_only_urgent_streams_go_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def create(flags: int, priority: int) -> tuple[int, int]:
        made.append(priority)
        return 0, 55

    fake = SimpleNamespace(
        CUstream=int,
        CUstream_flags=SimpleNamespace(CU_STREAM_NON_BLOCKING=1),
        cuCtxGetStreamPriorityRange=lambda: (0, 0, -5),
        cuStreamCreateWithPriority=create,
        cuStreamDestroy=lambda handle: (0,),
        cuStreamSynchronize=lambda handle: (0,),
    )
    monkeypatch.setattr(device_memory, "driver", fake)
    assert device_memory.Stream().handle == device_memory.Stream(urgent=True).handle == 55
    assert made == [0, -5]


def test_a_graph_runs_once_is_captured_and_repeated(recorder: Recorder) -> None:
    stream: Any = SimpleNamespace(handle=55, intake=recorder, synchronize=lambda: recorder.calls.append(("synchronize",)))
    graph = cuda.Graph(stream, lambda: recorder.calls.append(("work",)))
    graph.launch()
    graph.launch()
    assert [call[0] for call in recorder.calls] == [
        *("work", "synchronize", "cuStreamBeginCapture", "work", "cuStreamEndCapture", "cuGraphInstantiate"),
        *("cuGraphDestroy", "cuGraphLaunch", "cuGraphLaunch"),
    ]
    assert recorder.calls[-1] == ("cuGraphLaunch", 77, 55)


@pytest.mark.parametrize(
    "name", ["reference", "keyed", *(pytest.param(n, marks=pytest.mark.gpu) for n in ("ccm", "clcb", "keyed_cuda"))]
)
def test_distances_are_rounded_at_every_step(name: str) -> None:
    """Points on which `x² + y² <= r²` is answered otherwise when a multiplication and the addition are fused."""
    points = [(1.209, 7.627), (3.941, 4.462), (8.933, 7.74), (6.327, 6.07)]
    radii = [7.722228305353319, 5.953228115904849, 11.819733034210206, 8.767886233294773]
    filters = [make_filter(str(i), [], [0.0, 0.0, r]) for i, r in enumerate(radii)]
    events = [make_event({}, p) for p in points * 20]  # enough for every engine to take its GPU
    table = Table.from_filters(filters)
    answers = open_engine(name, table).match(Events.of(events).encode(table.vocabulary))
    assert answers.labels(table.labels) == [match_naive(filters, event) for event in events]
    assert answers.labels(table.labels)[:4] == [["0", "2", "3"], ["0", "1", "2", "3"], [], ["2"]]


def test_a_kernel_that_several_threads_need_first_is_loaded_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    loading: list[int] = []
    loaded = []

    def load(code: object) -> int:
        loading.append(1)
        time.sleep(0.01)
        assert len(loading) == 1, "two threads load at a time"
        loaded.append(loading.pop())
        return 7

    gpu = SimpleNamespace(compute_capability=(9, 0))
    monkeypatch.setattr(cuda, "call", lambda function: 1)
    monkeypatch.setattr(cuda, "cuda", SimpleNamespace(get_current_device=lambda: gpu))
    monkeypatch.setattr(kernel_code, "find", lambda label, capability: KernelCode("a kernel", b""))
    monkeypatch.setattr(cuda, "_loaded", load)
    kernels, together = [cuda.Kernel(lambda: None, "void()") for _ in range(2)], threading.Barrier(8)

    def handle(n: int) -> int:
        together.wait()
        return kernels[n % 2]._handle()

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(handle, range(8))) == [7] * 8
    assert len(loaded) == len(kernels)
