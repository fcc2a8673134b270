"""A Beowulf cluster for the time of a test: hosts with ssh between them without a password.

Every host has an /etc/ssh of its own, with keys made for the test, so that plain `ssh n2` works there as it does on a
cluster, and a launcher needs no settings.  The machine's own sshd and keys play no part, nor does what the
user's shell does when it starts: root's shell is sh there.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from hosts.namespaces import TIMEOUT_S, TMPDIR, Host, Hosts, NoHosts, why_no_hosts

PACKAGES = ("openssh-server", "openssh-client")
START_S = 30.0

_SBIN = "/usr/sbin:/usr/local/sbin:/sbin"
_CLIENT = """
Host *
    IdentityFile /etc/ssh/key
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
    ConnectTimeout 5
"""
_SERVER = """
HostKey /etc/ssh/key
AuthorizedKeysFile /etc/ssh/key.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
SetEnv TMPDIR={tmpdir}
"""
_MOUNTS = """
set -e
mount -t tmpfs tmpfs /etc/ssh
cp "$1"/* /etc/ssh/
mkdir /run/sshd
sed '/^root:/s|[^:]*$|/bin/sh|' /etc/passwd >/run/passwd
mount --bind /run/passwd /etc/passwd
"""


class Beowulf:
    """Hosts n1, n2, ... for the time of a `with`; raises NoHosts with the reason when there can be none.

    n_hosts       how many
    directory     an empty directory for the files that make them
    environment   of the users' shell
    """

    def __init__(self, n_hosts: int, directory: Path, environment: Mapping[str, str]) -> None:
        why = why_no_beowulf()
        if why is not None:
            raise NoHosts(why)
        self._directory = directory
        self._environment = dict(environment)
        self.names = [f"n{number}" for number in range(1, n_hosts + 1)]
        self._hosts = Hosts(self.names, directory)

    def __enter__(self) -> Beowulf:
        self._hosts.__enter__()
        try:
            self._make_keys()
            for name in self.names:
                self._boot(self._hosts[name])
            self._wait_until_reachable()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._hosts.__exit__(kind, error, trace)

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def run(
        self, *command: object, cwd: Path = Path("/"), timeout: float = TIMEOUT_S, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the first host, with more in its environment."""
        return self["n1"].run(*command, environment={**self._environment, **more}, cwd=cwd, timeout=timeout)

    def _make_keys(self) -> None:
        ssh = self._directory / "ssh"
        ssh.mkdir()
        (ssh / "ssh_config").write_text(_CLIENT)
        (ssh / "sshd_config").write_text(_SERVER.format(tmpdir=TMPDIR))
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh / "key"], check=True)

    def _boot(self, host: Host) -> None:
        done = host.run("sh", "-c", _MOUNTS, "boot", self._directory / "ssh")
        if done.returncode:
            raise NoHosts(f"{host.name}: {done.stderr.strip()}")
        host.start(shutil.which("sshd", path=_SBIN), "-D", "-e", log=self._log(host))

    def _wait_until_reachable(self) -> None:
        end = time.monotonic() + START_S
        for name in self.names:
            while (done := self.run("ssh", name, "true")).returncode:
                if time.monotonic() > end:
                    said = f"{done.stderr.strip()}\n{self._log(self[name]).read_text()}"
                    raise NoHosts(f"{name} is not reachable by ssh after {START_S:.0f} s: {said}")
                time.sleep(0.1)

    def _log(self, host: Host) -> Path:
        return self._directory / f"sshd-{host.name}.log"


def why_no_beowulf() -> str | None:
    """Why such a cluster cannot be made on this machine, or None when it can."""
    if shutil.which("sshd", path=_SBIN) is None or shutil.which("ssh") is None:
        return f"sshd or ssh not found; apt-get install --no-install-recommends {' '.join(PACKAGES)}"
    return why_no_hosts()
