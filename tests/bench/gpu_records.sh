#!/usr/bin/env bash
# What the README says of GPUs, measured again on this machine, answers checked: the tests that need one, then the records.
#
#   tests/bench/gpu_records.sh DIRECTORY [STAGE...]
#
# Stages, in this order when none is named:
#   tests        every engine and kernel on the GPU, against the naive matcher               about 3 minutes
#   engines      `mpi-match bench`: all rows of the table of engines                         7
#   published    CCM and CLCB one event at a time, as they were published                    1
#   end-to-end   event table on disk to matches.h5 through mpirun, with and without journal  8
#   one-event    one event at a time to a worker and back                                    1
#   hard         250 answers an event, by master and by the workers                          2
#   areas        an R*-tree on the CPU beside clcb, keyed and keyed_cuda                     4
#   soak         changes without end at 2.5 M filters, and filters that come: memory, pauses 14
#   scaling      1, 2, 4, ... workers, a GPU each, as many as there are                      2 for each number
#   experiments  the tables and figures of the papers at full size; only when it is named    more than an hour
#
# Needs an environment with the project and MPI (`make env`); MPIRUN_FLAGS are for mpirun.  Times are those of an H200 with 16
# cores.  DIRECTORY gets a file of records for each stage and the workloads, which are used again.  A stage that fails is
# said at the end, and the others are done.  With a DIRECTORY under /dev/shm `scaling` is that of GPUs and not of a disk.
# Put them into tests/bench/records and run `python tests/bench/results.py`, which writes the pages.
set -uo pipefail

if (($# == 0)); then
    sed -n '2,/^[^#]/{ /^#/{ s/^# \{0,1\}//; p; }; }' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.." || exit
mkdir -p "$1"
to=$(cd "$1" && pwd)
shift
python=${MPI_MATCH_PYTHON:-python3}
million=1048576

try() { # try COMMAND...: one that fails fails its stage, which goes on
    "$@" || broken=1
}

bench() { # bench FILE SCENARIO... and options
    try "$python" -m mpi_match bench "${@:2}" --engine keyed_cuda -o "$to/$1.jsonl"
}

run() { # run FILE SCENARIO EVENTS and options: end to end
    local directory=$to/work/$2-$3
    mkdir -p "$directory"
    try "$python" -m mpi_match bench end-to-end "$2" --events "$3" --directory "$directory" --credits 8 "${@:4}" -o "$to/$1.jsonl"
}

make_workloads() { # SCENARIO:EVENTS..., side by side: it takes longer than what is measured with them
    local each
    for each; do
        "$python" -m mpi_match bench end-to-end "${each%:*}" --events "${each#*:}" --directory "$to/work/${each/:/-}" \
            --only-generate &
    done
    wait
}

stage_tests() {
    try "$python" -m pytest -q -m gpu tests/engines/test_engines.py tests/engines/test_live.py tests/unit/gpu/test_gpu_without_a_gpu.py
}

stage_engines() {
    local size=(--events $((8 * million)) --batch "$million" --repetitions 5 --check 20)
    bench engines ccm ccm-strings ccm-zipf1 ccm-zipf2 ccm-10-names ccm-wide many-interfaces ccm-large clcb "${size[@]}"
    bench engines clcb-large --events $million --batch $million --repetitions 5 --check 10
    bench engines debs2009 --events 131072 --batch 131072 --repetitions 5 --check 4
    bench engines ccm --events 131072 --batch 131072 --repetitions 5 --check 20 --engine keyed --engine ccm
}

stage_published() {
    try "$python" -m mpi_match bench ccm --engine ccm --batch 1 --events 4000 -o "$to/published.jsonl"
    try "$python" -m mpi_match bench clcb --engine clcb --batch 1 --events 1000 -o "$to/published.jsonl"
}

stage_end_to_end() {
    local many=$((16 * million)) more=$((32 * million)) each journal
    make_workloads ccm:$more ccm-large:$more clcb:$more ccm-strings:$many ccm-zipf1:$many ccm-zipf2:$many ccm-10-names:$many \
        ccm-wide:$many many-interfaces:$many debs2009:$((4 * million))
    for journal in "" --no-journal; do
        for each in ccm:$more ccm-large:$more clcb:$more ccm-strings:$many ccm-zipf1:$many ccm-zipf2:$many \
            ccm-10-names:$many ccm-wide:$many many-interfaces:$many; do
            # shellcheck disable=SC2086
            run end-to-end "${each%:*}" "${each#*:}" --check 20 $journal
        done
        # shellcheck disable=SC2086
        run end-to-end debs2009 $((4 * million)) --batch 131072 --credits 4 --check 4 $journal
    done
}

stage_one_event() {
    NUMBA_NUM_THREADS=1 try "$python" -m mpi_match bench ccm --scaling 1 --batch 1 --credits 1 --events 20000 --repetitions 3 \
        --check 40 ${MPIRUN_FLAGS:+"--mpirun-flags=$MPIRUN_FLAGS"} -o "$to/one-event.jsonl"
}

stage_hard() {
    local n_events=$((4 * million))
    make_workloads clcb-hard:$n_events
    run hard clcb-hard $n_events --batch 16384 --check 4
    run hard clcb-hard $n_events --batch 16384 --check 4 --feed shared --results local
    run hard clcb-hard $n_events --batch 16384 --check 4 --feed shared --results local --threads 16
}

stage_areas() {
    try "$python" -m mpi_match bench clcb clcb-zipf --param filters_per_interface=10 \
        --vary interfaces=10000,50000,100000,250000 --vary batch=1,1000 --events 1000 --repetitions 3 --moves 1000 \
        --engine clcb,rtree,keyed,keyed_cuda -o "$to/areas.jsonl"
}

stage_soak() {
    try "$python" -m mpi_match bench soak clcb --engine keyed_cuda --filters 2500000 --batch 2500 --minutes 10 \
        -o "$to/soak.jsonl"
    try "$python" -m mpi_match bench growth clcb --engine keyed_cuda -o "$to/growth.jsonl"
}

stage_scaling() {
    local gpus workers=1 all=1
    gpus=$(nvidia-smi --list-gpus | wc -l)
    while ((2 * workers <= gpus)); do
        workers=$((2 * workers)) all+=,$workers
    done
    make_workloads ccm:$((8 * million))
    for feed in shared file master; do
        run scaling ccm $((8 * million)) --times 96 --workers $all --feed $feed --results local --batch $million \
            --repetitions 2 --check 10
    done
    try "$python" -m mpi_match bench ccm --scaling $all --events $((16 * million)) --batch 262144 --feed shared --results local \
        --directory "$to/work" ${MPIRUN_FLAGS:+"--mpirun-flags=$MPIRUN_FLAGS"} -o "$to/scaling.jsonl"
}

stage_experiments() { # what is there already is not measured again
    try "$python" -m mpi_match experiment run all -o "$to/experiments"
    cat "$to"/experiments/*.jsonl >"$to/experiments.jsonl"
}

failed=()
stages=("$@")
((${#stages[@]})) || stages=(tests engines published end-to-end one-event hard areas soak scaling)
for stage in "${stages[@]}"; do
    function=stage_${stage//-/_}
    if ! declare -F "$function" >/dev/null; then
        echo "gpu_records.sh: there is no stage \"$stage\"" >&2
        exit 2
    fi
    printf '\n==> %s, %d s from the start\n' "$stage" $SECONDS >&2
    broken=0
    "$function"
    ((broken)) && failed+=("$stage")
done
if ((${#failed[@]})); then
    echo "gpu_records.sh: failed: ${failed[*]}" >&2
    exit 1
fi
