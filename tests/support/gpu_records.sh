#!/usr/bin/env bash
# What the README says of GPUs, measured again on this machine, answers checked: the tests that need one, then the records.
#
#   tests/support/gpu_records.sh DIRECTORY [STAGE...]
#
# Stages, in this order when none is named:
#   tests        every engine and kernel on the GPU, against the naive matcher               about 3 minutes
#   engines      `mpi-match bench`: all rows of the table of engines                         7
#   published    CCM and CLCB one event at a time, as they were published                    1
#   end-to-end   event table on disk to matches.h5 through mpirun, with and without journal  8
#   one-event    one event at a time to a worker and back                                    1
#   hard         250 answers an event, by master and by the workers                          2
#   areas        an R*-tree on the CPU beside clcb, keyed and keyed_cuda                     4
#   ranges       workloads of ranges and packets                                             3
#   lines        JSON lines in memory, of a file and by each feed to answers, and each part    6
#   cores        JSON lines and columns on all cores, without a GPU                           4
#   tags         212 million tag sets: keyed_cuda and TagMatch; 110 GiB of memory            7
#   published-mode  MPI-CUDA's mode: 500,000 events one at a time, with each number of workers 2 for each
#   soak         changes without end at 2.5 M filters, and filters that come: memory, pauses 14
#   scaling      1, 2, 4, ... workers, a GPU each, as many as there are                      2 for each number
#   experiments  the tables and figures of the papers, dear ones with fewer points; only when it is named   25
#   large-areas  points of CLCB with 10 million filters; only when it is named, as the next      14, estimated
#   large-tags   figures and tables of TagMatch with 20 to 212 million sets; 60 GiB of memory    40, estimated
#
# Needs an environment with the project and MPI (`make env`); MPIRUN_FLAGS are for mpirun.  Times are those of an H200 with 16
# cores.  DIRECTORY gets a file of records for each stage and the workloads, which are used again.  A stage that fails is
# said at the end, and the others are done.  With a DIRECTORY under /dev/shm `scaling` is that of GPUs and not of a disk.
# Put them into tests/bench/records and run `python tests/support/results.py`, which writes the pages.
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
    try "$python" -m pytest -q -m gpu tests/engines tests/unit/gpu
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

stage_ranges() {
    bench ranges packets --events $((8 * million)) --batch $million --repetitions 5 --check 5
    bench ranges intervals --events $million --batch 262144 --repetitions 5 --check 5
    bench ranges intervals-narrow --events $((2 * million)) --batch 262144 --repetitions 5 --check 5
    bench ranges intervals-narrow --filters 1000000 --events 524288 --batch 262144 --repetitions 5 --check 5
    bench ranges intervals-large --events 65536 --batch 32768 --repetitions 5 --check 3
}

stage_lines() {
    local each
    for each in "ccm --times 96 --on-disk" "contains --times 16" "ccm-strings --times 48" "clcb --times 48 --filters 250000"; do
        # shellcheck disable=SC2086
        try "$python" -m mpi_match bench read gpu $each -o "$to/lines.jsonl"
    done
    for each in master shared file; do # what Python does for a batch takes as long for a long one
        run lines ccm $((4 * million)) --lines --times 16 --batch $((2 * million)) --engine keyed_cuda --feed $each \
            --results local --no-journal --check 20 --workers "$(numbers_of_workers)"
    done
    try "$python" tests/support/judged_mutants.py --gpu -o "$to/lines.jsonl"
}

stage_cores() { # one worker less than cores: the master needs one
    local cores each
    cores=$(nproc)
    try "$python" -m mpi_match bench read lines ccm --events 8000000 --threads "$cores" --repetitions 3 -o "$to/cores.jsonl"
    try "$python" -m mpi_match bench read columns ccm --events 4000000 --threads "$cores" --repetitions 5 \
        --reference-rows 8192 -o "$to/cores.jsonl"
    for each in "ccm shared" "ccm file" "ccm-strings shared" "clcb shared"; do
        run cores "${each% *}" $((2 * million)) --lines --times 8 --filters 250000 --engine keyed --workers $((cores - 1)) \
            --threads 1 --batch 32768 --credits 4 --feed "${each#* }" --results local --no-journal --check 20
    done
}

stage_tags() { # a query of this law has one answer; an index is built anew for each engine
    local law=(--param constraints=3-5 --param name_exponent=0.5) directory=$to/work/tags
    try "$python" -m mpi_match generate tagmatch -v "${law[@]}" --filters 212000000 --events $((4 * million)) -o "$directory"
    bench tags -v --table "$directory/table.h5" --events "$directory/events.h5" --batch $((2 * million)) --check 8
    rm -rf "$directory"
    try "$python" -m mpi_match bench tagmatch -v "${law[@]}" --filters 212000000 --events 262144 --batch 65536 --engine tagmatch \
        --set launch=64 --check 1 --repetitions 3 -o "$to/tags.jsonl"
    bench tags tagmatch -v "${law[@]}" --filters 10000000 --events $((4 * million)) --batch $((2 * million)) --check 8
}

stage_published_mode() {
    local phases
    for phases in 2 3; do
        run published-mode ccm 500000 --engine ccm --set phases=$phases --batch 1 --credits 1 --feed master --check 20 \
            --repetitions 1 --workers "$(numbers_of_workers)"
    done
}

stage_soak() {
    try "$python" -m mpi_match bench soak clcb --engine keyed_cuda --filters 2500000 --batch 2500 --minutes 10 \
        -o "$to/soak.jsonl"
    try "$python" -m mpi_match bench growth clcb --engine keyed_cuda -o "$to/growth.jsonl"
}

numbers_of_workers() { # 1,2,4,...: as many as there are GPUs
    local gpus workers=1 all=1
    gpus=$(nvidia-smi --list-gpus | wc -l)
    while ((2 * workers <= gpus)); do
        workers=$((2 * workers)) all+=,$workers
    done
    echo "$all"
}

stage_scaling() {
    local all feed
    all=$(numbers_of_workers)
    make_workloads ccm:$((8 * million))
    for feed in shared file master; do
        run scaling ccm $((8 * million)) --times 96 --workers "$all" --feed $feed --results local --batch $million \
            --repetitions 2 --check 10
    done
    try "$python" -m mpi_match bench ccm --scaling "$all" --events $((16 * million)) --batch 262144 --feed shared --results local \
        --directory "$to/work" ${MPIRUN_FLAGS:+"--mpirun-flags=$MPIRUN_FLAGS"} -o "$to/scaling.jsonl"
}

experiment() { # what is there already is not measured again
    try "$python" -m mpi_match experiment run "$@" -o "$to/experiments"
    cat "$to"/experiments/*.jsonl >"$to/experiments.jsonl"
}

stage_large_areas() {
    experiment clcb-figure-4 --only interfaces=1000000 --only area=0.0001 --repetitions 2
    experiment clcb-figure-5 --only interfaces=1000000 --repetitions 1
    experiment clcb-figure-3 clcb-figure-4 --only interfaces=1000000 --repetitions 2
}

stage_large_tags() { # one command: what is of the same sets shares their table
    experiment tagmatch-table-1 tagmatch-table-3 tagmatch-figure-{2,3,4,5,6,7,8,9} tagmatch-section-{3.3,4.3.3} --repetitions 1
}

stage_experiments() { # what is missing at full size first
    experiment clcb-figure-6
    experiment ccm-section-4.2 mpi-cuda-phases clcb-section-4.3 --repetitions 2
    experiment farroukh-section-4.3 --events 1000 --repetitions 2
    experiment mpi-cuda-table-2 mpi-cuda-figure-5 --repetitions 2
    experiment mpi-cuda-figure-3 --only attributes=1,3,5,7,10 --repetitions 2
    experiment mpi-cuda-figure-4 --only events=100000 --repetitions 1
    experiment clcb-table-2 --engine clcb,betree,rtree,keyed,keyed_cuda
    experiment farroukh-figure-{5,6,7,8,9,10,11,12} --events 1000 --repetitions 2 --only threads=1,2,4,8
    experiment clcb-figure-7 clcb-figure-5 --only interfaces=100,1000,10000,100000,250000 --repetitions 2
    experiment clcb-figure-3 clcb-figure-4 --only interfaces=100,1000,10000,100000 --repetitions 2
    experiment ccm-figure-8 ccm-figure-9
    experiment clcb-table-2 --engine sff,duckdb --events 20 --repetitions 1
    experiment ccm-table-2 --engine duckdb --events 20 --repetitions 1
    experiment farroukh-figure-13 --events 1000 --repetitions 2 --only twophase.access_block=1,5,12,50,200,1430
    experiment farroukh-figure-14 farroukh-figure-15 --events 1000 --repetitions 2 --only filters=1000000,3000000,5000000
    experiment tagmatch-figure-8 tagmatch-figure-9 --only filters=5000000 --repetitions 2
    experiment tagmatch-figure-10 --only filters=1000000,5000000 --repetitions 2
    experiment tagmatch-table-1 tagmatch-table-3 --only filters=20000000 --repetitions 1
}

failed=()
stages=("$@")
((${#stages[@]})) || stages=(tests engines published end-to-end one-event hard areas ranges lines cores tags published-mode soak scaling)
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
