"""Engines: one interface, many ways to find the matching filters.

    engine = open_engine("keyed", table)      building is consolidating: refused here, with the reason, if at all
    answers = engine.match(batch)             exact, never truncated

An engine is a module or a folder, named like its registry entry (`registry`), the value of `--engine`, and (for a published
system) the paper's name in lower case; what it has to do is in `base`.  Every engine gives the same answers, judged by
`model.match_naive`.  `mpi-match engines` lists them; docs/engines says which slowness each of them cures.
"""

from mpi_match.engines.base import Engine as Engine
from mpi_match.engines.base import Pending as Pending
from mpi_match.engines.base import match_all as match_all
from mpi_match.engines.registry import AUTO as AUTO
from mpi_match.engines.registry import REGISTRY as REGISTRY
from mpi_match.engines.registry import compile_s as compile_s
from mpi_match.engines.registry import open_engine as open_engine
from mpi_match.errors import EngineError as EngineError
from mpi_match.errors import OptionError as OptionError
