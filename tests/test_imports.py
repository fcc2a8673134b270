"""Imports between packages: the folders are the layers, imports go downwards only; and modules that an import loads.

Importing `mpi4py.MPI` initialises MPI, importing numba takes half a second and importing pyspark more; none of them may
happen because of a `--help`.

    python tests/test_imports.py [CHECKOUT]      packages, arrows and circles of a tree
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(sys.argv[1] if __name__ == "__main__" and sys.argv[1:] else Path(__file__).parent.parent).resolve()
PACKAGES = ("mpi_match", "spark_prep")
LAYERS = (
    "__main__",
    "lab",
    "cli",
    "commands spark_prep",
    "frames",
    "cluster live",
    "api",
    "verify",
    "monitor engines",
    "gpu",
    "changes",
    "languages",
    "ingest",
    "events matches",
    "table journal",
    "compute",
    "storage",
    "arrays environment",
    "model",
    "errors",
    "exit_codes humanize operators",
    "texts",
)
"""Top to bottom: a package imports from those below it, and those of its own line do not import each other."""


class Import(NamedTuple):
    """One imported module or name; `lazy` when it happens inside a function or for types only."""

    name: str
    lazy: bool


def imports_of(source: str, module: str = "") -> set[Import]:
    """Every import in a source, `from a import b` as both `a` and `a.b`, relative ones made absolute.

    Imports under `if __name__ == "__main__"` do not count: an entry point is above everything.
    """

    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and ast.unparse(child.test) == "__name__ == '__main__'":
                continue
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, lazy) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                parent = module.rsplit(".", child.level)[0] if child.level else ""
                base = ".".join(part for part in (parent, child.module or "") if part)
                yield Import(base, lazy)
                yield from (Import(f"{base}.{alias.name}", lazy) for alias in child.names)
            inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from visit(child, lazy or inside or for_types)

    return set(visit(ast.parse(source), lazy=False))


@cache
def modules() -> dict[str, set[Import]]:
    """Imports of every module of the project, by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = imports_of(path.read_text(encoding="utf-8"), name)
    return found


def package_of(module: str) -> str | None:
    """The package, or module at the top, of a module of ours; None for foreign ones and for `mpi_match` itself."""
    package, _, rest = module.partition(".")
    if package == "spark_prep":
        return package
    return rest.split(".")[0] or None if package == "mpi_match" else None


def depth_of(package: str) -> int:
    """Line of `LAYERS` that a package is in."""
    (found,) = (depth for depth, packages in enumerate(LAYERS) if package in packages.split())
    return found


ROOMS = ("batches", "columns", "json", "codes", "files", "rows")
"""Top to bottom, the rooms of `ingest`, read as `LAYERS` is."""


def ours(found: set[Import], importer: str) -> Iterator[str]:
    """Modules of the project among what a module imports."""
    for item in found:
        name = item.name if item.name in modules() else item.name.rpartition(".")[0]
        if name in modules() and name != importer:
            yield name


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of two or more that import each other, directly or by others (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(at: str) -> None:
        index[at] = low[at] = len(index)
        stack.append(at)
        for to in arrows.get(at, ()):
            if to not in index:
                visit(to)
            if to in stack:
                low[at] = min(low[at], low[to])
        if low[at] == index[at]:
            members = stack[stack.index(at) :]
            del stack[stack.index(at) :]
            if len(members) > 1:
                found.append(sorted(members))

    for each in sorted(arrows):
        if each not in index:
            visit(each)
    return found


def importers_of(name: str) -> set[str]:
    """Modules that import `name` or anything in it."""
    return {m for m, found in modules().items() if any(i.name == name or i.name.startswith(name + ".") for i in found)}


def test_imports_are_read() -> None:
    source = """
import a.b, c as d
from e import f, g
from . import h
from .i import j
if TYPE_CHECKING:
    import k
def later():
    import l
    class M:
        from n import o
class P:
    import q
if __name__ == "__main__":
    import r
"""
    found = imports_of(source, "pkg.sub.mod")
    eager, lazy = ({i.name for i in found if i.lazy is late} for late in (False, True))
    assert eager == {"a.b", "c", "e", "e.f", "e.g", "pkg.sub", "pkg.sub.h", "pkg.sub.i", "pkg.sub.i.j", "q"}
    assert lazy == {"k", "l", "n", "n.o"}
    assert {"mpi_match.model", "mpi_match.engines.counting", "mpi_match.cluster.master", "spark_prep.job"} <= set(modules())


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"f"}, "f": {"e"}}) == [
        ["a", "b", "c"],
        ["e", "f"],
    ]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_every_package_has_a_layer() -> None:
    packages = {package for module in modules() if (package := package_of(module)) is not None}
    assert packages == {package for line in LAYERS for package in line.split()}


def test_imports_go_downwards() -> None:
    upwards = {
        f"{module} imports {name}"
        for module, found in modules().items()
        if (package := package_of(module)) is not None
        for name in ours(found, module)
        if (other := package_of(name)) not in (None, package) and depth_of(other) <= depth_of(package)
    }
    assert upwards == set()


def test_no_module_imports_itself_by_way_of_others() -> None:
    arrows: defaultdict[str, set[str]] = defaultdict(set)
    for module, found in modules().items():
        arrows[module] |= set(ours(found, module))
    assert circles(arrows) == []


def test_no_folder_imports_itself_by_way_of_others() -> None:
    """In every package the folders and modules that it holds have an order; a module of a folder counts as the folder."""
    found = {}
    for package in {module.rpartition(".")[0] for module in modules()} - {""}:
        arrows: defaultdict[str, set[str]] = defaultdict(set)
        below = (module for module in modules() if module.startswith(f"{package}."))
        inside = {module: module.removeprefix(f"{package}.").split(".")[0] for module in below}
        for module, child in inside.items():
            arrows[child] |= {inside[name] for name in ours(modules()[module], module) if name in inside} - {child}
        if wrong := circles(arrows):
            found[package] = wrong
    assert found == {}


def test_rooms_of_ingest_import_downwards() -> None:
    depth = {room: level for level, line in enumerate(ROOMS) for room in line.split()}
    upwards = {
        f"{module} imports {name}"
        for module, found in modules().items()
        for name in ours(found, module)
        if module.startswith("mpi_match.ingest.")
        and name.startswith("mpi_match.ingest.")
        and (room := module.split(".")[2]) != (other := name.split(".")[2])
        and depth[other] <= depth[room]
    }
    assert upwards == set()


def test_the_laboratory_is_at_the_top() -> None:
    """Nothing outside it imports it; the command line names its commands and imports one that is asked for."""
    assert {package_of(module) for module in importers_of("mpi_match.lab")} == {"lab"}


def test_doors() -> None:
    assert importers_of("h5py") == {f"mpi_match.storage.{module}" for module in ("reader", "structure", "writer")}
    assert importers_of("numba.cuda") == {"mpi_match.gpu.kernels"}
    assert importers_of("cuda") == {"mpi_match.gpu.driver"}
    assert {package_of(module) for module in importers_of("pyspark")} == {"spark_prep"}
    assert {package_of(module) for module in importers_of("numba")} <= {"compute", "gpu", "engines", "lab"}
    assert {package_of(module) for module in importers_of("mpi4py.MPI")} == {"cluster"}
    # cli asks that MPI be left to the run
    assert {package_of(module) for module in importers_of("mpi4py")} <= {"cluster", "cli"}


def test_only_one_module_has_compiled_code_cached() -> None:
    """Numba's cache does not notice changes of called functions in other files; `compile_cache` does."""
    paths = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    calls = [(path, node) for path in paths for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert {path.name for path, call in calls if "cache" in {each.arg for each in call.keywords}} == {"compile_cache.py"}
    assert not {path.name for path, call in calls if "enable_caching" in ast.unparse(call.func)}


def defined(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Public classes and constants of a module, by name; whether each is a class.  Type variables are neither."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, True
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        names = [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
        yield from (
            (name.id, False)
            for name in names
            if isinstance(name, ast.Name) and name.id.isupper() and not name.id.startswith("_") and len(name.id) > 1
        )


def test_a_name_means_one_thing() -> None:
    """No two public classes share a name, and no public constant is defined in two modules."""
    homes: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for module in modules():
        path = REPOSITORY.joinpath(*module.split("."))
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for each in dict.fromkeys(defined(ast.parse(source.read_text(encoding="utf-8")))):
            homes[each].append(module)
    assert {name: found for (name, _), found in homes.items() if len(found) > 1} == {}
    assert ("Table", True) in homes
    assert ("ENCODED_AT_ONCE", False) in homes


def test_master_and_worker_are_strangers() -> None:
    master, worker = modules()["mpi_match.cluster.master"], modules()["mpi_match.cluster.worker"]
    assert not any(item.name.startswith("mpi_match.cluster.worker") for item in master)
    assert not any(item.name.startswith("mpi_match.cluster.master") for item in worker)


def test_scheduling_is_pure() -> None:
    """No MPI, no clock, no files, no threads: state in, decisions out."""
    allowed = {"__future__", "collections", "dataclasses", "enum", "math", "typing", "mpi_match"}
    for module, found in modules().items():
        if module.startswith("mpi_match.cluster.scheduling."):
            assert {item.name.split(".")[0] for item in found} <= allowed, module
            assert {package_of(item.name) for item in found if item.name.startswith("mpi_match")} <= {
                "cluster",
                "arrays",
                None,
            }, module


HEAVY = ("h5py", "mpi4py.MPI", "numba", "numba.cuda", "pyarrow", "pyspark")


@pytest.mark.parametrize(
    ("module", "may_load"),
    [
        ("mpi_match", ()),
        ("mpi_match.cli.main", ()),
        ("mpi_match.cluster", ()),
        ("mpi_match.commands.doctor", ()),
        ("mpi_match.environment.source_digest", ()),
        ("mpi_match.model", ()),
        ("mpi_match.table.vocabulary", ()),
        ("mpi_match.engines", ("h5py",)),
        ("mpi_match.api", ("h5py",)),
        ("mpi_match.table.table", ("h5py",)),
        ("mpi_match.events.event_table", ("h5py",)),
        ("mpi_match.matches.matches", ("h5py",)),
        ("mpi_match.engines.counting", ("h5py",)),
        ("mpi_match.cluster.local_run", ("h5py",)),
        ("mpi_match.cluster.followed_alone", ("h5py",)),
        ("mpi_match.cluster.mpi_run", ("h5py", "mpi4py.MPI")),
        ("spark_prep", ()),
    ],
)
def test_what_an_import_loads(module: str, may_load: tuple[str, ...], repository: Path) -> None:
    script = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=repository, check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) <= set(may_load)


def summary() -> str:
    """Packages (and modules at the top), arrows between them, circles of modules and of packages."""
    inside: defaultdict[str, set[str]] = defaultdict(set)
    between: defaultdict[str, set[str]] = defaultdict(set)
    for module, found in modules().items():
        inside[module] |= set(ours(found, module))
        for name in inside[module]:
            package, other = package_of(module), package_of(name)
            if package != other and package is not None and other is not None:
                between[package].add(other)
    packages = {package for module in modules() if (package := package_of(module)) is not None}
    counts = f"{len(packages)} packages, {sum(map(len, between.values()))} arrows, {len(modules())} modules"
    return f"{counts}\ncircles of modules: {circles(inside)}\ncircles of packages: {circles(between)}"


if __name__ == "__main__":
    sys.stdout.write(summary() + "\n")
