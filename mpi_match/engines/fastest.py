"""The engine of `auto` if several engines can serve a table: it picks the fastest for each batch size by measurement.

    events in a batch      1    2-3   4-7   ...   32,768-65,535
    keyed_cuda            25     25    26             600 us
    keyed                  3      5     9          30,000 us

Every engine matches the first MEASURED_BATCHES batches of a size; the engine with the shortest time matches all later ones
of that size.  An engine that is hopelessly slow is dropped after its first batch.  The answers of all measured engines are
compared, and a difference is an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from mpi_match.arrays.csr import Array
from mpi_match.engines.base import Engine, Pending, SeveralEngines, not_a_batch
from mpi_match.engines.option import OptionValue
from mpi_match.errors import EngineError
from mpi_match.events.batch import EventBatch
from mpi_match.humanize import seconds
from mpi_match.matches.matches import Matches

log = logging.getLogger(__name__)

MEASURED_BATCHES = 2
"""Batches of each size that all engines match."""
HOPELESS_S, HOPELESS_TIMES = 0.05, 8
"""Seconds, and multiple of the fastest engine's time: an engine slower than both is not measured again."""


class SizeTimes(NamedTuple):
    """For batches of one size: the shortest time in seconds of each engine that is still measured, and the number of batches
    measured."""

    least_s: dict[Engine, float]
    n_batches: int


class FastestOf(SeveralEngines):
    """Several engines for one fixed table."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = tuple(engines)
        self.name = " or ".join(engine.name for engine in engines)
        self.device = " or ".join(engine.device for engine in engines)
        self.gpu = next((engine.gpu for engine in engines if engine.gpu is not None), None)
        self.options: Mapping[str, OptionValue] = {
            f"{engine.name}.{key}": value for engine in engines for key, value in engine.options.items()
        }
        self._times: dict[int, SizeTimes] = {}
        self._fastest: dict[int, Engine] = {}

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        fastest = self._fastest_for(batch)
        return self._measured(batch, filters) if fastest is None else fastest.match(batch, filters=filters)

    def begin(self, batch: EventBatch, *, filters: bool = False) -> Matches | Pending:
        fastest = self._fastest_for(batch)
        return self._measured(batch, filters) if fastest is None else fastest.begin(batch, filters=filters)

    def _fastest_for(self, batch: EventBatch) -> Engine | None:
        """The fastest engine for a batch of its size, if it is known.  Raises EngineError for anything but a batch."""
        try:
            return self._fastest.get(batch.n_events.bit_length())
        except AttributeError:
            raise not_a_batch(batch) from None

    def _measured(self, batch: EventBatch, filters: bool) -> Matches:
        """Match a batch of a size for which the fastest engine is not known yet."""
        if not batch.n_events:
            return self._engines[0].match(batch, filters=filters)
        size = batch.n_events.bit_length()
        before = self._times.get(size, SizeTimes(dict.fromkeys(self._engines, float("inf")), 0))
        least_s, found = dict(before.least_s), list[Matches]()
        for engine in least_s:
            began = time.perf_counter()
            found.append(engine.match(batch, filters=filters))
            least_s[engine] = min(least_s[engine], time.perf_counter() - began)
            if found[-1] != found[0]:
                raise EngineError(f"{engine.name} and {self._engines[0].name} differ on a batch; name one with --engine")
        best_s = min(least_s.values())
        bound_s = max(HOPELESS_S, HOPELESS_TIMES * best_s)
        self._times[size] = SizeTimes({e: s for e, s in least_s.items() if s < bound_s or s == best_s}, before.n_batches + 1)
        if len(self._times[size].least_s) == 1 or self._times[size].n_batches == MEASURED_BATCHES:
            self._fastest[size] = min(least_s, key=lambda engine: least_s[engine])
            told = ", ".join(f"{engine.name} {seconds(s)}" for engine, s in least_s.items())
            sizes = f"{1 << size - 1:,} to {(1 << size) - 1:,} events"
            log.info("batches of %s: %s; %s matches them from here on", sizes, told, self._fastest[size].name)
        return found[0]

    def pin(self, memory: Sequence[Array]) -> None:
        for engine in self._engines:
            engine.pin(memory)

    def warm_up(self, example: Callable[[], EventBatch | None], *, filters: bool = False) -> None:
        """Warms up every engine, then measures all of them on batches like the example."""
        for engine in self._engines:
            engine.warm_up(example, filters=filters)
        if (batch := example()) is not None:
            with suppress(EngineError):
                for _ in range(MEASURED_BATCHES):
                    self.match(batch, filters=filters)

    def time_steps(self) -> None:
        for engine in self._engines:
            engine.time_steps()

    @property
    def steps_s(self) -> Mapping[str, float]:
        return {f"{engine.name}: {step}": spent for engine in self._engines for step, spent in engine.steps_s.items()}

    @property
    def kernel_s(self) -> float:
        return sum(engine.kernel_s for engine in self._engines)
