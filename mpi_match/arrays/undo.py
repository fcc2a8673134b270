"""Old values of containers, by which a change of several of them is taken back, however far it has come.

    undo.set(labels, 3, "desk")        the old item is kept first, then overwritten
    undo.back()                        every container is as it was at the last `forget`

Only an exception between the two steps of a write needs care, and any exception may come there: Ctrl-C, a time-out, no
memory.  So an old value is kept *before* its place is written, and putting it back has the same result each time: where
`back` itself is interrupted, it is called again.
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
        """Values that are kept."""
        return len(self._old) // 3

    def note(self, container: Any, at: Any) -> None:
        """Keep the item of a list, array or memoryview that will be written."""
        self._old += (container, at, container[at])

    def set(self, container: Any, at: Any, item: Any) -> None:
        """Write an item of a list, array or memoryview."""
        self._old += (container, at, container[at])
        container[at] = item

    def set_row(self, array: Array, at: int, row: Any) -> None:
        """Write a row of an array of two dimensions."""
        self._old += (array, at, array[at].copy())
        array[at] = row

    def put(self, names: dict[Any, Any], key: Any, item: Any) -> None:
        """Write an entry of a dictionary."""
        self._old += (names, key, names.get(key, _NOTHING))
        names[key] = item

    def drop(self, names: dict[Any, Any], key: Any) -> None:
        """Remove an entry of a dictionary that is there; put back, it is the last one."""
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
        """Assign an attribute that is there."""
        self._old += (vars(owner), name, getattr(owner, name))
        setattr(owner, name, value)

    def back(self) -> None:
        """Put all old values back, the last one first."""
        while self._old:
            container, at, old = self._old[-3:]
            if old is _NOTHING:
                container.pop(at, None)
            else:
                container[at] = old
            del self._old[-3:]

    def forget(self) -> None:
        """Keep what was written."""
        self._old.clear()
