"""Hostfiles, as launchers read them: the hosts, their numbers of ranks, and the file without some hosts.

node1 slots=3        Open MPI
node1:3              MPICH, Intel MPI
node1                either; the launcher chooses the number of ranks
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from mpi_match.cluster.options import ClusterError
from mpi_match.exit_codes import ExitCode

PROBE = "ssh -o BatchMode=yes -o ConnectTimeout=5 -- {} true"
"""Command that succeeds when a host answers; {} is its name."""
_NAME = re.compile(r"(?:\w[\w.-]*@)?\w[\w.-]*", re.ASCII)
_LINE = re.compile(r"^\s*(?P<name>[^\s:#]+(?=[\s#]|:\d+(?:[\s#]|$)|$)|[^\s#]+)(?::(?P<ranks>\d+))?(?P<rest>[^#]*)")
"""The pattern of a name and a number of ranks.  In any other line, such as one with an IPv6 address, the whole first word is
taken as the name, and refused."""
_SLOTS = re.compile(r"\bslots\s*=\s*(\d+)")


class Host(NamedTuple):
    """A host and its number of ranks; None where the file has none."""

    name: str
    ranks: int | None


def read_hostfile(path: Path) -> str:
    """The file's text, after checking that every host name is valid.

    Launchers and probes pass the names to `ssh`, which reads a name that begins with `-` as an option, and some options run
    commands.  No launcher reads lines that end in a carriage return.  Raises ClusterError, naming the line, and OSError.
    """
    text = path.read_bytes().decode(errors="replace")
    for number, line in enumerate(text.split("\n"), 1):
        host = _host_of(line)
        if "\r" in line.partition("#")[0]:
            raise ClusterError(
                f"{path}, line {number}: ends in a carriage return, which no launcher reads; run: sed -i 's/\\r$//' {path}",
                ExitCode.BAD_INPUT,
            )
        if host is not None and not _NAME.fullmatch(host.name):
            raise ClusterError(
                f"{path}, line {number}: {host.name!r} is not a host name: letters, digits, '.', '-' and '_', with or "
                "without 'user@' before it, and no '-' at the beginning; an IPv6 address needs a name in /etc/hosts",
                ExitCode.BAD_INPUT,
            )
    return text


def hosts_of(text: str) -> list[Host]:
    """The hosts of a file, in its order."""
    return [host for host in map(_host_of, text.splitlines()) if host is not None]


def without(text: str, gone: Collection[str]) -> str:
    """The file without the lines of some hosts."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if (host := _host_of(line)) is None or host.name not in gone)


def n_ranks(text: str) -> int | None:
    """The number of ranks of all hosts of a file; None when a host has none."""
    ranks = [host.ranks for host in hosts_of(text)]
    return None if None in ranks else sum(each or 0 for each in ranks)


def _host_of(line: str) -> Host | None:
    found = _LINE.match(line)
    if found is None:
        return None
    slots = found["ranks"] or next(iter(_SLOTS.findall(found["rest"])), None)
    return Host(found["name"], None if slots is None else int(slots))
