"""Keeps old values of containers, so that a change of several containers can be undone at any point.

    undo.set(labels, 3, "desk")        the old item is kept first, then overwritten
    undo.back()                        every container is as it was at the last `forget`

An exception may come between the two steps of a write: Ctrl-C, a time-out, or lack of memory.  So an old value is kept
*before* it is overwritten, and restoring it is idempotent: if `back` itself is interrupted, it is called again.
"""

from __future__ import annotations

from typing import Any, Final

from mpi_match.arrays.csr import Array

_NOTHING: Final = object()


class Undo:
    """Values before the writes, in their order; one flat list, which the garbage collector scans as one object."""

    def __init__(self) -> None:
        self._old: list[Any] = []

    def __len__(self) -> int:
        """Number of values that are kept."""
        return len(self._old) // 3

    def note(self, container: Array, at: int) -> None:
        """Keep the item of a list, array or memoryview that will be overwritten."""
        self._old += (container, at, container[at])

    def set(self, container: Any, at: Any, item: Any) -> None:
        """Overwrite an item of a list, array or memoryview."""
        self._old += (container, at, container[at])
        container[at] = item

    def set_row(self, array: Array, at: int, row: object) -> None:
        """Overwrite a row of a two-dimensional array."""
        self._old += (array, at, array[at].copy())
        array[at] = row

    def put(self, names: dict[Any, Any], key: object, item: object) -> None:
        """Write an entry of a dictionary."""
        self._old += (names, key, names.get(key, _NOTHING))
        names[key] = item

    def drop(self, names: dict[Any, Any], key: object) -> None:
        """Remove an existing entry of a dictionary; when restored, it is the last one."""
        self._old += (names, key, names[key])
        del names[key]

    def append(self, items: Any, item: Any) -> None:
        """Append to a list or an `array`."""
        end = slice(len(items), None)
        self._old += (items, end, items[end])
        items.append(item)

    def pop(self, items: list[Any]) -> Any:
        """Remove the last item of a list."""
        end = slice(len(items) - 1, None)
        self._old += (items, end, items[end])
        return items.pop()

    def assign(self, owner: object, name: str, value: object) -> None:
        """Assign an existing attribute."""
        self._old += (vars(owner), name, getattr(owner, name))
        setattr(owner, name, value)

    def back(self, level: int = 0) -> None:
        """Restore old values, the last one first, until only the first `level` are kept."""
        while len(self._old) > 3 * level:
            container, at, old = self._old[-3:]
            if old is _NOTHING:
                container.pop(at, None)
            else:
                container[at] = old
            del self._old[-3:]

    def forget(self, level: int | None = None) -> None:
        """Discard the first `level` old values (None: all of them), so that these writes are final."""
        del self._old[: None if level is None else 3 * level]
