"""Engines: one interface to several matching algorithms.

    engine = open_engine("keyed", table)      builds the index; raises EngineError if the engine cannot serve the table
    answers = engine.match(batch)             exact, never truncated

An engine is a module or a folder.  Its name is the value of `--engine` and the key of its registry entry (`registry`); a
published system has the paper's name in lower case.  `base` defines the interface.  All engines give the same answers, and
`model.match_naive` decides which are right.  `mpi-match engines` lists the engines; docs/engines describes them and says
which workloads each is for.
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
