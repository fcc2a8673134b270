#!/usr/bin/env bash
# Install what tests/hosts starts: Slurm, munge, sshd.  Installing starts none of it; the tests start their own.
#
#   tests/hosts/install.sh        as root, on Debian and what is made from it
#
# Exit code 5 and one line when that is not possible.
set -euo pipefail

fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 5
}

# libpmix-dev has the name by which Slurm's plugin for PMIx opens the library.
packages=(slurm-wlm munge libpmix-dev openssh-server openssh-client iproute2 util-linux)

if dpkg-query --show "${packages[@]}" >/dev/null 2>&1; then
    exit 0
fi
command -v apt-get >/dev/null || fail "there is no apt-get; install ${packages[*]} by hand"
((EUID == 0)) || fail "not root; run: sudo apt-get install --no-install-recommends ${packages[*]}"

# Debian starts daemons when it installs them, unless this says no (101).
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
log=$(mktemp)
{
    timeout 60 apt-get update -qq || true # what is there may do
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends "${packages[@]}"
} >"$log" 2>&1 || fail "apt-get install failed: $(tail -n 1 "$log")"
rm -f "$log"
