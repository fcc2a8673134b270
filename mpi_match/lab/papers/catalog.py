"""Every table and figure of the five papers, with the experiment that reproduces it, or the reason why none does.

An experiment has the paper's parameters as a scenario and axes (`bench.sweep`), the faithful engine first, then baselines,
then our own.  `differs` names the deviations.  Events are matched one at a time, as in the papers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mpi_match.lab.bench.sweep import Axis
from mpi_match.lab.papers.published import titles
from mpi_match.lab.workloads.parameters import SETS


class Run(NamedTuple):
    """One sweep of an experiment.

    scenario, axes, fixed  as in `bench.sweep.Sweep`
    engines                by name, the faithful one first
    events                 number of events; the papers have 1,000
    batch                  events at a time
    steps                  report the times of the engines' phases
    moves                  number of interfaces that move afterwards
    load                   share of the rate that the first engine serves at the first point, at which events arrive; 0: they
                           do not wait for each other
    """

    scenario: str
    engines: tuple[str, ...]
    axes: tuple[Axis, ...] = ()
    fixed: Mapping[str, str] = {}
    events: int = 1000
    batch: int = 1
    steps: bool = False
    moves: int = 0
    load: float = 0.0


MPI_CUDA_MODE = ("--batch", "1", "--credits", "1", "--feed", "master")
"""Options of a run that sends each idle worker one event at a time."""


class RanksRun(NamedTuple):
    """Runs of a master and workers through the launcher, at each value of an axis.

    engine    of every worker, each of which has a GPU of its own if the engine needs one
    workers   how many; those for which there are no GPUs are left out
    how       options of `mpi-match run`
    events    that are matched, unless the axis has the key `events`
    """

    scenario: str
    engine: str
    workers: tuple[int, ...]
    axis: Axis | None = None
    how: tuple[str, ...] = MPI_CUDA_MODE
    events: int = 20_000


class Experiment(NamedTuple):
    """A table or figure of a paper.

    name       of the experiment: system and artifact
    kept       one line on what follows the paper's set-up; `differs`: deviations and reasons
    runs       the measurements; none for a table of parameters, which is compared with `scenario`
    ranks      further measurements, with ranks
    x, y       axes of the figure: key and quantity (`bench.sweep_report`); a table has no `x`
    not_rerun  why it is not run; empty otherwise
    """

    name: str
    kept: str = ""
    differs: str = ""
    runs: tuple[Run, ...] = ()
    ranks: tuple[RanksRun, ...] = ()
    scenario: str = ""
    x: str = ""
    y: str = "us_per_event"
    not_rerun: str = ""

    @property
    def system(self) -> str:
        """The system, one of five."""
        return next(system for system in SYSTEMS if self.name.startswith(f"{system}-"))

    @property
    def artifact(self) -> str:
        """The table or figure."""
        return self.name.removeprefix(f"{self.system}-").replace("-", " ")

    @property
    def title(self) -> str:
        """Its title."""
        return titles()[self.system, self.artifact]


SYSTEMS = ("ccm", "mpi-cuda", "clcb", "farroukh", "tagmatch")
BASELINES = {"SFF": "sff", "BETree": "betree", "R*-Tree": "rtree"}
"""The papers' baselines, by our engines of the same algorithm."""
OURS = ("keyed", "keyed_cuda")
CCM_ZIPF = "1.7"
"""Zipf's exponent of names in CCM's paper, which prints its longest row instead: 500,000 of a million constraints on one of
100 names, a share of 1/2; 1 / (1 + 2^-s + ... + 100^-s) is 0.49 for s = 1.7."""

_CCM = ("ccm", "sff", *OURS)
_CLCB = ("clcb", "sff", "betree", "rtree", "duckdb", *OURS)
_BESIDE_RTREE = ("clcb", "rtree", *OURS)
_CCM_KEPT = "filters, interfaces, sizes, operators, 100 values, half of the names with strings; 1,000 events one at a time"
_CCM_DIFFERS = (
    "a name has one type, strings are words of two to four syllables; SFF is our own compiled program; the machine differs"
)
_EVALUATED = {"ccm.sat": "published"}
"""Types, operators, numbers and strings are compared by the kernel, as in CCM's paper."""
_CLCB_KEPT = "250,000 interfaces of 10 filters, 3 to 5 constraints, areas of 0.01 % of the plane; events one at a time"
_RTREE_DIFFERS = "as the package `rtree` has it, loaded in bulk, its candidates checked by compiled code"
_INTERFACES = Axis.of("interfaces=100,1000,10000,100000,1000000")
_AREAS = {"sff.area": "constraints", "betree.area": "constraints"}
"""Areas as constraints on coordinates, as the baselines of CLCB's paper have them."""
_CLCB_DIFFERS = "names are drawn by Zipf's law, which gives the printed 0.5 % of filters whose content matches"
_MPI_KEPT = (
    "filters, interfaces, sizes, operators, numbers only; CCM in three phases; the master sends an event to each idle "
    "worker, non-blocking"
)
_MPI_DIFFERS = (
    "the numbers of GPUs are those of this machine, on one host; CCM on one GPU is the engine alone, without ranks; "
    "runs last 20,000 events, so that starting hardly counts"
)
_THREE_PHASES = {"ccm.phases": "3"}
_FARROUKH_KEPT = "subscriptions, 1,500 distinct predicates, average sizes, 100 names, values 1 to 15; 5,000 events, a batch"
_FARROUKH_DIFFERS = (
    "half of the predicates are equalities, sizes are uniform around the averages; retry stands for STM; no more threads "
    "than this machine has cores"
)
_MERGED = "; bits of one vector are set atomically, and beside it vectors of threads are merged, as in the paper"
_THREADS = Axis.of("threads=1..8")
_WAYS = Axis.of("twophase.synchronization=static,lock,retry")
_GROUPS = Axis.of("twophase.group=1,2,4,8")
_BLOCKS = Axis.of("twophase.access_block=1,2,5,10,12,20,30,35,50,100,200,500,1430")
_SUBSCRIPTIONS = Axis.of("filters=1000000..5000000..1000000")
_ONE_OR_EIGHT = Axis.of("threads=1,8")
_TAGMATCH_KEPT = (
    "sets of 5 tags on the average; a query is a set and 2 to 4 tags more; the paper's numbers of sets and MAX_P"
)
_TAGMATCH_DIFFERS = (
    "tags are drawn by Zipf's law, not taken from tweets; a key for each set, so match and match-unique are the same, but "
    "where `tagmatch-keys` is named; matches are verified; queries come in batches of 16,384"
)
_ON_KEYS = "on `tagmatch-keys`, with as many more keys than sets as in the paper"
_KEYS = f"; both operations {_ON_KEYS}"
_LAUNCHES = "; one batch of queries a launch, as in the paper, and beside it 64"
_SIZES = Axis.of("filters=20000000,40000000,212000000")
_PARTITIONS = {"tagmatch.max_p": "200000"}
_HYBRID = {**_PARTITIONS, "tagmatch.variant": "hybrid"}
"""The values as table 1 writes them, so that its points are not measured twice."""
_MANY_A_LAUNCH = {**_PARTITIONS, "tagmatch.launch": "64"}
_PIPELINED, _OF_SECONDS = 131_072, 524_288
"""Queries of a run in which stages of several batches overlap; of one that lasts many time-outs."""
_FIFTH = {"sets": "40000000"}
_TREE = {"tagmatch.variant": "prefix-tree"}
_CPU = {**_PARTITIONS, "tagmatch.variant": "cpu"}
_TIMEOUTS = "tagmatch.timeout_ms=0,100,200,300"
_TWO_OF_TEN = {"constraints": "2", "extra_tags": "8"}
"""Two tags a set, ten a query."""


def _figure(
    name: str, x: str, values: str, *, fixed: Mapping[str, str] | None = None, more: Mapping[str, str] | None = None
) -> Experiment:
    """A figure of the CCM paper: one parameter varied on the default scenario.  `more`: CCM options, measured too."""
    run = Run("ccm-strings", _CCM, (Axis.of(f"{x}={values}"),), fixed or {})
    beside = () if more is None else (run._replace(engines=("ccm",), fixed={**run.fixed, **more}),)
    differs = (
        _CCM_DIFFERS if more is None else f"{_CCM_DIFFERS}; codes are compared, and beside them values, as in the paper"
    )
    return Experiment(name, _CCM_KEPT, differs, (run, *beside), x=x)


def _mpi_cuda(name: str, axis: str = "") -> Experiment:
    """A table or figure of the MPI-CUDA paper: CCM alone, and with a master and workers."""
    axes = (Axis.of(axis),) if axis else ()
    alone = axes if axes and axes[0].key != "events" else ()
    return Experiment(
        name,
        _MPI_KEPT,
        _MPI_DIFFERS,
        (Run("ccm", ("ccm",), alone, _THREE_PHASES),),
        (RanksRun("ccm", "ccm", (1, 2, 4), axes[0] if axes else None, (*MPI_CUDA_MODE, "--set", "phases=3")),),
        x=axes[0].key if axes else "",
    )


def _clcb_figure(name: str, place_exponent: str, what: str) -> Experiment:
    axes = (Axis.of("area=1e-05,0.0001,0.001,0.01"), _INTERFACES)
    fixed = {"filters_per_interface": "10", "place_exponent": place_exponent}
    return Experiment(
        name,
        f"10 filters for each interface, four areas, {what}",
        f"{_CLCB_DIFFERS}; 200 events instead of 1,000; the R*-tree is that of libspatialindex {_RTREE_DIFFERS}",
        (Run("clcb", _BESIDE_RTREE, axes, fixed, events=200),),
        x="interfaces",
    )


def _farroukh_figure(
    number: int, x: str, y: str, *axes: Axis, technique: str, threads: str = "", scenario: str = "debs2009"
) -> Experiment:
    """A figure of Farroukh et al.; without `x`, a table of the phases.

    SE-CP is run with bits that are set atomically, and with vectors that are merged.
    """
    fixed = {"twophase.technique": technique, **({"threads": threads} if threads else {})}
    run = Run(scenario, ("twophase",), axes, fixed, events=5000, batch=5000, steps=not x)
    merged = run._replace(fixed={**fixed, "twophase.merge": "local"})
    runs = (run, merged) if technique == "se-cp" and scenario == "debs2009" else (run,)
    differs = _FARROUKH_DIFFERS + (_MERGED if len(runs) > 1 else "")
    return Experiment(f"farroukh-figure-{number}", _FARROUKH_KEPT, differs, runs, x=x, y=y)


def _tagmatch(name: str, x: str = "", y: str = "events_per_s", *, runs: tuple[Run, ...], differs: str = "") -> Experiment:
    return Experiment(f"tagmatch-{name}", _TAGMATCH_KEPT, f"{_TAGMATCH_DIFFERS}{differs}", runs, x=x, y=y)


def _sets(
    *axes: Axis, fixed: Mapping[str, str] | None = None, engines: tuple[str, ...] = ("tagmatch",), steps: bool = False
) -> Run:
    """Engines on tag sets."""
    return Run("tagmatch", engines, axes, fixed or {}, events=16_384, batch=16_384, steps=steps)


def _keys(sets: str) -> tuple[Run, ...]:
    """Both operations on tag sets of which some have many keys: with one batch of queries a launch, with 64, and with the
    prefix tree.
    """
    axes = Axis.of(f"sets={sets}"), Axis.of("operation=match,match-unique")
    run = Run("tagmatch-keys", ("tagmatch",), axes, _HYBRID, events=_PIPELINED, batch=16_384)
    return run, run._replace(fixed=_MANY_A_LAUNCH), run._replace(fixed=_TREE, events=16_384)


def _fifth_with_keys(*axes: str, fixed: Mapping[str, str], operation: str = "match", events: int = _PIPELINED) -> Run:
    """A run of TagMatch on a fifth of the tag sets; some sets have many keys."""
    varied = tuple(Axis.of(each) for each in (*axes, f"operation={operation}"))
    return Run("tagmatch-keys", ("tagmatch",), varied, {**_FIFTH, **fixed}, events=events, batch=16_384)


def _key_variants(fixed: Mapping[str, str], varied: tuple[str, ...]) -> Run:
    """Variants of TagMatch on tag sets of which some have many keys."""
    axes = tuple(Axis.of(each) for each in ("sets=20000000,40000000,212000000", *varied, "operation=match"))
    return Run("tagmatch-keys", ("tagmatch",), axes, fixed, events=16_384, batch=16_384)


def _against_a_database(axis: Axis, fixed: Mapping[str, str]) -> tuple[Run, ...]:
    """DuckDB on tag sets."""
    return (Run("tagmatch", ("duckdb",), (axis,), fixed, events=1000, batch=1000),)


EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment("ccm-table-1", scenario="ccm-strings"),
        Experiment(
            "ccm-table-2",
            _CCM_KEPT,
            f"{_CCM_DIFFERS}; Zipf's exponent is not printed: half of the constraints are on one of 100 names, which is "
            f"{CCM_ZIPF}; names of a filter are distinct, so that no row has more constraints than there are filters",
            (
                Run("ccm-strings", (*_CCM, "duckdb"), (Axis.of(f"name_exponent=0,{CCM_ZIPF}"),)),
                Run("ccm-strings", ("ccm",), (Axis.of("ccm.order=sorted,given"),), {"name_exponent": CCM_ZIPF}),
                Run(
                    "ccm-strings", ("ccm",), (Axis.of("ccm.order=sorted,given"),), {"name_exponent": CCM_ZIPF, **_EVALUATED}
                ),
            ),
        ),
        Experiment(
            "ccm-figure-5",
            _CCM_KEPT,
            "phases are timed by events of the GPU, which makes the whole a little slower",
            (Run("ccm-strings", ("ccm",), (Axis.of("ccm.reset=memset,kernel"),), steps=True),),
        ),
        _figure("ccm-figure-6", "attributes", "1..9"),
        _figure("ccm-figure-7", "constraints", "1..9"),
        _figure("ccm-figure-8", "filters_per_interface", "250,1000,2500,10000,25000,100000,250000"),
        _figure("ccm-figure-9", "interfaces", "10,20,50,100", fixed={"filters_per_interface": "25000"}),
        _figure("ccm-figure-10", "names", "10,20,30,50,100,200,500,1000"),
        _figure("ccm-figure-11", "string_share", "0,0.25,0.5,0.75,1", more=_EVALUATED),
        Experiment(
            "ccm-section-4.2",
            _CCM_KEPT,
            _CCM_DIFFERS,
            (Run("ccm-strings", ("ccm",), (Axis.of("ccm.input=shared,global"),)),),
        ),
        Experiment("mpi-cuda-table-1", scenario="ccm"),
        _mpi_cuda("mpi-cuda-table-2"),
        _mpi_cuda("mpi-cuda-figure-3", "attributes=1..10"),
        _mpi_cuda("mpi-cuda-figure-4", "events=100000,200000,300000,400000,500000"),
        _mpi_cuda("mpi-cuda-figure-5", "constraints=1,2,5,10,15,20"),
        Experiment(
            "mpi-cuda-phases",
            "filters, interfaces, sizes, operators, numbers only; one GPU, without ranks",
            "the bits of names are those of published code of the group; the paper prints no time of two phases",
            (Run("ccm", ("ccm",), (Axis.of("ccm.phases=2,3"),)),),
        ),
        Experiment("clcb-table-1", scenario="clcb"),
        Experiment(
            "clcb-table-2",
            _CLCB_KEPT,
            f"{_CLCB_DIFFERS}; 200 events instead of 1,000; updates: see clcb-figure-5; "
            "no R*-tree without areas, by which alone it tells filters apart",
            (
                Run("clcb", tuple(name for name in _CLCB if name != "rtree"), (Axis.of("area=0"),), events=200),
                Run("clcb", _CLCB, (Axis.of("area=0.0001"),), _AREAS, events=200),
            ),
        ),
        _clcb_figure("clcb-figure-3", "0", "locations uniform"),
        _clcb_figure("clcb-figure-4", "1", "locations by Zipf's law"),
        Experiment(
            "clcb-figure-5",
            "10 filters for each interface, 1,000 filters moved one after the other, locations uniform and by Zipf's law",
            f"{_CLCB_DIFFERS}; 100 interfaces move with all their filters; the R*-tree is that of libspatialindex "
            f"{_RTREE_DIFFERS}",
            (
                Run(
                    "clcb",
                    _BESIDE_RTREE,
                    (Axis.of("place_exponent=0,1"), _INTERFACES),
                    {"filters_per_interface": "10"},
                    events=50,
                    moves=100,
                ),
            ),
            x="interfaces",
            y="one_move_us",
        ),
        Experiment(
            "clcb-figure-6",
            "10 filters for each interface; b: every filter's content matches",
            f"{_CLCB_DIFFERS}; 200 events instead of 1,000",
            tuple(
                Run(name, ("clcb",), (_INTERFACES,), {"filters_per_interface": "10"}, events=200, steps=True)
                for name in ("clcb", "clcb-hard")
            ),
            x="interfaces",
        ),
        Experiment(
            "clcb-figure-7",
            "10 filters for each interface",
            _CLCB_DIFFERS,
            (
                Run(
                    "clcb",
                    ("clcb", *OURS),
                    (Axis.of("interfaces=10000,100000,250000,1000000"),),
                    {"filters_per_interface": "10"},
                    events=50,
                ),
            ),
            x="interfaces",
            y="engine_bytes",
        ),
        Experiment(
            "clcb-section-4.3",
            _CLCB_KEPT,
            f"{_CLCB_DIFFERS}; 400 events instead of 1,000",
            (
                Run("clcb", ("clcb",), (Axis.of("clcb.runs=1,2,4"),), events=400),
                Run(
                    "clcb", ("clcb",), (Axis.of("clcb.bloom_bits=8,16,32,64"), Axis.of("clcb.bloom_hashes=1,2")), events=400
                ),
            ),
        ),
        Experiment("farroukh-table-1", scenario="debs2009"),
        _farroukh_figure(5, "threads", "events_per_s", _THREADS, _WAYS, technique="me-ip"),
        _farroukh_figure(6, "threads", "matching_us", _THREADS, _WAYS, technique="me-ip"),
        _farroukh_figure(7, "threads", "matching_us", _THREADS, _WAYS, technique="se-cp"),
        _farroukh_figure(8, "threads", "events_per_s", _THREADS, _WAYS, technique="se-cp"),
        _farroukh_figure(9, "", "us_per_event", _THREADS, technique="se-cp"),
        _farroukh_figure(10, "", "us_per_event", _THREADS, technique="se-cp"),
        _farroukh_figure(11, "twophase.group", "events_per_s", _GROUPS, _WAYS, technique="me-cp", threads="8"),
        _farroukh_figure(12, "twophase.group", "matching_us", _GROUPS, _WAYS, technique="me-cp", threads="8"),
        _farroukh_figure(
            *(13, "twophase.access_block", "us_per_event", _BLOCKS),
            scenario="debs2009-blocks",
            technique="se-cp",
            threads="7",
        ),
        _farroukh_figure(14, "filters", "events_per_s", _SUBSCRIPTIONS, _ONE_OR_EIGHT, technique="me-ip"),
        _farroukh_figure(15, "filters", "us_per_event", _SUBSCRIPTIONS, _ONE_OR_EIGHT, technique="se-cp"),
        Experiment(
            "farroukh-section-4.3",
            _FARROUKH_KEPT,
            f"{_FARROUKH_DIFFERS}; batches of 500 events, after each of which groups change",
            (
                Run(
                    "debs2009",
                    ("twophase",),
                    (Axis.of("twophase.target_us=0,500,1000,2000,4000"),),
                    {"twophase.technique": "me-cp", "threads": "8"},
                    events=5000,
                    batch=500,
                ),
            ),
        ),
        _tagmatch(
            "table-1",
            runs=(
                _sets(_SIZES, Axis.of("tagmatch.variant=hybrid,gpu-plain,gpu-batched"), fixed=_PARTITIONS),
                _sets(_SIZES, fixed=_MANY_A_LAUNCH),
                _sets(_SIZES, fixed=_CPU),
                _sets(_SIZES, fixed=_TREE),
                _sets(_SIZES, engines=OURS),
                *_keys("20000000,40000000,212000000"),
                *(_key_variants(*each) for each in ((_CPU, ()), (_PARTITIONS, ("tagmatch.variant=gpu-plain,gpu-batched",)))),
            ),
            differs=f"{_LAUNCHES}{_KEYS}; the ICN matcher is not an engine here",
        ),
        _tagmatch(
            "table-3",
            runs=(
                *(_sets(Axis.of("filters=20000000,40000000"), fixed=fixed) for fixed in (_HYBRID, _MANY_A_LAUNCH, _TREE)),
                *_keys("20000000,40000000"),
            ),
            differs=f"{_LAUNCHES}{_KEYS}; the ICN matcher is not an engine here",
        ),
        *(
            _tagmatch(
                f"figure-{number}",
                "extra_tags",
                y,
                runs=tuple(
                    _fifth_with_keys("extra_tags=1..10", fixed=fixed, events=events)
                    for fixed, events in ((_PARTITIONS, _PIPELINED), (_TREE, 16_384))
                ),
                differs=f"; a fifth of the sets; {_ON_KEYS}",
            )
            for number, y in ((2, "events_per_s"), (3, "matches_per_s"))
        ),
        _tagmatch("figure-4", SETS, runs=_keys("20000000,40000000,84800000,127200000,169600000,212000000"), differs=_KEYS),
        _tagmatch(
            "figure-5",
            "threads",
            runs=(
                _fifth_with_keys("threads=4,8,16,24,32,40,48", fixed=_PARTITIONS, operation="match,match-unique"),
                _fifth_with_keys("threads=4,8,16,24,32,40,48", fixed=_TREE, events=16_384),
            ),
            differs=f"; a fifth of the sets; {_ON_KEYS}; no more threads than this machine has cores",
        ),
        _tagmatch(
            "figure-6",
            "tagmatch.timeout_ms",
            "p99",
            runs=tuple(
                _fifth_with_keys(_TIMEOUTS, fixed=_PARTITIONS, operation="match-unique", events=_OF_SECONDS)._replace(
                    load=load
                )
                for load in (0.0, 0.8)
            ),
            differs=f"; a fifth of the sets; {_ON_KEYS}; rates without load, where queries of at most three "
            "batches wait; latencies with 0.8 of the rate that is served without a time-out, in runs of at least 20 times "
            "the longest",
        ),
        _tagmatch(
            "figure-7",
            "tagmatch.max_p",
            runs=(_fifth_with_keys("tagmatch.max_p=20000,50000,100000,200000,500000,1000000", fixed={}),),
            differs=f"; a fifth of the sets; {_ON_KEYS}",
        ),
        *(
            _tagmatch(
                f"figure-{number}",
                "filters",
                y,
                runs=(_sets(Axis.of("filters=5000000,50000000,100000000,200000000"), fixed=_PARTITIONS),),
                differs=differs,
            )
            for number, y, differs in (
                (8, "build_s", "; the time has signatures, unique sets and sorting besides partitions"),
                (9, "engine_bytes", "; host and GPU together"),
            )
        ),
        _tagmatch(
            "figure-10",
            "filters",
            runs=(
                _sets(Axis.of("filters=1000000,2000000,3000000,4000000,5000000"), fixed={**_PARTITIONS, **_TWO_OF_TEN}),
                *_against_a_database(Axis.of("filters=1000000,5000000"), fixed=_TWO_OF_TEN),
                *(
                    run
                    for axis in (Axis.of("constraints=1..5"), Axis.of("extra_tags=2,4,6,8"))
                    for own in [{key: value for key, value in _TWO_OF_TEN.items() if key != axis.key}]
                    for run in (
                        _sets(axis, fixed={**_PARTITIONS, **own, "filters": "1000000"}),
                        *_against_a_database(axis, fixed={**own, "filters": "1000000"}),
                    )
                ),
            ),
            differs="; 2 tags a set, 8 more a query, where not varied; DuckDB stands for MongoDB, which no package has",
        ),
        _tagmatch(
            "section-3.3",
            runs=(_fifth_with_keys("tagmatch.prefix=on,off", fixed=_PARTITIONS),),
            differs=f"; a fifth of the sets; {_ON_KEYS}",
        ),
        _tagmatch(
            "section-4.3.3",
            runs=(_fifth_with_keys("tagmatch.streams=1,2,5,10,20", fixed=_PARTITIONS),),
            differs=f"; a fifth of the sets; {_ON_KEYS}; each stream has a thread, and at most "
            "half as many are used as there are threads",
        ),
        Experiment("tagmatch-figure-11", not_rerun="it is of MongoDB alone, on up to 24 instances"),
    )
}
"""The experiments, one for each table and figure of the five papers."""
