"""The pages with measured numbers: tests/bench/RESULTS.md, the results on the README with the published systems (`systems`),
and the points where another system is better (`bias`).

    python tests/support/results.py          writes all; tests/test_docs.py compares them with the records

A record is a JSON line in tests/bench/records: the measurement, machine, commit, command, and how the answers were checked.
A run with a wrong answer writes none.  Each kind of record has its table here; a kind without a table is an error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

import bias  # noqa: E402
import papers_page  # noqa: E402
import systems  # noqa: E402

from mpi_match.lab.bench.ablation import ratios_of  # noqa: E402
from mpi_match.lab.bench.energy import LEAST_GPU_S  # noqa: E402
from mpi_match.lab.bench.load import knee_of  # noqa: E402
from mpi_match.lab.bench.report import engine_of  # noqa: E402

Record = dict[str, Any]

README = REPOSITORY / "README.md"
PAGE = REPOSITORY / "tests" / "bench" / "RESULTS.md"
RECORDS = PAGE.parent / "records"
REPORT_NOTES = (
    "Records of a GPU and fewer than 16 cores are of a machine with 16: two experiments ran at a time, each on a part of "
    "them. Those of `6370ca3943c6` are of a machine with four GPUs and 64 cores: up to six experiments ran at a time, each "
    "with the cores named and, if it needs one, a GPU of its own; those of MPI-CUDA had all four.",
    "Not measured: MPI-CUDA with the paper's four GPUs on two hosts (here on one host); TagMatch with 48 threads (here up "
    "to 40); the ICN matcher, which is no engine here. The head of each experiment names its gaps.",
)
BEGIN, END = "<!-- results: written by tests/support/results.py -->\n", "<!-- end of results -->\n"

HEAD = """# Results

Written by `python tests/support/results.py` from [records](records); do not edit. Each row names the commit that was
measured; under each table stand the commands as they were at that commit. Scripts of `tests/bench` have become commands:
[`bench read`](../../mpi_match/docs/cli.md#mpi-match-bench-read) does what `scanned_events.py`, `scanned_subscriptions.py`,
`lines_on_gpu.py` and `one_row.py` did; `bench soak`, `growth`, `kills`, `end-to-end`, `memory` and `false-positives` have
names like theirs. `mutated_lines.py` is [judged_mutants.py](../support/judged_mutants.py), and `host_kills.py` is in
[tests/hosts](../hosts/host_kills.py). Rates go from encoded events in memory to answers in memory unless the section says
otherwise; median, and least to greatest where a row has them. The machines are shared: compare rows of one commit and one
machine. Rows of commits before `8cee85f` have `debs2009` and the `clcb` scenarios with other parameters than now, see the
changelog of 0.2.0.
"""

KILLS = ("workers killed", "masters killed", "hosts killed")
KILL_COLUMNS = "| what happened, at random moments | how often | what came of it | commit |"
ENGINE_COLUMNS = (
    "scenario | filters | engine | device | events/s | kernels alone | µJ an event | table in | index in | bytes a filter"
)
KERNELS_ALONE = (
    "Kernels alone is the sum of their times; where it is longer than the whole, because streams overlap, none is given. "
    "Energy is the GPU's (NVML), in runs of 0.3 s and more, for which its counter is fine enough; the processors' could not "
    "be read. The five runs of `ccm` at `6370ca3943c6`, on a machine with two GPUs, took 19 to 99 ms; why they took longer "
    "than those of `d83306c99802` is not known. "
)
LAUNCHER_COLUMNS = "| launcher | worker killed | worker stopped for good | master killed | host lost | commit |"
STAYS = ", mpirun stays"
"""What `bench kills outcomes` says behind an outcome when the launcher had not ended in time."""


class Section(NamedTuple):
    """A table: the records that it takes, its columns, the cells of each record, and what a reader has to know."""

    title: str
    takes: Callable[[Record], bool]
    columns: str
    cells: Callable[[Record], Sequence[str]]
    note: str = ""


def load(path: Path) -> list[Record]:
    """Records of a file.  Files whose first line is of kind `run` are one record of several lines, joined here."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    if lines and lines[0].get("what") == "run":
        return (
            list(_latencies(lines))
            if len(lines) > 1 and lines[1].get("what") == "built"
            else [{**lines[0], "what": "report"}]
        )
    if lines and "experiment" in lines[0]:
        return [*_printed(lines), *({"what": "experiment", **line} for line in lines)]
    found = [{"what": "bench", **line} for line in lines]
    for curve in curves(found):
        knee = curve[knee_of(curve)]
        for record in curve:
            record["is_knee"] = record is knee
    return found


def curves(records: Sequence[Record]) -> Iterator[list[Record]]:
    """The records of each measurement of latency against load that offered one: the first is that without load."""
    loads = [record for record in records if record["what"] in ("load", "run load")]
    firsts = [number for number, record in enumerate(loads) if record["share"] is None]
    for first, stop in pairwise([*firsts, len(loads)]):
        if stop > first + 1:
            yield loads[first:stop]


def _printed(lines: Sequence[Record]) -> Iterator[Record]:
    """What the papers print of experiments beside what their records say, those of each commit and machine by themselves; of
    a point that was measured again the last time counts.  What a commit has not measured is left out where another has.
    """
    from mpi_match.lab.papers.catalog import EXPERIMENTS
    from mpi_match.lab.papers.claims import claims
    from mpi_match.lab.papers.run import shown_at

    for name in dict.fromkeys(line["experiment"] for line in lines):
        of_all = list({(shown_at(line), line["scale"]): line for line in lines if line["experiment"] == name}.values())
        groups: dict[tuple[str, str], list[Record]] = {}
        for line in of_all:
            groups.setdefault((line["commit"], str(line["machine"])), []).append(line)
        found = [(mine[0], claim) for mine in groups.values() for claim in claims(EXPERIMENTS[name], mine, of_all)]
        measured = {str(claim.printed) for _, claim in found if claim.measured is not None}
        shown = set[str]()
        for first, claim in found:
            is_elsewhere = str(claim.printed) in measured | shown
            if claim.measured is None and (is_elsewhere or not first["machine"]["gpus"]):
                continue
            shown.add(str(claim.printed))
            same = {key: first[key] for key in ("commit", "command", "machine", "scale")}
            yield {"what": "printed", "experiment": name, "claim": claim, **same}


def _latencies(lines: Iterable[Record]) -> Iterator[Record]:
    run, built = {}, {}
    for line in lines:
        match line["what"]:
            case "run":
                run = line
            case "built":
                built = line
            case "match" | "graph":
                yield {"engine": "ccm", **built, **line, "what": "latency", "how": line["what"], **_of_run(run)}


def _of_run(run: Record) -> Record:
    return {"commit": run["commit"], "command": run["command"]}


def all_records() -> list[Record]:
    """Every record there is, in the order of the files' names and of their lines."""
    return [record for path in sorted(RECORDS.glob("*.jsonl")) for record in load(path)]


def rate(events_per_s: float) -> str:
    """Three significant digits: `1.16 M`, `882 k`, `45.1`."""
    for scale, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k"), (1, "")):
        if events_per_s >= scale or scale == 1:
            digits = 3 - len(f"{events_per_s / scale:.0f}")
            return f"{events_per_s / scale:.{max(digits, 0)}f}{unit}"
    raise AssertionError


def device_of(record: Record) -> str:
    """What an engine ran on; a CPU's name comes from the machine."""
    device: str = record["device"]
    return f"{device.removeprefix('cpu, ')} of {record['machine']['cpu']}" if device.startswith("cpu") else device


def command_of(record: Record) -> str:
    """The command of a record, as a user would type it and without the file that it was written to."""
    command = re.sub(r" (-o|--output) \S+", "", record["command"])
    command = re.sub(r"^python -m mpi_match\b", "mpi-match", command)
    return re.sub(r"^(?=[a-z_]+\.py)", "python tests/bench/", command)


def _ms(pauses: Record) -> str:
    return " / ".join(f"{pauses[key]:.2f}" for key in ("p50", "p99", "max"))


def _spread(rates: Record) -> str:
    return f"{rate(rates['median'])} ({rate(rates['min'])} to {rate(rates['max'])})"


def parameters_of(r: Record) -> dict[str, str]:
    """The parameters of the workload that differ from the scenario's own: the record's, or those in the command."""
    given = re.findall(r"--param (\S+)=(\S+)", r.get("command", ""))
    own = {key: value for key, value in (r.get("parameters") or {}).items() if "." not in key and key not in _OF_A_RUN}
    return {key: value for key, value in {**dict(given), **own}.items() if key not in ("filters", "events")}


_OF_A_RUN = ("threads", "batch", "rate", "workers", "moves")


def workload_of(r: Record) -> str:
    """The scenario with its parameters, as a cell."""
    given = ", ".join(f"{key}={value}" for key, value in parameters_of(r).items())
    return f"`{r['scenario']}`" + (f", {given}" if given else "")


def kernels_of(r: Record) -> str:
    """The rate of the kernels alone; empty where their times overlap."""
    kernels = r.get("kernel_events_per_s")
    return rate(kernels) if kernels and kernels >= r["events_per_s"] else ""


def _energy(r: Record) -> str:
    """Microjoules of processors and GPU for an event; empty where no counter was read, or the run was too short for it."""
    joules = sum(each for each in (r.get("energy_j") or {}).values() if each)
    return f"{1e6 * joules / r['n_events']:,.3g}" if joules and r["match_s"]["median"] >= LEAST_GPU_S else ""


def _bench(r: Record) -> Sequence[str]:
    return (
        workload_of(r),
        f"{r['n_filters']:,}",
        f"`{r['engine']}`",
        device_of(r),
        rate(r["events_per_s"]),
        kernels_of(r),
        _energy(r),
        f"{r['table_s']:.2f} s",
        f"{r['build_s']:.2f} s",
        f"{r['engine_bytes'] / r['n_filters']:,.0f}",
    )


def _own_rules(r: Record) -> Sequence[str]:
    on = f"`{r['engine']}`", device_of(r)
    return (
        workload_of(r),
        f"{r['n_filters']:,}",
        *on,
        _spread(r["rows_per_s"]),
        rate(r["events_per_s"]),
        f"{r['matches']:,}",
    )


def _twophase(r: Record) -> Sequence[str]:
    chosen, match_s, n_events = r["engine_options"], r["match_s"], r["n_events"]
    rates = {"median": r["events_per_s"], "min": n_events / match_s["max"], "max": n_events / match_s["min"]}
    steps = " / ".join(f"{seconds / n_events * 1e6:.0f}" for seconds in r["steps_s"].values())
    how = (f"`{chosen['technique']}`", f"`{chosen['synchronization']}`", str(chosen["access_block"]), device_of(r))
    return (workload_of(r), f"{r['n_filters']:,}", *how, _spread(rates), steps)


def _tagmatch(r: Record) -> Sequence[str]:
    chosen, n_events = r["engine_options"], r["n_events"]
    steps = " / ".join(f"{seconds / n_events * 1e6:.2g}" for seconds in r.get("steps_s", {}).values())
    how = (f"`{chosen['variant']}`", f"{chosen['max_p']:,}", f"{chosen['launch']}", device_of(r))
    rates = (rate(r["events_per_s"]), kernels_of(r), _energy(r), f"{r['matches_per_event']:.3g}")
    return (workload_of(r), f"{r['n_filters']:,}", *how, *rates, steps)


def _run_load(r: Record) -> Sequence[str]:
    offered = "as fast as it can" if r["rate"] is None else f"{rate(r['rate'])} ({r['share']:.0%})"
    latencies = " / ".join(f"{us / 1e3:.1f}" for us in r["latency_us"].values())
    how = (f"{r['n_filters']:,}", f"{r['workers']}", f"{r['threads']}", f"{r['device']} of {r['machine']['cpu']}")
    return (workload_of(r), *how, offered, rate(r["events_per_s"]), latencies, "knee" if r["is_knee"] else "")


def _answers(r: Record) -> Sequence[str]:
    answers = r["matches_per_event"]
    how = (f"{r['n_filters']:,}", f"{float(r['parameters']['answers']):g}", f"{answers:.3g}", f"`{engine_of(r)}`")
    return (f"`{r['scenario']}`", *how, device_of(r), rate(r["events_per_s"]), rate(r["events_per_s"] * answers))


def _recall(r: Record) -> Sequence[str]:
    shares = [f"{r[name]:.4%}" if name in r else "exact" for name in ("recall", "precision")]
    return (workload_of(r), f"{r['n_filters']:,}", f"`{engine_of(r)}`", device_of(r), rate(r["events_per_s"]), *shares)


def _ablation(r: Record) -> Sequence[str]:
    changed = "the default" if r["option"] is None else f"`{r['option']}={r['value']}`"
    times = f"{r['us_per_event']:.3g}", f"{r['ratio']:.2f} ({ratios_of(r)})" if r["option"] is not None else "1"
    return (f"`{r['engine']}`", workload_of(r), f"{r['n_filters']:,}", changed, device_of(r), *times)


def _load(r: Record) -> Sequence[str]:
    offered = "as fast as it can" if r["share"] is None else f"{rate(r['rate'])} ({r['share']:.0%})"
    latencies = " / ".join(f"{us:,.0f}" for us in list(r["latency_us"].values())[:3]) if "latency_us" in r else ""
    how = (f"{r['n_filters']:,}", f"`{r['engine']}`", device_of(r), offered)
    return (workload_of(r), *how, rate(r["events_per_s"]), latencies, "knee" if r["is_knee"] else "")


def _routing(r: Record) -> Sequence[str]:
    shares = (f"{r[key]:.1%}" for key in ("left_out", "no_answer", "busiest"))
    costs = (f"{r['bytes_per_event']:.0f}", f"{r['master_us']:.3f}", f"{r['workers_us']:.2f}")
    return (f"`{r['scenario']}`", f"{r['n_filters']:,}", str(r["shards"]), r["how"], *shares, *costs)


def _false_positives(r: Record) -> Sequence[str]:
    counts = (r["right_per_query"], r["measured_per_query"], r["predicted_per_query"])
    return (f"{r['n_sets']:,}", f"{r['tags_per_query']:.1f}", *(f"{each:.3g}" for each in counts))


def _claimed(r: Record) -> Sequence[str]:
    from mpi_match.environment.machine import counted
    from mpi_match.lab.papers.claims import in_words

    claim = r["claim"]
    printed = claim.printed
    where = f" ({printed.where})" if printed.where else ""
    ours = ", ".join(f"`{name}` {in_words(value)}" for name, value in claim.ours.items()) or "-"
    scale = "" if r["scale"] == 1 else f", {r['scale']:g} of the filters"
    value = f"{printed.subject}: {printed.metric.replace('_', ' ')}{where}"
    machine = r["machine"]
    on = ", ".join([*counted(gpu["name"] for gpu in machine["gpus"]), f"{machine['cores']} cores"])
    return (f"`{r['experiment']}`{scale}", value, printed.text, claim.here, ours, on)


def _end_to_end(r: Record) -> Sequence[str]:
    if not r["verified"]["verified"]:
        raise ValueError(f"the answers of {r['command']} were not right")
    placement = r.get("placement", "replicate") if r["workers"] > 1 else "-"
    how = (str(r["workers"]), placement, r.get("feed", "master"), r.get("results", "master"))
    filters = f"{r['n_filters']:,}" if "n_filters" in r else "its own"
    what = (f"`{r['scenario']}`", filters, f"`{r['engine']}`", r["device"], f"{r['events']:,}")
    return (*what, *how, _spread(r["events_per_s"]))


def _one_at_a_time(r: Record) -> Sequence[str]:
    engine = f"`{r['engine']}`" + (f", {r.get('set', {}).get('phases', 2)} phases" if r["engine"] == "ccm" else "")
    what = (f"`{r['scenario']}`", f"{r['n_filters']:,}", engine, r["device"], str(r["workers"]), f"{r['events']:,}")
    spread = r["events_per_s"]
    us, least, most = (f"{1e6 / spread[which]:.1f}" for which in ("median", "max", "min"))
    return (*what, "yes" if r["journal"] else "no", us if r["runs"] == 1 else f"{us} ({least} to {most})")


def _one_event(r: Record) -> Sequence[str]:
    middle = [run["p50"] for run in r["runs"]]
    least_to_most = f"{r['round_trip_us']['p50']:.1f} ({min(middle):.1f} to {max(middle):.1f})"
    return (f"`{r['scenario']}`", f"`{r['engine']}`", device_of(r), least_to_most, f"{r['round_trip_us']['p99']:.1f}")


def _latency(r: Record) -> Sequence[str]:
    how = {"match": "`match`", "graph": "the captured graph alone"}[r["how"]]
    return (
        f"`{r['engine']}`",
        f"{r['filters']:,}",
        r["device"],
        how,
        r["answer"],
        f"{r['p50_us']:.1f}",
        f"{r['p99_us']:.1f}",
    )


def _areas(r: Record) -> Sequence[str]:
    at_once = r.get("batch_move_us")
    return (
        f"`{r['scenario']}`",
        f"{r['n_filters']:,}",
        f"`{r['engine']}`",
        device_of(r),
        f"{r['one_event_us']['p50']:.1f}",
        f"{r['batch_us_per_event']:.2f}",
        f"{r['one_move_us']:.1f}",
        f"{at_once:.4f}" if at_once else "",
    )


def _soak(r: Record) -> Sequence[str]:
    memory = r["memory"]["resident"]
    grown = f"{memory['first_mib']:,.0f} → {memory['last_mib']:,.0f} MiB"
    pauses = (_ms(r["pauses_ms"][what]) for what in ("update", "event"))
    return (
        f"`{r['scenario']}`",
        f"{r['n_filters']:,}",
        f"`{r['engine']}`",
        device_of(r),
        f"{r['minutes']:g}",
        *pauses,
        grown,
    )


def _growth(r: Record) -> Sequence[str]:
    return (f"`{r['engine']}`", device_of(r), f"{r['came']:,}", f"{r['at_once']}", _ms(r["update_ms"]), _ms(r["event_ms"]))


def _scaling(r: Record) -> Sequence[str]:
    rates = (_spread(r["events_per_s"]), f"{r['speed_up']:.2f}", f"{r['efficiency']:.2f}")
    return (r["kind"], f"`{r['how']}`", str(r["workers"]), f"{r['n_events']:,}", *rates)


def _memory(r: Record) -> Sequence[str]:
    grown = ", ".join(f"rank {rank['rank']}: {rank['grown_mib']:.1f}" for rank in r["ranks"])
    return (f"{r['batches']:,}", f"{r['wall_s']:,.0f}", grown)


def _scanned_on_gpu(r: Record) -> Sequence[str]:
    ways = ("kernels", "with_copy", "answers", "file", "match", "run")
    rates = [rate(r["lines_per_s"][way]["median"]) if way in r["lines_per_s"] else "" for way in ways]
    return f"`{r['scenario']}`", f"{r['filters']:,}", r["machine"]["gpus"][0]["name"], *rates


def _mutated(r: Record) -> Sequence[str]:
    counts = [f"{r[what]:,}" if what in r else "" for what in ("lines", "rejected", "flagged", "flagged_by_gpu")]
    return *counts, r["machine"]["gpus"][0]["name"] if "flagged_by_gpu" in r else r["machine"]["cpu"]


def _scanned_subscriptions(r: Record) -> Sequence[str]:
    found = r["lines_per_s"]
    times = found["scanned"]["median"] / found["rows"]["median"]
    spread = ", ".join(f"{r['filters'] / found['compiled'][which]:.2g} s" for which in ("median", "max"))
    cpu = " / ".join(f"{found[what]['cpu_ns_per_line']:,.0f}" for what in ("scanned", "rows"))
    scenario = f"`{r['scenario']}`{', predicates' if r.get('form') == 'predicates' else ''}"
    return scenario, f"{r['filters']:,}", f"{rate(found['scanned']['median'])} ({times:.0f}×)", spread, cpu


def _cores(r: Record) -> str:
    """What a record of the CPU was measured on."""
    return f"{r['threads']} of {r['machine']['cores']}, {r['machine']['cpu']}"


def _scanned(r: Record) -> Sequence[str]:
    rates = r["lines_per_s"]
    cpu = (f"{rates[what]['cpu_ns_per_line']:,.0f}" for what in ("codes", "rows_codes"))
    shown = [f"{rate(found['median'])}, best {rate(found['max'])}" for found in (rates["codes"], rates["answers"])]
    times = [rates[what]["median"] / rates[f"rows_{what}"]["median"] for what in ("codes", "answers")]
    how = (f"`{r['scenario']}`", f"{r['filters']:,}", _cores(r))
    return (*how, *(f"{each} ({more:.0f}×)" for each, more in zip(shown, times, strict=True)), " / ".join(cpu))


def _encoded_columns(r: Record) -> Sequence[str]:
    codes, entries = r["events_per_s"]["codes"], r["events_per_s"]["entries_codes"]
    rates = f"{rate(codes['median'])}, best {rate(codes['max'])} ({codes['median'] / entries['median']:.0f}×)"
    cpu = f"{codes['cpu_ns_per_line']:,.0f} / {entries['cpu_ns_per_line']:,.0f}"
    return (f"`{r['scenario']}`", f"{r['filters']:,}", f"{r['columns']}, {r['shape']}", _cores(r), rates, cpu)


def _event_tables(r: Record) -> Sequence[str]:
    compiled, rows = r["events_per_s"]["compiled"], r["events_per_s"]["rows"]
    rates = f"{rate(compiled['median'])}, best {rate(compiled['max'])} ({compiled['median'] / rows['median']:.0f}×)"
    cpu = f"{compiled['cpu_ns_per_line']:,.0f} / {rows['cpu_ns_per_line']:,.0f}"
    return (f"`{r['scenario']}`", f"{r['filters']:,}", r["source"], str(r["threads"]), rates, cpu)


def _spark_event_tables(r: Record) -> Sequence[str]:
    found = r["events_per_s"]
    splits = found["splits"]
    ways = (splits, found.get("ranges"), found.get("sorted"), r["first"])
    times = f" ({splits['median'] / found['sorted']['median']:.1f}×)" if "sorted" in found else ""
    return (
        f"`{r['scenario']}`",
        f"{r['filters']:,}",
        r["source"],
        f"{r['events']:,}",
        f"{rate(splits['median'])}, best {rate(splits['max'])}{times}",
        " / ".join("-" if way is None else f"{way['cpu_ns_per_line']:,.0f}" for way in ways),
    )


def _spark_subscriptions(r: Record) -> Sequence[str]:
    compiled, parsed, judged = (r["rows_per_s"][way] for way in ("compiled", "parsed", "judged"))
    seconds = compiled["cpu_ns_per_line"] * r["filters"] / 1e9
    step = f"{parsed['cpu_ns_per_line']:,.0f} / {judged['cpu_ns_per_line']:,.0f}"
    return (f"`{r['scenario']}`", r["source"], f"{r['filters']:,}", rate(compiled["median"]), f"{seconds:.1f} s", step)


def _one_row(r: Record) -> Sequence[str]:
    ways = (r["us"][way] for way in ("bytes", "dict", "live_bytes", "list_of_one_dict"))
    return (f"`{r['scenario']}`", f"{r['filters']:,}", *(f"{each['p50']:.1f} / {each['p99']:.1f}" for each in ways))


def _ranges(r: Record) -> Sequence[str]:
    def shown(number: float) -> str:
        return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"

    both = r["us"]["bitmap"], r["us"]["lists"]
    times = [f"{shown(found['median'])} ({shown(found['min'])} to {shown(found['max'])})" for found in both]
    counts = r["matches_per_event"], r["candidates_per_event"]["bitmap"], r["candidates_per_event"]["lists"]
    how = (f"`{r['scenario']}`", f"{r['n_filters']:,}", f"{r['in_bitmap']:,}")
    return (*how, *times, shown(r["ratio"]), *(shown(each) for each in counts), shown(r["row_bytes"]))


def _exported(r: Record) -> Sequence[str]:
    how = (f"{r['labels']:g}", f"{r['events']:,}", str(r["threads"]))
    return (
        *how,
        *(_spread(r["events_per_s"][way]) if way in r["events_per_s"] else "" for way in ("compiled", "rows", "arrow")),
    )


def _has_answers(r: Record) -> bool:
    """Tells whether a record is a point of the number of answers."""
    return r["what"] == "bench" and "answers" in (r.get("parameters") or {})


def _has_recall(r: Record) -> bool:
    """Tells whether a record is of a comparison with an engine that is not exact."""
    return r["what"] == "bench" and re.search("exact=(on,)?off", r.get("command", "")) is not None


def _is_engine(r: Record) -> bool:
    """Tells whether a record is a rate of an engine, which has a table of its own below."""
    return r["what"] == "bench" and "rows_per_s" not in r and not _has_answers(r) and not _has_recall(r)


SECTIONS = (
    Section(
        "Engines",
        lambda r: _is_engine(r) and r["engine"] not in ("twophase", "tagmatch"),
        ENGINE_COLUMNS,
        _bench,
        "Median of the repetitions, copies to and from the GPU included. A table is read from its file where the command "
        "names one, and made of what was drawn otherwise. Bytes are those of the engine on the host and on the GPU, which "
        "has the same index and buffers for the batches. "
        f"{KERNELS_ALONE}Rows of `tagmatch` with `constraints=3-5, name_exponent=0.5` are another workload than that of "
        "TagMatch's paper, which is among its tables and figures below.",
    ),
    Section(
        "Rules of Sigma and EventBridge",
        lambda r: r["what"] == "bench" and "rows_per_s" in r,
        "rules and events | filters | engine | on | rows in memory to answers, /s | encoded events to answers, /s | matches",
        _own_rules,
        "Rules and events of our own with the shapes of real ones, as `python tests/support/rule_files.py own` writes them: "
        "2,000 rules of Sigma, 50 of them with keywords, and Windows events of 2.5 KB; 500 patterns of EventBridge and "
        "nested events of 1 KB. Filters are those of conditions' parts too.",
    ),
    Section(
        "Tables and figures of the papers",
        lambda r: r["what"] == "printed",
        "experiment | value | printed | here | our engines | on",
        _claimed,
        "Printed values beside those of the same quantity at the same point, one event at a time; the papers' machines are "
        "of 2009 to 2017. Engines took turns and their answers were compared. Times of CCM, CLCB and MPI-CUDA, and of the "
        "engines beside them, contain the encoding of events, as the papers' do. "
        f"{' '.join(REPORT_NOTES)} "
        "`make report` draws all of it, and names the points and engines that are not measured; `mpi-match experiment run` "
        "says what was kept of the papers' set-up and what differs.",
    ),
    Section(
        "The two-phase matcher",
        lambda r: _is_engine(r) and r["engine"] == "twophase",
        "scenario | filters | technique | synchronization | access block | on | events/s | phase 1 / waiting / phase 2, µs",
        _twophase,
        "Farroukh et al. print 263 events/s for one thread of a quad-core Xeon of 2.33 GHz, and over 1,600 for eight with "
        "ME-IP. Here there are two cores and not the 16 that their figures of up to eight threads need, and other programs "
        "used both for most of the time: a thread that meets another at a barrier then waits for its turn on a core. "
        "The last column is for an event, on the average of the threads.",
    ),
    Section(
        "TagMatch",
        lambda r: _is_engine(r) and r["engine"] == "tagmatch",
        "scenario | sets | variant | max_p | batches a launch | on | queries/s | kernels alone | µJ a query | "
        "answers a query | pre-process / match / look up / reduce, µs",
        _tagmatch,
        "Matches verified; rows with `constraints=3-5, name_exponent=0.5` are another workload than the paper's, with one "
        f"answer a query. {KERNELS_ALONE}On the H200 65,536 queries at a time, all in one process; "
        "the commands do the same. The paper prints 268,800 queries/s for 20 M sets on two GPUs of 2015 with one batch a "
        "launch; for CPUs alone, of 24 cores, 3,900 with TagMatch and 21,100 with its prefix tree. Other programs used the "
        "two cores of the AMD EPYC. The last column is for a query, of the calling thread.",
    ),
    Section(
        "The number of answers to an event",
        _has_answers,
        "scenario | filters | answers wanted | answers an event | engine | on | events/s | answers/s",
        _answers,
        "Ranges whose width gives an event so many answers; tag sets that so many filters share. Other programs used the "
        "two cores too.",
    ),
    Section(
        "TagMatch without its check",
        _has_recall,
        "scenario | filters | engine | on | queries/s | recall | precision",
        _recall,
        "`exact=off` delivers sets whose signature matches by chance, as the paper does. Recall is the share of the right "
        "answers that it found, precision that of its answers that are right. Engines took turns; other programs used the "
        "two cores too.",
    ),
    Section(
        "Options of engines, one changed at a time",
        lambda r: r["what"] == "ablation" and "failure" not in r,
        "engine | scenario | filters | changed | on | µs an event | rate, of the default's",
        _ablation,
        "The default is measured before and after each variant: the ratio to the mean of both, and to each. Options that "
        "need a GPU are left out.",
    ),
    Section(
        "Latency of an engine against load",
        lambda r: r["what"] == "load",
        "scenario | filters | engine | on | events/s offered (of the highest) | events/s served | p50 / p99 / p99.9, µs | ",
        _load,
        "Events arrive as a Poisson process; from arrival to answer, in one process. The knee is the load with the most "
        "events/s for each microsecond of p99.",
    ),
    Section(
        "Latency of followed runs against load",
        lambda r: r["what"] == "run load",
        "scenario | filters | workers | threads | on | events/s offered (of those in one file) | events/s served | "
        "p50 / p99 / p99.9, ms | ",
        _run_load,
        "From the rename of a file of JSON lines until its answers are written: scanning, messages and writing are in it. "
        "The master shares the cores with the workers, and on two cores other programs did. The highest rate is that of all "
        "events in one file. The knee is the load with the most events/s for each microsecond of p99.",
    ),
    Section(
        "Routing of events to shards, and broadcast",
        lambda r: r["what"] == "routing",
        "scenario | filters | shards | how | pairs of event and shard left out | without an answer there | "
        "events of the busiest shard | bytes sent an event | master, µs an event | all workers, µs an event",
        _routing,
        "CPU times of one process that does the work of all ranks, one after the other, without MPI: on two cores, the wall "
        "time of 16 ranks says how these share the cores. The master's time is for making messages; a broadcast makes one "
        "and sends it to each shard. A routed shard has other filters than a broadcast one, so other events have no answer "
        "there.",
    ),
    Section(
        "False positives of signatures",
        lambda r: r["what"] == "false positives",
        "sets | tags of a query | sets of a query that match | false positives, measured | predicted",
        _false_positives,
        "Sets of the scenario `tagmatch` whose signature matches a query that lacks one of their tags, a query; and the sum "
        "of the paper's formula (section 3, footnote 3) over pairs of query and set.",
    ),
    Section(
        "`keyed` with its bitmap and without",
        lambda r: r["what"] == "ranges",
        "scenario | filters | in the bitmap | µs an event, bitmap | µs, lists alone | ratio | matches | "
        "candidates, bitmap | candidates, lists | bytes of rows a filter",
        _ranges,
        "One thread of a shared machine, time of the process, both by turns; median, least and most. The ratio is the "
        "median of those of single turns. An event with more answers than a batch has room for at first is matched twice, "
        "and its candidates count twice.",
    ),
    Section(
        "Two states by turns",
        lambda r: r["what"] == "before and after",
        ENGINE_COLUMNS,
        _bench,
        "Before the tree was moved and after; before bitmaps on a GPU and after. On one machine each.",
    ),
    Section(
        "MPI-CUDA's mode: an event at a time to an idle worker, from disk to disk",
        lambda r: r["what"] == "end to end" and r.get("batch") == 1,
        "scenario | filters | engine | device | workers | events | journal | µs an event",
        _one_at_a_time,
        "One master and the workers under `mpirun` (Open MPI 4.1) on one host. MPI-CUDA's paper prints 252 µs for CCM on "
        "one GPU, and 153 for itself on four. Rows of commit `a9bdde791753` and of H100s are of hosts with two GPUs; at "
        "that commit two workers were no faster than one, since the master looked ahead for every event. Hosts with "
        "two GPUs differ by more than half of the time of one worker; rows of one commit are of one host, and those of "
        "`8932e8bf89e5` and `7f9f0775b25b` were measured by turns on one.",
    ),
    Section(
        "From an event table on disk to verified answers on disk",
        lambda r: r["what"] == "end to end" and r.get("batch") != 1,
        "scenario | filters | engine | device | events | workers | placement | feed | results | events/s",
        _end_to_end,
        "One master and the workers under `mpirun`. A run of 16 million events lasts a quarter of a second, "
        "of which starting up is a part. Rows with `local` have their events in memory when the clock starts, and write "
        "under /dev/shm. TagMatch has 64 batches of queries a launch and 16 threads a GPU; its rows with one worker and "
        "with parts of the sets (`shard`) are of one host, that of all sets on both GPUs of another.",
    ),
    Section(
        "JSON lines",
        lambda r: r["what"] == "scanned events",
        "scenario | filters | threads, of cores | lines to codes, /s | warm file to answers, /s | ns of a core, a line",
        _scanned,
        "In brackets how many times as fast as reading line by line, in one process and minute; the last column is the "
        "processor time of both, to codes.",
    ),
    Section(
        "Subscriptions of JSON lines",
        lambda r: r["what"] == "scanned subscriptions",
        "scenario | filters | warm file to columns, rows/s | file to table on disk, median, best | ns of a core, a row",
        _scanned_subscriptions,
        "In brackets how many times as fast as reading line by line, in one process and minute; the last column is the "
        "processor time of both. Other programs used the two cores too.",
    ),
    Section(
        "JSON lines on a GPU",
        lambda r: r["what"] == "scanned events on a GPU",
        "scenario | filters | device | kernels, lines/s | with the copy | lines in memory to answers | "
        "lines of a file to answers | `match`, to a file of answers | `run`, likewise",
        _scanned_on_gpu,
        "From pinned memory, two blocks of lines scanned ahead, and from a file in memory; events and answers are those of "
        "the CPU's scanner. Only the last two columns write their answers.",
    ),
    Section(
        "Mutated lines: scanner against line reader",
        lambda r: r["what"] == "mutated lines",
        "lines | rejected | flagged | flagged by a GPU | device",
        _mutated,
        "Events, locations, and rejects with their reasons were the same, on the GPU those of lines that it does not flag.",
    ),
    Section(
        "Columns of Arrow to codes",
        lambda r: r["what"] == "encoded columns",
        "scenario | filters | columns | threads, of cores | events/s | ns of a core, an event",
        _encoded_columns,
        "In brackets how many times as fast as entry by entry, in one process and minute. "
        "`dense`: five columns without nulls; `sparse`: one for every name, most of it null.",
    ),
    Section(
        "Event tables of lines and columns",
        lambda r: r["what"] == "event tables",
        "scenario | filters | rows | threads | warm file to event table, events/s | ns of a core, an event",
        _event_tables,
        "`compile events --local`, with both sets of columns written; in brackets how many times as fast as row by row, in "
        "one process and minute. Columns are Parquet with one for every name, most of it null. Other programs used the two "
        "cores for most of the time: the processor time says what they do when they are free.",
    ),
    Section(
        "Event tables in Spark",
        lambda r: r["what"] == "event tables in Spark",
        "scenario | filters | rows | events | warm file to event table, events/s | ns of a core, an event",
        _spark_event_tables,
        "`compile events` in a session that has compiled before; in brackets how many times as fast as where Spark sorts "
        "the rows, in turns. Processor time is that of Java and all Python: where tasks read files by themselves / where "
        "Spark's rows stay in its partitions / where Spark sorts them / of the first compile of these rows in the session.",
    ),
    Section(
        "Subscriptions in Spark",
        lambda r: r["what"] == "subscriptions in Spark",
        "scenario | rows | filters | warm file to table, rows/s | processor time of it | ns of a core, a row, to parse",
        _spark_subscriptions,
        "`compile subscriptions` in a session that has compiled before. The processor time is that of Java and all Python. "
        "The last column is its first step: scanned / every row judged by itself. "
        "Other programs used the two cores for most of the time: the processor time says what they do when they are free.",
    ),
    Section(
        "From JSON lines to verified answers on disk",
        lambda r: r["what"] == "lines end to end",
        "scenario | engine | device | events | workers | feed | results | events/s",
        _end_to_end,
        "Under `mpirun`, without a compile step; the workers scan. Other programs used the two cores of the AMD EPYC. Rows "
        "with `shared` have their lines in memory when the clock starts.",
    ),
    Section(
        "One event as an object or as JSON, to labels",
        lambda r: r["what"] == "one row",
        "scenario | filters | bytes, µs p50 / p99 | dict | `LiveMatcher`, bytes | a list of one dict, before",
        _one_row,
        "`RowMatcher` in one process, one thread.",
    ),
    Section(
        "Answers as JSON lines and as Arrow",
        lambda r: r["what"] == "exported lines",
        "labels an event | events | threads | lines: events/s | Python's encoder, before | Arrow: events/s",
        _exported,
        "To a file in memory.",
    ),
    Section(
        "One event from the master to the worker and back",
        lambda r: r["what"] == "one event",
        "scenario | engine | device | µs, median (of several runs) | µs, p99",
        _one_event,
    ),
    Section(
        "The published systems, one event at a time",
        lambda r: r["what"] == "latency",
        "engine | filters | device | measured | answer | µs, median | µs, p99",
        _latency,
        "Copies included. CCM's own C++ takes 68 to 87 µs on such a machine for the same table; CLCB's paper prints "
        "306 µs on a GTX 460.",
    ),
    Section(
        "Areas beside an R*-tree",
        lambda r: r["what"] == "rtree beside",
        "scenario | filters | engine | device | one event, µs | in batches, µs | one move, µs | moves at once, µs each",
        _areas,
        "`rtree` is libspatialindex on one core, with the naive check of the other constraints. Answers are compared in "
        "the same run.",
    ),
    Section(
        "A table that changes for minutes",
        lambda r: r["what"] == "soak",
        "scenario | filters | engine | device | minutes | update, ms p50 / p99 / max | event after it, ms | process",
        _soak,
        "250 changes come with every 2,500 events: moves, filters and interfaces that come and go. "
        "Memory is the process's in the second half.",
    ),
    Section(
        "A table that grows",
        lambda r: r["what"] == "growth",
        "engine | device | filters that come | in one update | update, ms p50 / p99 / max | event after it, ms",
        _growth,
    ),
    Section(
        "More workers",
        lambda r: r["what"] == "scaling",
        "scaling | how | workers | events | events/s | speed-up | efficiency",
        _scaling,
    ),
    Section(
        "Memory over a million batches",
        lambda r: r["what"] == "memory kept",
        "batches | seconds | MiB grown since the first tenth",
        _memory,
    ),
)

NO_TABLE = {"report", "experiment", "ranks"}
"""Kinds of records without a table: `mpi-match plot` draws a run's report, `make report` the points of experiments."""


def table(section: Section, records: Iterable[Record]) -> str:
    """A section as Markdown: heading, note, rows, commands; empty when no record is its."""
    mine = [record for record in records if section.takes(record)]
    if not mine:
        return ""
    head = f"| {section.columns} | commit |"
    rows = [f"| {' | '.join(section.cells(record))} | `{record['commit'][:12]}` |" for record in mine]
    rule = re.sub(r"[^|]+", "---", head)
    commands = "".join(f"$ {command}\n" for command in dict.fromkeys(map(command_of, mine)))
    note = f"{section.note}\n\n" if section.note else ""
    return f"\n## {section.title}\n\n{note}{head}\n{rule}\n" + "\n".join(rows) + f"\n\n```console\n{commands}```\n"


def survival(records: Sequence[Record]) -> str:
    """What runs have survived, as Markdown."""
    kills = [record for record in records if record["what"] in KILLS]
    rows = "\n".join(map(kill_row, kills))
    launchers = "\n".join(launcher_rows(records))
    commands = "".join(f"$ {command_of(record)}\n" for record in records if record["what"] in (*KILLS, "what survives"))
    return f"""
## What runs have survived

Two busy cores; workers under `--with-ft ulfm`; hosts are network namespaces. Every failure ended with code 4 and named its
events, which `--resume` answers.

{KILL_COLUMNS}
{re.sub(r"[^|]+", "---", KILL_COLUMNS)}
{rows}

*goes on*: all answers were there at the end; *resumes*: the run ended, and `--resume` completed them; all to the same bytes.
¹ The launcher had not ended 60 s after the blow and was ended.

{LAUNCHER_COLUMNS}
{re.sub(r"[^|]+", "---", LAUNCHER_COLUMNS)}
{launchers}

```console
{commands}```
"""


def kill_row(found: Record) -> str:
    """A record of kills as a row under KILL_COLUMNS."""
    match found["what"]:
        case "workers killed":
            least, most = found["workers"]
            placement = found.get("placement", "replicate")
            of = "" if placement == "replicate" else f" of a run with `--placement {placement}`"
            of += f" of a run in batches of {found['batch']}" if "batch" in found else ""
            happened = f"SIGKILL to 1 to W − 1 of W workers, {least} to {most},{of} and SIGSTOP to another for up to 5 s"
            often = f"{found['kills']}, and {found['stops']} stops, in {_many(found['runs'], 'run')}"
            noticed = f"noticed after {found['noticed_ms']['p50']:.0f} ms (median)"
            counts = (f"{found[what]} {what}" for what in ("lost", "doubled", "wrong"))
            ended = f"{_many(found['hangs'], 'hang')}, {_many(len(found['failed']), 'failure')}"
            came = f"of the events {', '.join(counts)}; {ended}; {noticed}"
        case "masters killed":
            of = f"the master of a run of {found['ranks']} ranks" if found["ranks"] > 1 else "a run of one process"
            happened = f"SIGKILL to {of}, then `--resume`"
            often = f"{found['kills']} in {_many(found['runs'], 'run')}"
            came = _same_bytes(found)
        case "hosts killed":
            happened = f"a power cut to one of {found['hosts']} hosts after the other, under `supervise`"
            often = f"{found['kills']} in {_many(found['runs'], 'run')}"
            came = _same_bytes(found)
        case other:
            raise ValueError(f"no record of kills: {other}")
    return f"| {happened} ({version_of(found)}) | {often} | {came} | `{found['commit'][:12]}` |"


def _same_bytes(found: Record) -> str:
    right = "the bytes" if found["right"] else "NOT the bytes"
    return f"{_many(found['runs'], 'time')} {right} of an undisturbed run; {_many(found['hangs'], 'hang')}"


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def version_of(found: Record) -> str:
    """Name and number of a record's MPI."""
    number = re.search(r"\d+(\.\d+)+", found["mpi"])
    name = "Open MPI" if "Open MPI" in found["mpi"] else "MPICH"
    return f"{name} {number[0] if number else found['mpi']}"


def launcher_rows(records: Iterable[Record]) -> Iterator[str]:
    """The rows under LAUNCHER_COLUMNS: one for each record of `bench kills outcomes` and each set of flags."""
    records = list(records)
    for found in (each for each in records if each["what"] == "what survives"):
        for flags in dict.fromkeys(each["flags"] for each in found["outcomes"]):
            launcher = f"with `{flags}`" if flags else version_of(found)
            cells = [cell_of(each["outcomes"]) for each in found["outcomes"] if each["flags"] == flags]
            hosts = [
                outcome
                for each in records
                if each["what"] == "hosts killed" and version_of(each) == version_of(found) and each["flags"] == flags
                for outcome in each["outcomes"]
            ]
            yield f"| {' | '.join([launcher, *cells, cell_of(hosts)])} | `{found['commit'][:12]}` |"


def cell_of(outcomes: Sequence[str]) -> str:
    """What came of one blow, several times; where it was not always the same, how often.  ¹: the launcher stayed."""
    counted: dict[str, int] = {}
    for outcome in outcomes:
        name = outcome.replace(STAYS, "¹")
        counted[name] = counted.get(name, 0) + 1
    ordered = sorted(counted.items(), key=lambda item: -item[1]) or [("not tried", 0)]
    return ordered[0][0] if len(ordered) == 1 else ", ".join(f"{n} × {outcome}" for outcome, n in ordered)


def page(records: Sequence[Record]) -> str:
    """RESULTS.md.  Raises ValueError for a record that no table takes."""
    for record in records:
        taken = any(section.takes(record) for section in SECTIONS)
        if not taken and record["what"] not in (*KILLS, "what survives", *NO_TABLE):
            raise ValueError(f"no table takes records of {record['what']!r}")
    survived = survival(records) if any(record["what"] in KILLS for record in records) else ""
    return HEAD + "".join(table(section, records) for section in SECTIONS) + survived


def highlights(records: Sequence[Record]) -> str:
    """The rows of the README: the best of one engine, one core pair, one GPU, several GPUs; and the published systems."""
    bench = [r for r in records if r["what"] == "bench" and r["scenario"] == "ccm"]
    runs = [r for r in records if r["what"] == "end to end" and r["scenario"] == "ccm" and r.get("results") == "local"]
    of_lines = [r for r in records if r["what"] == "lines end to end" and r["scenario"] == "ccm" and r["workers"] == 1]
    lines = max(of_lines, key=_middle)
    gpu = max((r for r in bench if r["engine"] == "keyed_cuda"), key=lambda r: r["events_per_s"])
    cores = max((r for r in bench if r["engine"] == "keyed" and r["machine"]["cores"] == 2), key=lambda r: r["events_per_s"])
    one, most = (max((r for r in runs if r["workers"] == n), key=_middle) for n in (1, max(r["workers"] for r in runs)))
    rows = (
        (
            "`keyed`, encoded events in memory to answers in memory",
            device_of(cores),
            f"{rate(cores['events_per_s'])} events/s",
            cores,
        ),
        ("`keyed_cuda`, the same", gpu["device"], f"{rate(gpu['events_per_s'])} events/s", gpu),
        ("`run`, JSON lines in memory to answers on disk", lines["device"], f"{rate(_middle(lines))} events/s", lines),
        ("`run`, event table to answers on disk", one["device"], f"{rate(_middle(one))} events/s", one),
        ("`run`, the same", most["device"], f"{rate(_middle(most))} events/s", most),
    )
    written = [f"| {what} | {where} | {value} | `{record['commit'][:12]}` |" for what, where, value, record in rows]
    head = "| CCM's sizes, numbers only (`ccm`), 250,000 filters | on | median | commit |"
    best = "\n".join([head, re.sub(r"[^|]+", "---", head), *written])
    return f"{best}\n\n{systems.systems_table(records, device_of)}"


def _middle(record: Record) -> float:
    median: float = record["events_per_s"]["median"]
    return median


def with_highlights(readme: str, records: Sequence[Record]) -> str:
    """The README with its rows made anew."""
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}{highlights(records)}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    found = all_records()
    PAGE.write_text(page(found), encoding="utf-8")
    README.write_text(with_highlights(README.read_text(encoding="utf-8"), found), encoding="utf-8")
    bias.PAGE.write_text(bias.with_losses(bias.PAGE.read_text(encoding="utf-8"), RECORDS), encoding="utf-8")
    papers_page.PAGE.write_text(papers_page.page(), encoding="utf-8")
    written = ", ".join(each.name for each in (PAGE, README, bias.PAGE, papers_page.PAGE))
    sys.stdout.write(f"{written} written from {len(found)} records\n")
