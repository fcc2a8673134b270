#!/usr/bin/env bash
# Match on the hosts of a hostfile: one rank for each slot, of which rank 0 is the master.
#
#   launch/mpirun.sh HOSTFILE [-n RANKS] --table table.h5 --events events.h5 -o matches.h5 [more of `mpi-match run`]
#
# HOSTFILE has "host slots=2" lines for Open MPI or "host:2" lines for MPICH and Intel MPI (examples in hostfiles/, or by `mpi-match launch`).
# RANKS may be more than the slots.  Every host has the project, or the Python it is installed for, at the same path; only the
# master's host needs the tables.
# Overrides: MPI_MATCH_PYTHON, MPIRUN, MPIRUN_FLAGS (see launch/mpi-env.sh), for example
#   MPIRUN_FLAGS='--mca btl_tcp_if_include eth1' launch/mpirun.sh hostfiles/two-hosts.openmpi ...
set -euo pipefail
# shellcheck source=launch/mpi-env.sh
source "$(dirname "${BASH_SOURCE[0]}")/mpi-env.sh"

if (($# < 2)); then
    usage >&2
    exit 2
fi
hostfile=$1
shift
if [[ ! -r $hostfile ]]; then
    echo "mpirun.sh: no hostfile $hostfile; \`mpi-match launch hostfile-openmpi\` (or -mpich) prints an example" >&2
    exit 2
fi

mpi_find

# Each launcher reads the other's form without complaint and starts the wrong number of ranks, so the form is checked here.
hosts=$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$hostfile")
if [[ $mpi_flavour == openmpi ]]; then
    form='host slots=2' other='^[^[:space:]]+:[0-9]+[[:space:]]*$'
    slots=$(awk '{ n = 1; for (i = 2; i <= NF; i++) if (sub(/^slots=/, "", $i)) n = $i; total += n } END { print total + 0 }' <<<"$hosts")
else
    form='host:2' other='slots='
    slots=$(awk '{ n = 1; if (split($1, part, ":") == 2) n = part[2]; total += n } END { print total + 0 }' <<<"$hosts")
fi
if [[ -z $hosts ]]; then
    echo "mpirun.sh: $hostfile names no host; write lines like \"$form\"" >&2
    exit 2
fi
# Names are passed to ssh, which reads one that begins with - as an option, and some options run commands.
name='([[:alnum:]_][[:alnum:]_.-]*@)?[[:alnum:]_][[:alnum:]_.-]*'
lines=$(sed -e 's/#.*//' "$hostfile")
if wrong=$(grep -nm 1 $'\r' <<<"$lines"); then
    cure="ends in a carriage return, which no launcher reads; run: sed -i 's/\\r\$//' $hostfile"
    printf '%s\n' "mpirun.sh: $hostfile, line ${wrong%%:*}: $cure" >&2
    exit 3
fi
if wrong=$(grep -nEvm 1 "^[[:space:]]*($name(:[0-9]+)?([[:space:]]|\$)|\$)" <<<"$lines"); then
    echo "mpirun.sh: $hostfile, line ${wrong%%:*}: no host name at the beginning of \"${wrong#*:}\"; an IPv6 address needs a name in /etc/hosts" >&2
    exit 3
fi
if grep -Eq "$other" <<<"$hosts"; then
    echo "mpirun.sh: $hostfile is not in the form that $mpirun ($mpi_flavour) reads; write lines like \"$form\"" >&2
    exit 2
fi

ranks=$slots
if [[ $1 == -n ]]; then
    ranks=${2:-}
    if [[ ! $ranks =~ ^[1-9][0-9]*$ ]]; then
        echo "mpirun.sh: -n takes a number of ranks, found \"$ranks\"" >&2
        exit 2
    fi
    shift 2
fi

mpi_flags hosts
if [[ $mpi_flavour == openmpi ]] && ((ranks > slots)); then
    mpi_args+=(--oversubscribe)
fi
mpi_match_run hosts
mpi_start "$mpirun" --hostfile "$hostfile" "${mpi_args[@]}" -n "$ranks" "${rank_command[@]}" "$@"
