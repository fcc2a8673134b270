"""Rejects of consecutive lines, in the forms in which they travel from the scanner to a list or a file."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.ingest.rows.judge import Reject


def json_line(reject: Reject) -> bytes:
    """A reject as a line of a file of rejects."""
    return (json.dumps(reject._asdict(), ensure_ascii=False) + "\n").encode(errors="backslashreplace")


class RejectedLines(ABC):
    """Rejects whose texts may be made when they are needed."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def reject(self, i: int) -> Reject:
        """Reject number i."""

    @property
    @abstractmethod
    def lines(self) -> Array:
        """i64: the numbers of their lines."""

    @abstractmethod
    def placed(self, file: str, lines: Array, first: int = 0) -> RejectedLines:
        """Those from number `first` on, as many as there are `lines`, i64: the lines of `file` that they stand in."""

    @abstractmethod
    def to_json(self) -> bytes:
        """The lines of a file of rejects: those of `json_line`."""

    def __iter__(self) -> Iterator[Reject]:
        return map(self.reject, range(len(self)))


class ListedRejects(RejectedLines):
    """Rejects in a list."""

    def __init__(self, rejects: Iterable[Reject]) -> None:
        self._rejects = list(rejects)

    def __len__(self) -> int:
        return len(self._rejects)

    def reject(self, i: int) -> Reject:
        """See `RejectedLines`."""
        return self._rejects[i]

    @property
    def lines(self) -> Array:
        """See `RejectedLines`."""
        return np.array([each.line for each in self._rejects], np.int64)

    def placed(self, file: str, lines: Array, first: int = 0) -> ListedRejects:
        """See `RejectedLines`."""
        found = self._rejects[first : first + len(lines)]
        return ListedRejects(each._replace(file=file, line=line) for each, line in zip(found, lines.tolist(), strict=True))

    def to_json(self) -> bytes:
        """See `RejectedLines`."""
        return b"".join(map(json_line, self._rejects))


class WrittenRejects(ListedRejects):
    """n rejects as the lines of a file of rejects, which are read when one of them is needed."""

    def __init__(self, n: int, text: bytes) -> None:
        self._n, self._text = n, text
        self._read: list[Reject] | None = None

    def __len__(self) -> int:
        return self._n

    @property
    def _rejects(self) -> list[Reject]:  # type: ignore[override]
        if self._read is None:
            self._read = [Reject(**json.loads(line)) for line in self._text.split(b"\n")[:-1]]
        return self._read

    def to_json(self) -> bytes:
        """See `RejectedLines`."""
        return self._text


class HeldRejects:
    """Collects rejects in the form in which they come."""

    def __init__(self) -> None:
        self.parts: list[RejectedLines] = []

    def append(self, reject: Reject) -> None:
        """Add a reject."""
        self.extend([reject])

    def extend(self, rejects: Iterable[Reject]) -> None:
        """Add rejects."""
        self.parts.append(rejects if isinstance(rejects, RejectedLines) else ListedRejects(rejects))

    def joined(self) -> RejectedLines:
        """All of them."""
        if len(self.parts) == 1:
            return self.parts[0]
        return WrittenRejects(sum(map(len, self.parts)), b"".join(part.to_json() for part in self.parts))
