"""The registry: one entry per engine, with everything known about the engine before it is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Need = Literal["areas", "constraints", "conditions", "any size", "any attributes"]
"""The properties of tables and events that some engines do not serve: areas; constraints other than `exists`; conditions;
more than 2^31 rows of any kind; any number of attributes of an event."""


class Entry(NamedTuple):
    """An engine of the registry.

    engine, options  its class and, if it has any, its options, as `module:name`; imported lazily, so that asking for options
                     needs neither Numba's CUDA nor a GPU
    says             a one-line description
    runs_on          "GPU" or "CPU"
    takes_changes    `Engine.takes_changes`
    cost_class       the filters that cost time per event: "indexed", those whose features the event has; "scanned", all with
                     constraints on its names (`cluster.distribution.cost_model`)
    on_cpu           an option, and those of its values with which a GPU engine runs on the CPU
    lacks            what it does not serve
    is_baseline      True for an engine that is there to compare with
    """

    engine: str
    says: str
    options: str = ""
    runs_on: Literal["CPU", "GPU"] = "CPU"
    takes_changes: bool = False
    cost_class: Literal["indexed", "scanned"] = "indexed"
    on_cpu: tuple[str, tuple[str, ...]] = ("", ())
    lacks: frozenset[Need] = frozenset()
    is_baseline: bool = False

    def needs_gpu(self, given: Mapping[str, object]) -> bool:
        """Tells whether the engine runs on a GPU when it is given these options, by key."""
        option, values = self.on_cpu
        return self.runs_on == "GPU" and given.get(option) not in values


REGISTRY = {
    "reference": Entry(
        "mpi_match.engines.reference:Reference",
        "evaluates every filter with the naive model",
        takes_changes=True,
        cost_class="scanned",
    ),
    "counting": Entry(
        "mpi_match.engines.counting:Counting",
        "counts satisfied constraints on the event's names",
        cost_class="scanned",
    ),
    "sff": Entry(
        "mpi_match.lab.baselines.sff.engine:Sff",
        "counts with Siena's predicate index (Carzaniga and Wolf, SIGCOMM 2003; baseline)",
        "mpi_match.lab.baselines.sff.options:SFF_OPTIONS",
        cost_class="scanned",
        is_baseline=True,
    ),
    "betree": Entry(
        "mpi_match.lab.baselines.betree.engine:BeTree",
        "partitions filters by name and value (Sadoghi and Jacobsen, SIGMOD 2011; baseline)",
        "mpi_match.lab.baselines.betree.options:BETREE_OPTIONS",
        is_baseline=True,
    ),
    "rtree": Entry(
        "mpi_match.lab.baselines.rtree.engine:RTree",
        "an R*-tree of the areas (package rtree, libspatialindex; baseline)",
        is_baseline=True,
    ),
    "duckdb": Entry(
        "mpi_match.lab.baselines.duckdb:DuckDb",
        "counts satisfied constraints in SQL (package duckdb; baseline)",
        cost_class="scanned",
        is_baseline=True,
    ),
    "keyed": Entry(
        "mpi_match.engines.keyed.cpu:Keyed",
        "indexes filters by their rarest features",
        takes_changes=True,
        lacks=frozenset({"any size"}),
    ),
    "keyed_cuda": Entry(
        "mpi_match.engines.keyed.cuda:KeyedCuda",
        "the same index on a GPU, thousands of events at a time",
        runs_on="GPU",
        takes_changes=True,
        lacks=frozenset({"any size", "any attributes"}),
    ),
    "twophase": Entry(
        "mpi_match.engines.twophase.engine:TwoPhase",
        "finds satisfied predicates first, then clusters of filters (Farroukh et al., DEBS 2009)",
        "mpi_match.engines.twophase.options:TWOPHASE_OPTIONS",
        lacks=frozenset({"any size"}),
    ),
    "ccm": Entry(
        "mpi_match.engines.ccm.engine:Ccm",
        "runs one GPU thread per constraint (Margara and Cugola, DEBS 2011)",
        "mpi_match.engines.ccm.options:CCM_OPTIONS",
        runs_on="GPU",
        cost_class="scanned",
        lacks=frozenset({"any size", "any attributes"}),
    ),
    "clcb": Entry(
        "mpi_match.engines.clcb.engine:Clcb",
        "tests areas first, then constraints (Cugola and Margara, Middleware 2012)",
        "mpi_match.engines.clcb.options:CLCB_OPTIONS",
        runs_on="GPU",
        takes_changes=True,
        cost_class="scanned",
        lacks=frozenset({"any size", "any attributes"}),
    ),
    "tagmatch": Entry(
        "mpi_match.engines.tagmatch.engine:TagMatch",
        "tag sets only: tests signatures, partition by partition (Rogora et al., EuroSys 2017); --set variant=cpu: CPU",
        "mpi_match.engines.tagmatch.options:TAGMATCH_OPTIONS",
        runs_on="GPU",
        takes_changes=True,
        on_cpu=("variant", ("cpu", "prefix-tree")),
        lacks=frozenset({"areas", "constraints", "conditions", "any size"}),
    ),
}

AUTO = ("keyed_cuda", "keyed")
"""Engines that `auto` tries, in order."""
LAST = "counting"
"""Engine that `auto` opens when a fixed table is too large for all of these."""


def can_serve(*needs: Need) -> str:
    """Return the end of the error message of an engine that lacks these needs: which engines "can serve it".

    Names those that `auto` may open, and others only if none of these can; also one for a table that changes.
    """
    able = [name for name, entry in REGISTRY.items() if entry.lacks.isdisjoint(needs) and not entry.is_baseline]
    best = [name for name in able if name in AUTO] or [name for name in able if name == LAST]
    changing = [name for name in able if REGISTRY[name].takes_changes]
    said = f"{' and '.join(best)} can serve it"
    return said if set(best) & set(changing) else f"{said}, and {' and '.join(changing)} if it changes"
