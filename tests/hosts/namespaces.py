"""Several hosts on one machine: network, name, processes and shared memory of their own, a cable between them.

    lab (a network namespace)          bridge 192.0.2.0/24
                                     │           │           │
    host (all namespaces)          eth0        eth0        eth0
                                   n1  .1      n2  .2      n3  .3

A host is a process that is 1 in its own PID namespace.  To MPI and Slurm that is another machine: it has another host
name, other addresses, its own /dev/shm, /run and /etc/hosts; only files are shared, as a cluster's home directories are,
except `local`, which each host has for itself.  To kill process 1 is to pull the plug: the kernel kills every process of
the host, closes nothing, says nothing.

Nothing outlives a test.  Process 1 waits for the end of a pipe that the test holds, so hosts are gone with the test
however it ends, and with their last process go their interfaces, mounts and addresses.  The addresses are those that
RFC 5737 keeps for examples; no other network namespace sees them.

Needs root, util-linux (unshare, nsenter) and iproute2 (ip).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType

TIMEOUT_S = 120.0
"""Default time limit of a command on a host: machines are shared, and a test that hangs has to end."""

TMPDIR = "/run"
"""Temporary files of MPI have the host's name and a PID in their names; both are soon used again, on the next test's n1."""

_NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")

# What process 1 does before it waits.  It says its number in the outer PID namespace, whose /proc is still there then.
# SIGCHLD is ignored so that the kernel buries orphans: Slurm takes a job with a zombie for one that still runs.
_BOOT = """
set -e
read -r pid _ </proc/self/stat
hostname "$1"
mount -t proc proc /proc
for each in /dev/shm /run "$3"; do mount -t tmpfs tmpfs "$each"; done
mount --bind "$2" /etc/hosts
ip link set lo up
echo "$pid"
exec env --ignore-signal=CHLD cat
"""


class NoHosts(Exception):
    """Hosts cannot be made here; the text says why."""


class Host:
    """One host.

    name, address   as in every host's /etc/hosts
    local           directory whose content only this host sees
    """

    def __init__(self, name: str, address: str, hosts_file: Path, local: Path) -> None:
        self.name = name
        self.address = address
        self.local = local
        self._started: list[subprocess.Popen[bytes]] = []
        boot = ("sh", "-c", _BOOT, "boot", name, str(hosts_file), str(local))
        self._first = _Waiting(*_NAMESPACES, "--fork", command=boot)

    @property
    def pid(self) -> int:
        """Process 1 of this host, by its number outside."""
        return self._first.pid

    def inside(self, *command: object) -> list[str]:
        """The command line that runs `command` on this host."""
        return ["nsenter", f"--target={self.pid}", *_NAMESPACES, "--", *map(str, command)]

    def run(
        self,
        *command: object,
        environment: Mapping[str, str] | None = None,
        cwd: Path = Path("/"),
        timeout: float = TIMEOUT_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on this host to its end, with `environment` (None: this process's) in the directory `cwd`."""
        line = self.inside("env", f"--chdir={cwd}", *command)
        return subprocess.run(line, capture_output=True, text=True, timeout=timeout, env=environment, check=False)

    def start(self, *command: object, log: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a command on this host in the background; its output is appended to `log`."""
        with log.open("ab") as file:
            started = subprocess.Popen(
                self.inside(*command), env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self._started.append(started)
        return started

    def plug_in(self, lab: _Waiting) -> None:
        """Connect this host's eth0 to the lab's bridge."""
        port = f"to-{self.name}"
        lab.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        lab.run("ip", "link", "set", port, "master", "bridge", "up")
        for arguments in (("addr", "add", f"{self.address}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
            done = self.run("ip", *arguments)
            if done.returncode:
                raise NoHosts(f"{self.name}: ip {' '.join(arguments)}: {done.stderr.strip()}")

    def kill(self) -> None:
        """Simulate a power loss: SIGKILL for process 1, and thereby for every process of this host."""
        self._first.kill()
        for each in self._started:
            each.wait()


class Hosts:
    """Hosts n1, n2, ... for the time of a `with`; raises NoHosts with the reason when there can be none.

    names       of the hosts
    directory   an empty directory for the files that make them
    """

    def __init__(self, names: Sequence[str], directory: Path) -> None:
        why = why_no_hosts()
        if why is not None:
            raise NoHosts(why)
        self._addresses = {name: f"192.0.2.{number}" for number, name in enumerate(names, 1)}
        self._directory = directory
        self._lab: _Waiting | None = None
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Hosts:
        local = self._directory / "local"
        local.mkdir()
        hosts_file = self._directory / "hosts"
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in self._addresses.items())]
        hosts_file.write_text("\n".join(lines) + "\n")
        try:
            self._lab = _Waiting("--net", command=("sh", "-c", "echo $$; exec cat"))
            self._lab.run("ip", "link", "add", "bridge", "type", "bridge")
            self._lab.run("ip", "link", "set", "bridge", "up")
            for name, address in self._addresses.items():
                self.hosts[name] = Host(name, address, hosts_file, local)
                self.hosts[name].plug_in(self._lab)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for host in self.hosts.values():
            host.kill()
        if self._lab is not None:
            self._lab.kill()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]


class _Waiting:
    """A process in new namespaces that waits for the end of its input, which comes at the latest with this process's."""

    def __init__(self, *namespaces: str, command: Sequence[str]) -> None:
        line, pipe = ["unshare", *namespaces, *command], subprocess.PIPE
        self._process = subprocess.Popen(line, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if not said.isdecimal():
            _, wrong = self._process.communicate()
            raise NoHosts(f"no namespaces here: {wrong.strip()}")
        self.pid = int(said)
        self._handle: int | None = os.pidfd_open(self.pid)  # the PID may be another process's by the time of the kill

    def run(self, *command: str) -> None:
        """Run a command in this process's network."""
        line = ["nsenter", f"--target={self.pid}", "--net", "--", *command]
        done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode:
            raise NoHosts(f"{' '.join(command)}: {done.stderr.strip()}")

    def kill(self) -> None:
        """End the process, and wait until the kernel has ended all processes in its PID namespace."""
        if self._handle is None:
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        os.close(self._handle)
        self._handle = None
        self._process.communicate()


def fresh_environment() -> dict[str, str]:
    """The environment of a shell on a host: this process's, without variables of launchers, and with the host's TMPDIR."""
    left = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_")
    return {**{key: value for key, value in os.environ.items() if not key.startswith(left)}, "TMPDIR": TMPDIR}


@cache
def why_no_hosts(also: str = "true") -> str | None:
    """Why no hosts can be made on this machine, or None when they can and the shell commands `also` succeed on one."""
    if os.geteuid() != 0:
        return "hosts are made of namespaces, for which one has to be root"
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing:
        return f"hosts are made with {', '.join(missing)}, which is not here; apt-get install util-linux iproute2"
    probe = ("mount -t tmpfs tmpfs /run", "ip link add name a type bridge", "ip link add name b type veth peer name c", also)
    line = ["unshare", *_NAMESPACES, "--fork", "sh", "-ec", "\n".join(probe)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        return f"this kernel, or the container that this is, makes no hosts: {done.stderr.strip()}"
    return None
