"""A Slurm cluster for the time of a test: its own daemons on hosts made for it, none of the machine's.

    n1   munged, slurmctld, slurmd, and the users' shell
    n2.. munged, slurmd

Each node has eight cores, by its configuration, and two GPUs (or none), because there are two character devices, /dev/null
by other names: more Slurm does not ask to count them, to give them to tasks and to say so in CUDA_VISIBLE_DEVICES.

The configuration is what runs where there is neither systemd nor a database: processes are tracked by their parents
(`linuxproc`), nothing is confined, nothing accounted.  slurmd wants to see control groups of version 1 all the same, so
each node gets an empty tree of them; the freezer is the only one that it looks for.  The plugin for PMIx opens Debian's
libpmix by the name that only libpmix-dev has.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from hosts.namespaces import TIMEOUT_S, Host, Hosts, NoHosts, why_no_hosts

PACKAGES = ("slurm-wlm", "munge", "libpmix-dev")
GPUS_PER_NODE = 2
CORES_PER_NODE = 8
MEMORY_MB = 64000
"""More than the machine has: the launch script, which runs unchanged, asks for five ranks of four cores with 4 GB each."""
START_S = 60.0

_SBIN = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"

_CONFIGURATION = """
ClusterName=made-for-a-test
SlurmctldHost={first.name}({first.address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=cred_expire=5
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldTimeout=30
SlurmdTimeout=10
KillWait=10
MinJobAge=600
{gres_types}
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""
# In seconds: sched_interval, between looks at what waits; cred_expire, before a job that is queued again may start;
# KillWait, between SIGTERM and SIGKILL when a job is ended; SlurmdTimeout, until a silent node counts as down.

_CONTROL_GROUPS = """set -e
mount -t tmpfs tmpfs /sys/fs/cgroup
mkdir /sys/fs/cgroup/freezer /sys/fs/cgroup/systemd
mount -t cgroup -o freezer freezer /sys/fs/cgroup/freezer
mount -t cgroup -o none,name=systemd systemd /sys/fs/cgroup/systemd"""


class SlurmCluster:
    """Nodes n1, n2, ... under Slurm for the time of a `with`; raises NoHosts with the reason when there can be none.

    n_nodes       how many
    directory     an empty directory for configuration, state and logs, which say why when something did not start
    environment   of the users' shell
    n_gpus        GPUs of a node
    """

    def __init__(
        self, n_nodes: int, directory: Path, environment: Mapping[str, str], *, n_gpus: int = GPUS_PER_NODE
    ) -> None:
        why = why_no_slurm()
        if why is not None:
            raise NoHosts(why)
        self._directory, self._n_gpus = directory, n_gpus
        self._environment = {**environment, "SLURM_CONF": str(directory / "slurm.conf")}
        self.names = [f"n{number}" for number in range(1, n_nodes + 1)]
        self._hosts = Hosts(self.names, directory)

    def __enter__(self) -> SlurmCluster:
        self._hosts.__enter__()
        try:
            self._configure()
            for name in self.names:
                self._boot(self._hosts[name])
            self._wait_until_idle(self.names)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._hosts.__exit__(kind, error, trace)

    def run(
        self, *command: object, cwd: Path = Path("/"), timeout: float = TIMEOUT_S, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the first node, with more in its environment: srun, sbatch, scontrol."""
        return self.shell.run(*command, environment={**self._environment, **more}, cwd=cwd, timeout=timeout)

    @property
    def shell(self) -> Host:
        """The host of the users' shell, which is the first node."""
        return self._hosts[self.names[0]]

    def job(self, number: int | str) -> dict[str, str]:
        """Slurm's fields of a job, or of one task of an array ("7_0"), by the names of `scontrol show job`."""
        done = self.run("scontrol", "--oneliner", "show", "job", number)
        assert done.returncode == 0, done.stderr
        pairs = (each.partition("=") for each in done.stdout.split())
        return {name: value for name, _, value in pairs}

    def node(self, name: str) -> Host:
        """The host of a node."""
        return self._hosts[name]

    def kill_node(self, name: str) -> None:
        """Kill one node, as a loss of power would."""
        self._hosts[name].kill()

    def logs(self) -> str:
        """The logs of the daemons."""
        return "\n".join(f"== {path.name}\n{path.read_text()}" for path in sorted(self._directory.glob("*.log")))

    def _configure(self) -> None:
        directory = self._directory
        first = self._hosts[self.names[0]]
        resources = f"CPUs={CORES_PER_NODE} RealMemory={MEMORY_MB}" + f" Gres=gpu:{self._n_gpus}" * bool(self._n_gpus)
        nodes = "\n".join(f"NodeName={name} NodeAddr={self._hosts[name].address} {resources}" for name in self.names)
        more = {"nodes": nodes, "names": ",".join(self.names), "gres_types": "GresTypes=gpu" * bool(self._n_gpus)}
        text = _CONFIGURATION.format(first=first, directory=directory, **more)
        (directory / "slurm.conf").write_text(text)
        (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        gpus = "".join(f"Name=gpu File=/run/gpu{number}\n" for number in range(self._n_gpus))
        (directory / "gres.conf").write_text(gpus)
        (directory / "mpi.conf").write_text("PMIxCliTmpDirBase=/run\n")
        key = directory / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))

    def _boot(self, node: Host) -> None:
        directory = self._directory
        for number in range(self._n_gpus):
            node.run("mknod", f"/run/gpu{number}", "c", 1, 3)
        node.run("sh", "-c", f"{_CONTROL_GROUPS}; mkdir /run/munge").check_returncode()
        self._start(node, "munged", "--foreground", f"--key-file={directory}/munge.key", "--seed-file=/run/munge/seed")
        if node is self.shell:
            self._start(node, "slurmctld", "-D", "-f", directory / "slurm.conf")
        self._start(node, "slurmd", "-D", "-N", node.name, "-f", directory / "slurm.conf")

    def _start(self, node: Host, daemon: str, *arguments: object) -> None:
        command = (shutil.which(daemon, path=_SBIN), *arguments)
        node.start(*command, log=self._directory / f"{daemon}-{node.name}.log", environment=self._environment)

    def _wait_until_idle(self, names: Sequence[str]) -> None:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            done = self.run("sinfo", "--noheader", "--Node", "--format=%N %T")
            if done.stdout.split("\n")[:-1] == [f"{name} idle" for name in names]:
                return
            time.sleep(0.2)
        raise NoHosts(f"Slurm's nodes are not idle after {START_S:.0f} s:\n{done.stdout}{done.stderr}\n{self.logs()}")


def why_no_slurm() -> str | None:
    """Why Slurm cannot be started on this machine, or None when it can."""
    missing = [name for name in ("slurmctld", "slurmd", "munged", "srun") if shutil.which(name, path=_SBIN) is None]
    if missing:
        return f"{', '.join(missing)} not found; apt-get install --no-install-recommends {' '.join(PACKAGES)}"
    return why_no_hosts(_CONTROL_GROUPS)
