"""Who may import whom: the layers of the design, read from the sources; what an import loads, seen in a fresh process.

    cli                 everything
    tools               bench, verify, export, ...: data and engines; MPI is the cluster's business
    cluster             data and engines; the only door to MPI
    engines             data; `gpu.kernels` is the only door to Numba's CUDA, `gpu.driver` to the driver
    spark_prep          data; the only door to Spark
    data                one another; `storage` is the only door to HDF5

Importing `mpi4py.MPI` initialises MPI, importing numba takes half a second and importing pyspark more; none of them may
happen because somebody asked for `--help`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("mpi_match", "spark_prep")
DATA = {
    *(
        "answer_parts",
        "arrays",
        "batch",
        "change_log",
        "change_stream",
        "changes",
        "columns",
        "constraints",
        "draft",
        "event_table",
        "filter_columns",
    ),
    *(
        "chains",
        "events",
        "journal_file",
        "live_table",
        "matches",
        "model",
        "parted",
        "plain_rows",
        "program",
        "recoding",
        "register",
        "rows",
    ),
    *("large_table", "run_manifest", "standing", "storage", "strings", "table", "table_arrays", "table_check", "vocabulary"),
}
MAY_IMPORT = {
    "data": {"data"},
    "engines": {"data", "engines"},
    "cluster": {"data", "engines", "cluster"},
    "tools": {"data", "engines", "tools"},
    "cli": {"data", "engines", "cluster", "tools", "cli"},
    "spark_prep": {"data", "spark_prep"},
}


class Import(NamedTuple):
    """One imported module or name; `lazy` when it happens inside a function or for types only."""

    name: str
    lazy: bool


def imports_of(source: str, module: str = "") -> set[Import]:
    """Every import in a source, `from a import b` as both `a` and `a.b`, relative ones made absolute."""

    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
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


def layer_of(module: str) -> str | None:
    """Layer of one of our modules; None for the package itself, whose names are imported lazily, and for foreign ones."""
    package, _, rest = module.partition(".")
    if package == "spark_prep":
        return "spark_prep"
    first = rest.split(".")[0]
    if package != "mpi_match" or not first:
        return None
    if first in ("engines", "cluster"):
        return first
    if first in ("cli", "exits", "__main__") or first.startswith("cli_"):
        return "cli"
    return "data" if first in DATA else "tools"


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
"""
    found = imports_of(source, "pkg.sub.mod")
    eager, lazy = ({i.name for i in found if i.lazy is late} for late in (False, True))
    assert eager == {"a.b", "c", "e", "e.f", "e.g", "pkg.sub", "pkg.sub.h", "pkg.sub.i", "pkg.sub.i.j", "q"}
    assert lazy == {"k", "l", "n", "n.o"}
    assert {"mpi_match.model", "mpi_match.engines.counting", "mpi_match.cluster.master", "spark_prep.job"} <= set(modules())
    assert {name for name in DATA if f"mpi_match.{name}" not in modules()} == set(), "a layer names a module that is gone"


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_layers(layer: str) -> None:
    wrong = {
        f"{module} imports {item.name}"
        for module, found in modules().items()
        if layer_of(module) == layer
        for item in found
        if layer_of(item.name) not in (None, *MAY_IMPORT[layer])
    }
    assert wrong == set()
    assert any(layer_of(module) == layer for module in modules())


def test_doors() -> None:
    assert importers_of("h5py") == {"mpi_match.storage.reader", "mpi_match.storage.writer"}
    assert importers_of("numba.cuda") == {"mpi_match.gpu.kernels"}
    assert importers_of("cuda") == {"mpi_match.gpu.driver"}
    assert {layer_of(module) for module in importers_of("pyspark")} == {"spark_prep"}
    assert {layer_of(module) for module in importers_of("numba")} == {"engines"}
    assert {layer_of(module) for module in importers_of("mpi4py.MPI")} == {"cluster"}


def test_only_one_module_has_compiled_code_cached() -> None:
    """Numba's cache does not notice when a function that is called changes, elsewhere; `compile_cache` sees to that."""
    paths = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    calls = [(path, node) for path in paths for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert {path.name for path, call in calls if "cache" in {each.arg for each in call.keywords}} == {"kernel_cache.py"}
    assert not {path.name for path, call in calls if "enable_caching" in ast.unparse(call.func)}


def test_engines_and_data_know_no_mpi() -> None:
    assert not {m for m in importers_of("mpi4py") if layer_of(m) in ("data", "engines", "tools", "spark_prep")}


def test_master_and_worker_are_strangers() -> None:
    master, worker = modules()["mpi_match.cluster.master"], modules()["mpi_match.cluster.worker"]
    assert not any(item.name.startswith("mpi_match.cluster.worker") for item in master)
    assert not any(item.name.startswith("mpi_match.cluster.master") for item in worker)


@pytest.mark.parametrize("module", ["dispatch", "groups", "instructions", "regrouping"])
def test_the_dispatcher_is_pure(module: str) -> None:
    """No MPI, no clock, no files, no threads: state in, decisions out."""
    allowed = {"__future__", "collections", "dataclasses", "enum", "typing", "mpi_match"}
    found = {item.name for item in modules()[f"mpi_match.cluster.{module}"]}
    assert {name.split(".")[0] for name in found} <= allowed
    assert not {name for name in found if layer_of(name) in ("engines", "cli", "tools")}


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
        ("spark_prep", ()),
    ],
)
def test_what_an_import_loads(module: str, may_load: tuple[str, ...], repository: Path) -> None:
    script = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=repository, check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) <= set(may_load)
