"""Makes locks and threads anew in a forked child process.

`fork` copies the memory of a process, but only the thread that calls it: the child has locks that a thread of its parent
holds for ever, and pools of threads that are not there.  What has such a lock or pool says how to go on without
(`renew_in_child`); a module does so for its own by `os.register_at_fork`.  `multiprocessing` forks on Linux up to Python
3.13, and so do joblib, PyTorch's loaders, and web servers that load an application before they fork.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """Something with locks or threads."""

    def forked(self) -> None:
        """Make them anew; called in a child process, before anything else runs there."""
        ...


def renew_in_child(owner: Renewable) -> None:
    """Call `owner.forked()` in every child process that is forked while the owner exists."""
    _owners.add(owner)


_owners: weakref.WeakSet[Renewable] = weakref.WeakSet()


def _forked() -> None:
    for owner in list(_owners):
        owner.forked()


os.register_at_fork(after_in_child=_forked)
