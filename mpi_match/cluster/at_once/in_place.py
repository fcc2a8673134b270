"""Readers and a writer without threads, for batches that are done in less time than it takes to wake a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class _Done(Generic[T]):
    """A future that is done at once; making the locks of a `Future` takes longer than a short read."""

    def __init__(self, do: Callable[..., T], *arguments: object) -> None:
        self._error: Exception | None = None
        self._found: T | None = None
        try:
            self._found = do(*arguments)
        except Exception as error:
            self._error = error

    def done(self) -> bool:
        """Yes."""
        return True

    def result(self) -> T:
        """The result.  Raises what the call raised."""
        if self._error is not None:
            raise self._error
        return cast(T, self._found)


class AtOnce:
    """An executor that runs a submitted call at once, in the submitting thread."""

    def __init__(self, n_threads: int = 0) -> None:
        """Ignore the number of threads."""

    def submit(self, do: Callable[..., T], *arguments: object) -> _Done[T]:
        """See `concurrent.futures.Executor.submit`."""
        return _Done(do, *arguments)

    def shutdown(self, *, cancel_futures: bool = False) -> None:
        """Do nothing: no thread has to end."""


class WriteAtOnce(Generic[T]):
    """Calls `write` immediately with each item that is `put`."""

    def __init__(self, write: Callable[[T], None]) -> None:
        self.put = write

    def __enter__(self) -> WriteAtOnce[T]:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def finish(self) -> None:
        """Do nothing: everything is written already."""
