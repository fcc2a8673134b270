"""`compute/compile_cache.py`: compiled code on disk is found again, and never that of other sources.

A package of a few lines, with the real modules for the digest and the cache in it, is run by fresh processes and changed
between them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import llvmlite.binding
import pytest
from lasting import lasting

from mpi_match.compute import compile_cache
from mpi_match.compute.compile_cache import compile_once
from mpi_match.engines.keyed import cpu_search
from mpi_match.environment import source_digest

PLAIN, OURS = "numba.njit(cache=True)", "compile_cache.jit"
DECORATOR = """
import numba
from mpi_match.compute import compile_cache
decorate = {decorator}
"""
CALLER = """
from mpi_match.callee import answer
from mpi_match.decorator import decorate

@decorate
def ask():
    return answer()
"""
CALLEE = """
from mpi_match.compute.compile_cache import inlined

@inlined
def answer():
    return {answer}
"""
SCRIPT = """
import logging
import os
import sys
sys.modules.update(dict.fromkeys(("coverage", "yaml")))  # see `quick_numba`
import numba
from mpi_match.compute import compile_cache
logging.basicConfig(level=os.environ.get("LOGGED", "WARNING"), format="%(message)s", stream=sys.stdout)
compile_cache.COMPILE_WAIT_S = float(os.environ.get("PATIENCE_S", compile_cache.COMPILE_WAIT_S))
from mpi_match.caller import ask
with compile_cache.compile_once("ask") as missing:
    if missing:
        ask()
print(ask(), "loaded" if ask.stats.cache_hits else "compiled", repr(numba.config.CACHE_DIR))
"""
DAY_S = 24 * 3600
V3, V4 = "x86-64-v3", "x86-64-v4"


FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
"""


class Tiny:
    """The package and the processes that run it; the user's cache directory is `caches`."""

    def __init__(self, root: Path, repository: Path) -> None:
        self.root, self.caches = root / "tree", root / "caches"
        (self.root / "mpi_match" / "compute").mkdir(parents=True)
        (self.root / "mpi_match" / "environment").mkdir()
        for name in (
            "environment/source_digest.py",
            "compute/code_files.py",
            "compute/compile_cache.py",
            "compute/compile_notice.py",
            "compute/nested_compiler.py",
        ):
            shutil.copy(repository / "mpi_match" / name, self.root / "mpi_match" / name)
        self.write("__init__", "")
        self.write("compute/__init__", "")
        self.write("environment/__init__", "")
        self.write("caller", CALLER)
        self.write("decorator", DECORATOR.format(decorator=OURS))
        self.write("callee", CALLEE.format(answer=1))

    def write(self, module: str, source: str) -> None:
        (self.root / "mpi_match" / f"{module}.py").write_text(source)

    def start(self, before: str = "", **variables: str) -> subprocess.Popen[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        environment = inherited | {"PYTHONPATH": str(self.root), "XDG_CACHE_HOME": str(self.caches)} | variables
        command = [sys.executable, "-B", "-c", before + SCRIPT]
        return subprocess.Popen(command, env=environment, cwd=self.root, stdout=subprocess.PIPE, text=True)

    def ask(self, before: str = "", **variables: str) -> str:
        """The answer, whether it was compiled or loaded, and where Numba caches what others decorate."""
        with self.start(before, **variables) as process:
            said = process.communicate()[0].strip()
        assert process.returncode == 0
        return said

    def ship(self, processor: str = V3) -> Path:
        """Compile as for a wheel; returns the file of code."""
        self.ask(
            NUMBA_CACHE_DIR=str(self.root / "mpi_match" / "compiled"),
            NUMBA_CPU_NAME=processor,
            NUMBA_CPU_FEATURES="",
        )
        (file,) = (self.root / "mpi_match" / "compiled").glob(f"*-{processor}-*/*/*.nbc")
        return file

    def lock(self) -> IO[str]:
        """The lock that a process holds while it compiles, held."""
        (place,) = self.directories()
        lock = (place / "ask.lock").open("a")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def mark(self) -> Path:
        """The file that marks `ask` as compiled."""
        (place,) = self.directories()
        return place / "ask.compiled"

    def directories(self) -> list[Path]:
        return sorted((self.caches / "mpi-match").iterdir())

    def compiled(self) -> list[Path]:
        """All of Numba's files below the package and the cache directory."""
        return sorted(self.root.parent.rglob("*.nb[ic]"))


@pytest.fixture
def tiny(tmp_path: Path, repository: Path) -> Tiny:
    return Tiny(tmp_path, repository)


@pytest.fixture(scope="module")
def once_asked(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    root = tmp_path_factory.mktemp("asked")
    assert Tiny(root, repository).ask() == "1 compiled ''"
    return root


@pytest.fixture
def asked(once_asked: Path, tiny: Tiny) -> Tiny:
    """One that a process has asked before: its code is there."""
    shutil.copytree(once_asked, tiny.root.parent, dirs_exist_ok=True)
    return tiny


def test_what_is_compiled_is_found_again(tiny: Tiny) -> None:
    """And loaded without the modules that only compiling needs."""
    loads = "import atexit, sys; atexit.register(lambda: print('numba.typed.typedlist' in sys.modules))\n"
    assert [tiny.ask(loads), tiny.ask(loads)] == ["1 compiled ''\nTrue", "1 loaded ''\nFalse"]
    assert len(tiny.directories()) == 1


def test_only_its_owner_enters_a_directory_of_code(tiny: Tiny) -> None:
    """With a umask that gives a group, or everybody, the right to write."""
    tiny.ask("import os; os.umask(0)\n")
    assert [stat.S_IMODE(each.stat().st_mode) for each in (tiny.caches / "mpi-match", *tiny.directories())] == [0o700] * 2


def test_code_that_others_may_have_placed_is_not_loaded(asked: Tiny) -> None:
    (place,) = asked.directories()
    place.chmod(0o770)
    *said, answer = asked.ask(LOGGED="INFO").splitlines()
    assert answer == "1 compiled ''"
    why = "other users can write to it; revoke that permission, or remove it"
    assert said == [f"compiled code is not kept, so every process compiles: {place}: {why}"]
    assert asked.ask() == "1 compiled ''"
    place.chmod(0o700)
    place.parent.chmod(0o777)  # as earlier versions made it with some umasks
    assert asked.ask() == "1 loaded ''"
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    place.rename(place.with_name("moved"))
    place.symlink_to(place.with_name("moved"))
    assert asked.ask() == "1 compiled ''"


def test_a_directory_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_cache._refuse_shared(tmp_path)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 12345)
    monkeypatch.setattr(Path, "lstat", lambda path: os.stat_result((0o40700, 0, 0, 1, 7, 7, 0, 0, 0, 0)))
    with pytest.raises(OSError, match="it belongs to another user"):
        compile_cache._refuse_shared(tmp_path)


def test_a_directory_that_others_can_write_is_used_if_they_can_only_add_to_it(tiny: Tiny, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    for mode, kept in ((0o1777, 1), (0o777, 0)):
        chosen.chmod(mode)
        tiny.ask(NUMBA_CACHE_DIR=str(chosen))
        assert len(list(chosen.iterdir())) == kept
        for each in chosen.iterdir():
            shutil.rmtree(each)


def test_a_directory_at_its_quota_keeps_nothing_and_fails_nothing(tiny: Tiny) -> None:
    """Simulated by a limit on the size of files."""
    said = tiny.ask(FULL, LOGGED="INFO").splitlines()
    (place,) = tiny.directories()
    assert said[-1] == "1 compiled ''"
    assert [line for line in said if "not kept" in line and str(place) in line and line.endswith(": File too large")]
    assert not list(place.glob("*.compiled"))
    assert [tiny.ask(), tiny.ask()] == ["1 compiled ''", "1 loaded ''"]


def test_an_installation_elsewhere_of_the_same_sources_finds_it(asked: Tiny, tmp_path: Path) -> None:
    asked.root = shutil.copytree(asked.root, tmp_path / "elsewhere")
    assert asked.ask() == "1 loaded ''"


def test_a_process_that_compiles_logs_it_once_and_one_that_loads_does_not(tiny: Tiny) -> None:
    said = tiny.ask(LOGGED="INFO").splitlines()
    (place,) = tiny.directories()
    assert said == [
        f"compiling for this machine, which takes some seconds; the code is kept in {place}",
        "1 compiled ''",
    ]
    assert tiny.ask(LOGGED="INFO") == "1 loaded ''"


def test_one_process_compiles_and_those_that_wait_load(asked: Tiny) -> None:
    """Loaded is here what was compiled before; it was hidden until the other process freed the lock."""
    kept = {path: path.read_bytes() for path in [*asked.compiled(), asked.mark()]}
    for path in kept:
        path.unlink()
    with asked.lock() as lock, asked.start(LOGGED="INFO") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting for another process that is compiling for this machine\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        assert asked.compiled() == []
        for path, content in kept.items():
            path.write_bytes(content)
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert process.communicate()[0].strip() == "1 loaded ''"


def test_a_process_that_waits_in_vain_compiles(asked: Tiny) -> None:
    for path in [*asked.compiled(), asked.mark()]:
        path.unlink()
    with asked.lock():
        assert asked.ask(PATIENCE_S="0.1") == "1 compiled ''"
    assert asked.ask() == "1 loaded ''"


def test_compile_once_may_be_nested_and_fails_with_its_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "directory", lambda: tmp_path)

    def fail() -> None:
        with compile_once("outer") as outer, compile_once("inner") as inner:
            assert [outer, inner] == [True, True]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with compile_once("outer") as outer, compile_once("inner") as inner:
        assert [outer, inner] == [True, True]
    with compile_once("outer") as outer:
        assert not outer
    monkeypatch.setattr(compile_cache, "directory", lambda: None)
    with compile_once("other") as nowhere:
        assert nowhere


def test_the_time_of_compiling_is_known_and_that_of_what_is_nested_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cache, "directory", lambda: tmp_path)
    before = compile_cache.compile_s()
    began = time.perf_counter()
    with compile_once("outer"):
        time.sleep(0.01)
        with compile_once("inner"):
            time.sleep(0.02)
    spent = compile_cache.compile_s() - before
    assert 0.03 <= spent <= time.perf_counter() - began
    with compile_once("outer"):
        time.sleep(0.01)
    assert compile_cache.compile_s() - before == spent, "nothing was compiled"


def test_a_change_in_a_function_that_is_called_is_seen(asked: Tiny) -> None:
    (old,) = asked.directories()
    asked.write("callee", CALLEE.format(answer=2))
    assert asked.ask() == "2 compiled ''"
    (new,) = set(asked.directories()) - {old}
    asked.write("callee", CALLEE.format(answer=1))
    assert asked.ask() == "1 loaded ''", "what was compiled of these sources is still there"
    assert set(asked.directories()) == {old, new}


def test_without_it_the_change_would_not_be_seen(tiny: Tiny) -> None:
    """The test above can fail: this is what plain Numba does."""
    tiny.write("decorator", DECORATOR.format(decorator=PLAIN))
    before = tiny.ask()
    tiny.write("callee", CALLEE.format(answer=2))
    assert [before, tiny.ask()] == ["1 compiled ''", "1 loaded ''"]


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", *lasting("XDG_CACHE_HOME")])
def test_without_a_directory_nothing_is_kept_and_nothing_old_is_loaded(variable: str, tiny: Tiny, tmp_path: Path) -> None:
    """Old code of other sources is in `__pycache__`, where Numba would look next."""
    tiny.write("decorator", DECORATOR.format(decorator=PLAIN))
    tiny.ask()
    stale = tiny.compiled()
    assert {path.parent.name for path in stale} == {"__pycache__"}
    tiny.write("decorator", DECORATOR.format(decorator=OURS))
    tiny.write("callee", CALLEE.format(answer=2))
    (tmp_path / "a file").touch()
    said = [tiny.ask(**{variable: str(tmp_path / "a file")}) for _ in range(2)]
    assert [each.split()[:2] for each in said] == [["2", "compiled"]] * 2
    assert tiny.compiled() == stale


def test_numba_does_not_go_elsewhere_where_its_own_directory_cannot_be_written(asked: Tiny) -> None:
    (place,) = {path.parent for path in asked.compiled()}
    shutil.rmtree(place)
    place.touch()
    assert asked.ask() == "1 compiled ''"
    assert asked.compiled() == []


def test_the_users_choice_of_a_directory_holds(tiny: Tiny, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    said = [tiny.ask(NUMBA_CACHE_DIR=str(chosen)), tiny.ask(NUMBA_CACHE_DIR=str(chosen))]
    assert said == [f"1 compiled {str(chosen)!r}", f"1 loaded {str(chosen)!r}"]
    assert not tiny.caches.exists()


def test_numbas_other_places_are_not_asked_for(tiny: Tiny) -> None:
    """NUMBA_CACHE_LOCATOR_CLASSES would have the code in `__pycache__`, whatever the directory."""
    tiny.ask(NUMBA_CACHE_LOCATOR_CLASSES="InTreeCacheLocator")
    tiny.write("callee", CALLEE.format(answer=2))
    assert tiny.ask(NUMBA_CACHE_LOCATOR_CLASSES="InTreeCacheLocator") == "2 compiled ''"


def test_directories_that_are_unused_for_a_month_are_removed(asked: Tiny) -> None:
    (used,) = asked.directories()
    parent = used.parent
    for name, days in (("0" * 64 + "-cpu", 31), ("1" * 64 + "-cpu", 29), ("of-another-program", 99), ("2" * 64, 99)):
        (parent / name).mkdir()
        (parent / name / "file").touch()
        os.utime(parent / name, (time.time() - days * DAY_S,) * 2)
    os.utime(used, (time.time() - 31 * DAY_S,) * 2)
    asked.ask()
    assert used.stat().st_mtime > time.time() - DAY_S, "being used is noted"
    assert len(asked.directories()) == 5, "nothing is removed while no new directory is made"
    asked.write("callee", CALLEE.format(answer=2))
    assert asked.ask() == "2 compiled ''"
    left = {path.name for path in asked.directories()}
    assert {used.name, "1" * 64 + "-cpu", "of-another-program", "2" * 64} < left
    assert "0" * 64 + "-cpu" not in left


def test_processes_that_start_at_once(tiny: Tiny) -> None:
    started = [tiny.start(PATIENCE_S="600") for _ in range(4)]
    said = sorted(process.communicate()[0].strip() for process in started)
    assert said == ["1 compiled ''", *["1 loaded ''"] * 3], "one compiles, the others wait for it"


FEATURES = llvmlite.binding.get_host_cpu_features()
needs_v3, needs_v4 = (
    pytest.mark.skipif(not all(map(FEATURES.get, compile_cache.SHIPPED[each])), reason=f"the processor is not {each}")
    for each in (V3, V4)
)


@needs_v3
def test_code_that_comes_with_the_package_is_loaded_and_not_written_to(tiny: Tiny) -> None:
    file = tiny.ship()
    content = file.read_bytes()
    assert [tiny.ask(), tiny.ask()] == ["1 loaded ''"] * 2
    assert (tiny.compiled(), file.read_bytes()) == ([file], content)
    (place,) = tiny.directories()
    assert not list(place.iterdir()), "there is nothing to compile, to wait for or to mark"


@needs_v3
def test_code_that_comes_with_the_package_is_loaded_where_none_can_be_kept(tiny: Tiny) -> None:
    tiny.ship()
    tiny.caches.touch()
    assert tiny.ask() == "1 loaded ''"


@needs_v3
def test_code_for_the_own_processor_comes_before_that_of_the_package(asked: Tiny) -> None:
    (own,) = asked.compiled()
    asked.ship().write_bytes(b"")
    assert asked.ask() == "1 loaded ''"
    own.unlink()
    assert asked.ask() == "1 compiled ''"


@needs_v4
def test_code_of_the_package_for_the_better_processor_comes_first(tiny: Tiny) -> None:
    for processor in (V3, V4):
        tiny.ship(processor)
    (tiny.ship(V3)).write_bytes(b"")
    assert tiny.ask() == "1 loaded ''"


def renamed(place: Path, old: str, new: str) -> None:
    assert old in place.name
    place.rename(place.with_name(place.name.replace(old, new)))


@needs_v3
@pytest.mark.parametrize("library", ["numba", *lasting("llvmlite")])
def test_code_of_another_compiler_in_the_package_is_not_loaded(tiny: Tiny, library: str) -> None:
    version = sys.modules[library].__version__
    renamed(tiny.ship().parent.parent, f"{library}{version}", f"{library}{version}.1")
    assert [tiny.ask(), tiny.ask()] == ["1 compiled ''", "1 loaded ''"]


@needs_v3
def test_code_of_other_sources_in_the_package_is_not_loaded(tiny: Tiny) -> None:
    tiny.ship()
    tiny.write("callee", CALLEE.format(answer=2))
    assert tiny.ask() == "2 compiled ''"


@needs_v3
@pytest.mark.parametrize(("at", "is_cut"), [(40, False), *lasting((-1, True))], ids=["changed", "cut"])
def test_a_damaged_file_is_compiled_again(tiny: Tiny, at: int, is_cut: bool) -> None:
    """In the package; and in the user's directory."""
    for file in (tiny.ship(), None):
        if file is None:
            (file,) = (tiny.caches / "mpi-match").glob("*/*/*.nbc")
        content = file.read_bytes()
        changed = bytearray(content)
        changed[at] ^= 1
        file.write_bytes(content[:at] if is_cut else changed)
        assert [tiny.ask(), tiny.ask()] == ["1 compiled ''", "1 loaded ''"]


@pytest.mark.parametrize(
    "how",
    [
        "found = llvmlite.binding.get_host_cpu_features(); found['avx2'] = False; "
        "llvmlite.binding.get_host_cpu_features = lambda: found",
        *lasting(
            "import os; os.environ['NUMBA_ENABLE_AVX'] = '0'",
            "import os; os.environ['NUMBA_CPU_NAME'] = llvmlite.binding.get_host_cpu_name()",
        ),
    ],
    ids=["old processor", "no AVX", "chosen processor"],
)
def test_code_that_this_processor_cannot_or_shall_not_run_is_not_loaded(tiny: Tiny, how: str) -> None:
    tiny.ship()
    assert tiny.ask(f"import llvmlite.binding\n{how}\n") == "1 compiled ''"


def test_engines_use_it() -> None:
    place = compile_cache.directory()
    assert place is not None
    assert place.name.startswith(source_digest.digest())
    assert Path(cpu_search.match_blocks.stats.cache_path).parent == place
