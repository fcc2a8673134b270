"""The registry: an entry for each engine, with what is known of it before it is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


class Entry(NamedTuple):
    """An engine of the registry.

    engine, options  its class, and its options if it has any, as `module:name`: imported lazily, so that asking for options
                     needs neither Numba's CUDA nor a GPU
    says             a description of one line
    runs_on          "GPU" or "CPU"
    takes_changes    `Engine.takes_changes`
    cost_class       the work of an event: "indexed", by the filters that it has the features of; "scanned", by all
                     constraints on its names (`cluster.distribution.cost_model`)
    on_cpu           an option, and its values with which an engine for a GPU needs none
    """

    engine: str
    says: str
    options: str = ""
    runs_on: Literal["CPU", "GPU"] = "CPU"
    takes_changes: bool = False
    cost_class: Literal["indexed", "scanned"] = "indexed"
    on_cpu: tuple[str, tuple[str, ...]] = ("", ())

    def needs_gpu(self, given: Mapping[str, object]) -> bool:
        """True if it runs on a GPU, with these options by key."""
        option, values = self.on_cpu
        return self.runs_on == "GPU" and given.get(option) not in values


REGISTRY = {
    "reference": Entry(
        "mpi_match.engines.reference:Reference",
        "asks the model about every filter",
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
        "counts by Siena's index of predicates (Carzaniga and Wolf, SIGCOMM 2003; baseline)",
        "mpi_match.lab.baselines.sff.options:SFF_OPTIONS",
        cost_class="scanned",
    ),
    "betree": Entry(
        "mpi_match.lab.baselines.betree.engine:BeTree",
        "divides filters by names and values in turn (Sadoghi and Jacobsen, SIGMOD 2011; baseline)",
        "mpi_match.lab.baselines.betree.options:BETREE_OPTIONS",
    ),
    "rtree": Entry(
        "mpi_match.lab.baselines.rtree.engine:RTree",
        "an R*-tree of the areas (libspatialindex by the package rtree; baseline)",
    ),
    "duckdb": Entry(
        "mpi_match.lab.baselines.duckdb:DuckDb",
        "counts satisfied constraints in SQL (the package duckdb; baseline)",
        cost_class="scanned",
    ),
    "keyed": Entry(
        "mpi_match.engines.keyed.cpu:Keyed",
        "looks at filters that share rare features with the event",
        takes_changes=True,
    ),
    "keyed_cuda": Entry(
        "mpi_match.engines.keyed.cuda:KeyedCuda",
        "the same index, thousands of events at a time",
        runs_on="GPU",
        takes_changes=True,
    ),
    "twophase": Entry(
        "mpi_match.engines.twophase.engine:TwoPhase",
        "predicates first, then clusters of filters (Farroukh et al., DEBS 2009)",
        "mpi_match.engines.twophase.options:TWOPHASE_OPTIONS",
    ),
    "ccm": Entry(
        "mpi_match.engines.ccm.engine:Ccm",
        "a thread for each constraint (Margara and Cugola, DEBS 2011)",
        "mpi_match.engines.ccm.options:CCM_OPTIONS",
        runs_on="GPU",
        cost_class="scanned",
    ),
    "clcb": Entry(
        "mpi_match.engines.clcb.engine:Clcb",
        "areas first, then constraints (Cugola and Margara, Middleware 2012)",
        "mpi_match.engines.clcb.options:CLCB_OPTIONS",
        runs_on="GPU",
        takes_changes=True,
        cost_class="scanned",
    ),
    "tagmatch": Entry(
        "mpi_match.engines.tagmatch.engine:TagMatch",
        "tag sets only: signatures, by partitions (Rogora et al., EuroSys 2017); --set variant=cpu: CPU",
        "mpi_match.engines.tagmatch.options:TAGMATCH_OPTIONS",
        runs_on="GPU",
        takes_changes=True,
        on_cpu=("variant", ("cpu", "prefix-tree")),
    ),
}
