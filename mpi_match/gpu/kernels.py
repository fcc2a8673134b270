"""The only import of Numba's CUDA: kernels, cheap launches, and graphs; it also re-exports devices (`gpu.driver`) and memory
(`device_memory`, `pinned_memory`) for the GPU engines.

Numba compiles the kernels, and its simulator runs them on machines without a GPU.  Copies, launches, graphs and waiting call
the driver through `cuda.bindings`, because Numba's own launch costs 30 µs and 8 µs more for each array:

    numba:   kernel[grid, block](a, b, c)            types, wraps and unpacks every argument, each time
    here:    launch = kernel.bind(grid, block, args)   unpacks them once
             launch(stream)                            one driver call
             Graph(stream, record).launch()            one driver call for copies and kernels together

A kernel takes only one-dimensional contiguous arrays, 64-bit integers, and NamedTuples of these.  So its arguments are seven
words for an array (of which only the pointer and the length matter) and one for an integer, and binding fills in a table of
words.  A NamedTuple has the words of its fields, so it costs a launch nothing.

No GPU is used before `open_gpu`.  Under the simulator (`NUMBA_ENABLE_CUDASIM=1`) device memory is NumPy arrays, a launch
runs the kernel's Python code, and a graph repeats what was recorded.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from hashlib import sha256
from importlib import import_module
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import compile_once
from mpi_match.errors import EngineError
from mpi_match.gpu import kernel_code
from mpi_match.gpu.device_memory import (
    DeviceArray,
    DeviceBuffer,
    Mark,
    Rows,
    Stream,
)
from mpi_match.gpu.driver import (
    GpuInfo,
    HeldMemory,
    call,
    current_context,
    driver,
    driver_versions,
    local_rank,
    refuse_forked,
    simulated,
    visible_gpus,
    words_of,
)
from mpi_match.gpu.kernel_code import ONE_VERSION_ALONE, Capability, KernelCode
from mpi_match.gpu.pinned_memory import PinnedBuffer, PinnedPool, PinnedRegions, pinned

try:
    from numba import cuda as _numba_cuda
    from numba.core import types as _numba_types
    from numba.cuda.core.sigutils import normalize_signature
except ImportError as _error:
    raise EngineError(f"GPU engines need numba-cuda ({_error}); install mpi-match[gpu], or use --engine keyed") from None

__all__ = [
    "DeviceArray",
    "DeviceBuffer",
    "Gpu",
    "GpuInfo",
    "Graph",
    "Kernel",
    "KernelLaunch",
    "Mark",
    "PinnedBuffer",
    "PinnedPool",
    "PinnedRegions",
    "Rows",
    "Stream",
    "cuda",
    "device_function",
    "device_twin",
    "driver_versions",
    "kernel",
    "local_rank",
    "open_gpu",
    "pinned",
    "simulated",
    "visible_gpus",
]

log = logging.getLogger(__name__)

_types: Any = _numba_types


def _modules_once(library: Any) -> list[Any]:
    """The modules of a device function or kernel and of all functions that it calls, each once.

    Numba-cuda 0.30 lists a module once for each chain of calls that leads to it: 2,699 entries for the 208
    modules of `scan_rows`, and compiles every entry.
    """
    found, waiting = dict[int, Any](), [library]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting += getattr(each, "_linking_libraries", ())
    return [each._module for each in found.values() if isinstance(each, type(library))]


if not simulated:
    import_module("numba.cuda.codegen").CUDACodeLibrary.modules = property(_modules_once)
cuda: Any = _numba_cuda
"""Numba's CUDA, for the bodies of kernels (`cuda.blockIdx`, `cuda.shared`, `cuda.atomic`); type checkers see only stubs of
it."""


def open_gpu(device: int | None = None) -> Gpu:
    """Choose a GPU and make it this thread's: number `device` of the visible ones, or the local rank modulo their number.

    Raises EngineError, in one line, if that GPU is missing.  The launcher and the cluster prevent two processes from
    sharing one (they compare `Gpu.info.uuid`).
    """
    refuse_forked()
    gpus = visible_gpus()
    if device is None:
        device = (local_rank() or 0) % len(gpus)
    if not 0 <= device < len(gpus):
        raise EngineError(f"there is no GPU {device}: {len(gpus)} visible, numbered from 0")
    return Gpu(gpus[device])


class Gpu:
    """One GPU, which makes buffers and streams.  `info` describes it; `n_bytes` is the memory allocated through this object,
    in bytes; `pinned_regions` is host memory that it copies from in place."""

    def __init__(self, info: GpuInfo) -> None:
        self.info = info
        self._held: weakref.WeakSet[HeldMemory] = weakref.WeakSet()
        self.pinned_regions = PinnedRegions()
        self.make_current()

    def make_current(self) -> None:
        """Make this GPU current in the calling thread, whichever context another library may have made current."""
        if simulated:
            return
        if getattr(_chosen, "index", None) != self.info.index:
            cuda.select_device(self.info.index)
            _chosen.index, _chosen.context = self.info.index, current_context()
        elif current_context() != _chosen.context:
            call(driver.cuCtxSetCurrent, _chosen.context)

    @property
    def n_bytes(self) -> int:
        return sum(memory.n_bytes for memory in self._held)

    def buffer(self, dtype: npt.DTypeLike) -> DeviceBuffer:
        """Device memory that grows on demand."""
        return DeviceBuffer(np.dtype(dtype), self._held)

    def upload(self, array: Array) -> DeviceArray:
        """Copy an array to new device memory; returns when the copy is complete."""
        flat = np.ascontiguousarray(array).reshape(-1)
        device = self.buffer(flat.dtype).array(max(len(flat), 1))
        stream = self.stream()
        stream.copy_in(device, flat)
        stream.synchronize()
        return device

    def stream(self, *, urgent: bool = False, keeps_lock: bool = False) -> Stream:
        """Create a stream; kernels of an `urgent` one run before those of others; `keeps_lock`: see `Stream`."""
        return Stream(urgent=urgent, keeps_lock=keeps_lock)


_chosen = threading.local()
"""`index` of the GPU that a thread uses, and its context; cached because selecting it again in Numba takes a global lock."""


Argument: TypeAlias = "DeviceArray | int | tuple[DeviceArray | int, ...]"
"""A kernel argument of a launch: an array, an integer, or a NamedTuple of these."""


_loading = threading.RLock()
"""Serialises compiling and loading of kernels."""


class Kernel:
    """A kernel of one signature, compiled at its first `load` or `bind` unless its code is on disk (`kernel_code`)."""

    def __init__(
        self,
        function: Callable[..., None],
        signature: str,
        max_registers: int | None = None,
        named_tuples: Sequence[type[tuple[object, ...]]] = (),
    ) -> None:
        self.function = function
        self.signature = signature
        self._max_registers, self._named_tuples = max_registers, named_tuples
        self._handles: dict[int, int] = {}
        self.__doc__ = function.__doc__
        self.name = function.__name__

    @cached_property
    def _simulated(self) -> Any:
        """The kernel as the simulator runs it."""
        return cuda.jit(self.function)

    @cached_property
    def _types(self) -> Any:
        names = vars(_types) | {each.__name__: partial(_named_tuple_type, each) for each in self._named_tuples}
        return normalize_signature(eval(self.signature, names))[0]  # as Numba itself reads a signature

    def load(self) -> None:
        """Compile the kernel, unless that was done before, and load it onto the current GPU."""
        if not simulated:
            self._handle()

    def _handle(self) -> int:
        """The driver's handle of the compiled kernel on the current GPU."""
        context = int(call(driver.cuCtxGetCurrent))
        if context not in self._handles:
            major, minor = cuda.get_current_device().compute_capability
            code = kernel_code.find(self.label, (major, minor)) or self._compiled_once((major, minor))
            with _loading:
                if context not in self._handles:  # no other thread was here meanwhile
                    self._handles[context] = self._loaded(code, (major, minor))
        return self._handles[context]

    def _loaded(self, code: KernelCode, capability: Capability) -> int:
        """Load the code, or compile it if the driver refuses it, as one older than the compiler of the package may."""
        try:
            return _loaded(code)
        except RuntimeError as refusal:
            log.info("the kernel %s is compiled again: %s", self.name, refusal)
            return _loaded(self._compiled_anew(capability))

    def _compiled_once(self, capability: Capability) -> KernelCode:
        """Compile the kernel, and keep its code, unless another process or thread has just done so."""
        with compile_once(f"{self.label}-{kernel_code.named(capability)}"), _loading:
            # in this order: some compile kernels within `compile_once`
            return kernel_code.find(self.label, capability) or self._compiled_anew(capability)

    def _compiled_anew(self, capability: Capability) -> KernelCode:
        """Compile the kernel, and keep its code."""
        code = self.compile(capability)
        kernel_code.keep(self.label, capability, code)
        return code

    def compile(self, capability: Capability) -> KernelCode:
        """Compile the kernel for a GPU that need not exist here.  Raises EngineError without the compiler's libraries.

        Numba's own kernels are compiled to assembly first, only to be searched for functions that no kernel here calls, and
        then again by the linker.
        """
        try:
            compiler: Any = import_module("numba.cuda.compiler")
            with _gpu_of(capability):
                found = compiler.compile_cuda(
                    self.function,
                    _types.void,
                    self._types,
                    nvvm_options={"fastmath": False, "opt": 3},
                    cc=capability,
                    max_registers=self._max_registers,
                    lto=import_module("numba.cuda.cudadrv.driver")._have_nvjitlink(),
                )
                library = found.library
                compiler.kernel_fixup(library.get_function(found.fndesc.llvm_func_name), False)
                cubin = library.get_cubin((*capability, "a" if capability[0] >= ONE_VERSION_ALONE else ""))
        except (ImportError, OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise EngineError(
                f"the kernel {self.name} does not compile here: {reason}; is mpi-match[gpu] installed?"
            ) from error
        return KernelCode(found.fndesc.llvm_func_name, bytes(cubin.code))

    @cached_property
    def label(self) -> str:
        """The kernel's unique name among all kernels of these sources."""
        described = " ".join((self.signature, str(self._max_registers), *kernel_code.described(self.function)))
        digest = sha256(described.encode()).hexdigest()[:16]
        return f"{self.function.__module__}.{self.function.__qualname__}-{digest}".replace(".<locals>", "")

    def bind(self, grid: Sequence[int], block: int, args: Sequence[Argument]) -> KernelLaunch:
        """Prepare a launch with these arguments: `grid` has one to three extents in blocks, `block` is a number of
        threads."""
        return KernelLaunch(self, tuple(grid), block, args)

    def ptx(self, compute_capability: Capability) -> str:
        """The kernel's assembly for a GPU that need not exist here.  Needs the compiler's libraries."""
        with _gpu_of(compute_capability):
            text, _ = cuda.compile_ptx(self.function, self._types, cc=compute_capability)
        return str(text)


class _AbsentGpu(NamedTuple):
    compute_capability: Capability


@contextmanager
def _gpu_of(capability: Capability) -> Iterator[None]:
    """Have Numba compile functions that kernels call, in the body, for a GPU of this capability instead of the current one,
    which may not exist."""
    dispatcher: Any = import_module("numba.cuda.dispatcher")
    present = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: _AbsentGpu(capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = present


def _loaded(code: KernelCode) -> int:
    """Load code onto the current GPU; returns the driver's handle of the kernel."""
    module = call(driver.cuModuleLoadData, code.cubin)
    return int(call(driver.cuModuleGetFunction, module, code.name.encode()))


def _named_tuple_type(cls: type[tuple[object, ...]], *fields: object) -> Any:
    return _types.BaseTuple.from_types(fields, cls)


def kernel(
    signature: str, max_registers: int | None = None, named_tuples: Sequence[type[tuple[object, ...]]] = ()
) -> Callable[[Callable[..., None]], Kernel]:
    """Decorator that makes a kernel.  `signature` is such as "void(int64[::1], Pair(uint32[::1], int64))"; `max_registers`
    limits the registers of a thread; `named_tuples` are the classes that the signature names, followed by the types of their
    fields."""
    return partial(Kernel, signature=signature, max_registers=max_registers, named_tuples=named_tuples)


def device_function(function: Callable[..., object]) -> Any:
    """Decorator of a function that kernels of the same module call."""
    return function if simulated else cuda.jit(device=True)(function)


@cache
def device_twin(function: Callable[..., object], **instead: Callable[..., object]) -> Any:
    """Makes a function that is compiled for the CPU (`compute.compile_cache`) callable from kernels, with the functions of
    its module that it calls; those named in `instead` are replaced by others."""
    plain: Any = getattr(function, "py_func", function)
    found = {name: plain.__globals__.get(name) for name in plain.__code__.co_names}
    called = {name: device_twin(each, **instead) for name, each in found.items() if hasattr(each, "py_func")}
    known = plain.__globals__ | called | instead
    return device_function(FunctionType(plain.__code__, known, plain.__name__, plain.__defaults__))


_simulating = threading.Lock()
"""Serialises the simulator, which runs one kernel at a time, whichever thread launches it."""


def _forked() -> None:
    global _loading, _simulating
    _loading, _simulating = threading.RLock(), threading.Lock()


os.register_at_fork(after_in_child=_forked)


class KernelLaunch:
    """A kernel with its arguments.  `set` changes an integer argument between launches."""

    def __init__(self, kernel_: Kernel, grid: tuple[int, ...], block: int, args: Sequence[Argument]) -> None:
        self._kernel = kernel_
        self._args = list(args)  # also keeps the arrays alive
        self._block = block
        words: list[int] = []
        self._word_of: list[int] = []
        for arg in args:
            self._word_of.append(len(words))
            for each in arg if isinstance(arg, tuple) else (arg,):
                words += _argument_words(each)
        self._words = np.array(words, np.int64)
        first = self._words.ctypes.data
        self._pointers = np.arange(first, first + self._words.nbytes, 8)  # the driver takes the address of each
        self.resize(grid)

    def resize(self, grid: Sequence[int]) -> None:
        """Change the extents of the grid."""
        x, y, z = (*grid, 1, 1)[:3]
        self._grid = (x, y, z)
        if not simulated:
            self._shape = (self._kernel._handle(), x, y, z, self._block, 1, 1, 0)
            self._parameters = self._pointers.ctypes.data

    @property
    def handle(self) -> int:
        """The driver's handle of the kernel on the current GPU."""
        return self._kernel._handle()

    @property
    def parameters(self) -> int:
        """Address of the pointers to the arguments."""
        return int(self._parameters)

    def set(self, index: int, value: int) -> None:
        """Change argument `index`, which is an integer."""
        self._args[index] = value
        self._words[self._word_of[index]] = value

    def __call__(self, stream: Stream) -> None:
        """Launch the kernel, unless the grid has no blocks."""
        if 0 in self._grid:
            return
        if simulated:
            with _simulating:
                self._kernel._simulated[self._grid, self._block](*self._simulated_args())
            return
        error = stream.intake.cuLaunchKernel(*self._shape, stream.handle, self._parameters, None)
        if error:
            shape = f"grid {self._grid} and block {self._block}"
            raise RuntimeError(f"launch of {self._kernel.name} with {shape}: {words_of(error)}")

    def _simulated_args(self) -> Iterator[Any]:
        """The arguments as the simulator takes them; it does not look for arrays in tuples."""
        arrays: Any = import_module("numba.cuda.simulator.cudadrv.devicearray")

        def fake(arg: DeviceArray | int) -> Any:
            return arrays.FakeCUDAArray(arg.memory) if isinstance(arg, DeviceArray) else arg

        for arg in self._args:
            if isinstance(arg, tuple):
                named_tuple: Any = type(arg)
                fields = (arrays.FakeWithinKernelCUDAArray(fake(a)) if isinstance(a, DeviceArray) else a for a in arg)
                yield named_tuple(*fields)
            else:
                yield fake(arg)


def _argument_words(arg: DeviceArray | int) -> tuple[int, ...]:
    """Numba's representation of an array: meminfo, parent, items, item size in bytes, data, then the extent and the
    stride."""
    if isinstance(arg, DeviceArray):
        return 0, 0, arg.size, arg.dtype.itemsize, arg.pointer, arg.size, arg.dtype.itemsize
    return (arg,)


class Graph:
    """Copies and launches that are recorded once and replayed with one driver call.

    `record` submits its work to `stream`.  It is executed once before it is captured (which loads its kernels; they must not
    be loaded during capture), so it must be harmless then.
    """

    def __init__(self, stream: Stream, record: Callable[[], None]) -> None:
        record()
        stream.synchronize()
        if simulated:
            self._again = record
            return
        # relaxed: Python may free other device memory meanwhile, which invalidates the capture in stricter modes
        call(driver.cuStreamBeginCapture, stream.handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            record()
        finally:
            captured = call(driver.cuStreamEndCapture, stream.handle)
        executable = call(driver.cuGraphInstantiate, captured, 0)
        call(driver.cuGraphDestroy, captured)
        weakref.finalize(self, driver.cuGraphExecDestroy, executable).atexit = False
        self._keep = record  # the arguments and buffers that the graph refers to
        self._launch = partial(stream.intake.cuGraphLaunch, int(executable), stream.handle)

    def launch(self) -> None:
        """Submit the recorded work to the stream again."""
        if simulated:
            self._again()
            return
        error = self._launch()
        if error:
            raise RuntimeError(f"launch of a graph: {words_of(error)}")
