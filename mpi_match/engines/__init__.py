"""Engines: one interface, many ways to find the matching filters.

    engine = open_engine("keyed", table)      building is consolidating: refused here, with the reason, if at all
    answers = engine.match(batch)             exact, never truncated

An engine is a module or a folder, named like its registry entry (`registry`), the value of `--engine`, and (for a published
system) the paper's name in lower case; what it has to do is in `base`.  Every engine gives the same answers, judged by
`model.match_naive`.  From the naive one on, each is the cure of one slowness of the one before:

    reference   asks the model about every filter                         the definition
    counting    looks at the constraints on the event's names, vectorised   no look at filters without a satisfied constraint
    keyed       looks at the filters that share a rare combination of features with the event, on CPU threads
    ccm         one GPU thread per constraint on the event's names (Margara & Cugola, DEBS 2011)
    clcb        CCM's rows, after a GPU thread per filter has tested its area (Cugola & Margara, Middleware 2012)
    tagmatch    tag sets only, by signatures: a GPU thread per set of some partitions (Rogora et al., EuroSys 2017)
    keyed_cuda  `keyed` on a GPU

`auto` is the fastest of these that this machine can run.
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
