#!/usr/bin/env bash
# The whole pipeline on this host, small: generate a workload, compile it with Spark, match it under mpirun with one master
# and two workers, check the answers against the naive matcher, print the times.  `make demo` runs this.
#
#   launch/demo.sh [DIR]          DIR (default .demo) keeps all files, to look at with `mpi-match inspect` and h5dump
#
# SCENARIO, FILTERS, EVENTS and WORKERS in the environment change the workload and the run.
set -euo pipefail
# shellcheck source=launch/mpi-env.sh
source "$(dirname "${BASH_SOURCE[0]}")/mpi-env.sh"

dir=${1:-$project/.demo}
scenario=${SCENARIO:-ccm}
filters=${FILTERS:-20000}
events=${EVENTS:-50000}
workers=${WORKERS:-2}

# Spark's Python workers are PATH's python3 by default, and a container's host name may resolve to nothing.
export PYSPARK_PYTHON=$python SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1}
# Java's second compiler takes longer than a job of seconds.
export SPARK_SUBMIT_OPTS=${SPARK_SUBMIT_OPTS--XX:TieredStopAtLevel=1}

report=()
stage() { # stage NAME ROWS WHAT COMMAND...: run it, note how long it took
    local name=$1 rows=$2 what=$3 start end
    shift 3
    printf '\n== %s\n' "$name" >&2
    start=${EPOCHREALTIME/[.,]/}
    "$@"
    end=${EPOCHREALTIME/[.,]/}
    report+=("$name" "$rows" "$what" "$((end - start))")
}

match() { "$project/launch/local.sh" "$workers" --table "$dir/table.h5" --events "$dir/events.h5" -o "$dir/matches.h5" --json >"$dir/run.json"; }

mpi_match() { "$python" -m mpi_match "$@"; }

if (($# == 0)); then
    rm -rf "$dir"
elif [[ -n $(ls -A "$dir" 2>/dev/null) ]]; then
    echo "demo.sh: $dir is not empty; name a new directory" >&2
    exit 2
fi
mkdir -p "$dir"
stage "generate" $((filters + events)) rows \
    mpi_match generate "$scenario" -o "$dir" --filters "$filters" --events "$events" --format jsonl
stage "compile subscriptions (Spark)" "$filters" filters \
    mpi_match compile subscriptions "$dir/subscriptions.jsonl" -o "$dir/table.h5"
stage "compile events (Spark)" "$events" events \
    mpi_match compile events "$dir/events.jsonl" --table "$dir/table.h5" -o "$dir/events.h5"
stage "run (mpirun, 1 master + $workers workers)" "$events" events match
stage "verify (naive matcher)" "$events" events \
    mpi_match verify --table "$dir/table.h5" --events "$dir/events.h5" --matches "$dir/matches.h5"

"$python" - "$dir/run.json" "${report[@]}" <<'PYTHON'
import json
import pathlib
import sys

run = json.loads(pathlib.Path(sys.argv[1]).read_text())
cells = iter(sys.argv[2:])
print(f"\n{'stage':<40} {'rows':>10} {'':<8} {'seconds':>8} {'rows/s':>12}")
for name, rows, what, microseconds in zip(cells, cells, cells, cells):
    seconds = int(microseconds) / 1e6
    rate = "" if name.startswith("verify") else f"{int(rows) / seconds:>12,.0f}"  # verify looks at a sample
    print(f"{name:<40} {int(rows):>10,} {what:<8} {seconds:>8.2f} {rate}".rstrip())
    if name.startswith("run"):
        if run["compile_s"] > 0.5:
            print(f"{'  of which compiling, once':<40} {'':>10} {'':<8} {run['compile_s']:>8.2f}")
        print(f"{'  of which matching':<40} {run['events']:>10,} {'events':<8} {run['wall_s']:>8.2f} {run['events_per_s']:>12,.0f}")
print(f"\n{run['matches']:,} matches (event, interface), checked against the naive matcher")
print(f"engine {run['engine']} on {run['device']}, {run['workers']} workers")
PYTHON
printf 'The files are in %s\n' "$dir"
