"""Re-creates locks and threads in a forked child process.

`fork` copies the memory of a process, but only the calling thread: the child has locks that a thread of its parent holds for
ever, and thread pools without threads.  An object with such a lock or pool registers a way to renew them (`renew_in_child`);
a module uses `os.register_at_fork` for its own.  `multiprocessing` forks on Linux up to Python 3.13, and so do joblib,
PyTorch's loaders, and web servers that load an application before they fork.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """An object with locks or threads."""

    def forked(self) -> None:
        """Re-create them; called in a child process, before anything else runs there."""
        ...


def renew_in_child(owner: Renewable) -> None:
    """Call `owner.forked()` in every child process that is forked while the owner exists."""
    _owners.add(owner)


_owners: weakref.WeakSet[Renewable] = weakref.WeakSet()


def _forked() -> None:
    for owner in list(_owners):
        owner.forked()


os.register_at_fork(after_in_child=_forked)
