#!/usr/bin/env bash
# Match on this host: one master and N workers.
#
#   launch/local.sh N --table table.h5 --events events.h5 -o matches.h5 [more of `mpi-match run`]
#
# N is the number of workers: one for each GPU, or any number on the CPU (more ranks than cores works).
# The cores are divided evenly; NUMBA_NUM_THREADS sets another number of threads for each worker.
# Overrides: MPI_MATCH_PYTHON, MPIRUN, MPIRUN_FLAGS (see launch/mpi-env.sh).
set -euo pipefail
# shellcheck source=launch/mpi-env.sh
source "$(dirname "${BASH_SOURCE[0]}")/mpi-env.sh"

workers=${1:-}
if [[ ! $workers =~ ^[1-9][0-9]*$ ]] || (($# < 2)); then
    usage >&2
    exit 2
fi
shift

threads=$(($(nproc) / workers))
export NUMBA_NUM_THREADS=${NUMBA_NUM_THREADS:-$((threads > 0 ? threads : 1))}

mpi_find
mpi_flags local
mpi_match_run local
mpi_start "$mpirun" "${mpi_args[@]}" -n $((workers + 1)) "${rank_command[@]}" "$@"
