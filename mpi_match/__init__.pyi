from mpi_match.api import RowMatcher as RowMatcher
from mpi_match.api import explain as explain
from mpi_match.api import load_table as load_table
from mpi_match.api import make_batch as make_batch
from mpi_match.api import make_events as make_events
from mpi_match.api import make_table as make_table
from mpi_match.api import match as match
from mpi_match.engines import EngineError as EngineError
from mpi_match.engines import open_engine as open_engine
from mpi_match.events.batch import EventBatch as EventBatch
from mpi_match.events.events import Events as Events
from mpi_match.frames import MatchedFrames as MatchedFrames
from mpi_match.frames import matched as matched
from mpi_match.ingest.rows.judge import Reject as Reject
from mpi_match.live import LiveMatcher as LiveMatcher
from mpi_match.matches.file import MatchesFile as MatchesFile
from mpi_match.matches.matches import Matches as Matches
from mpi_match.model import ModelError as ModelError
from mpi_match.model import make_event as make_event
from mpi_match.model import make_filter as make_filter
from mpi_match.model import match_naive as match_naive
from mpi_match.storage import StorageError as StorageError
from mpi_match.table.table import Table as Table
from mpi_match.verify.explain import Explainer as Explainer
from mpi_match.verify.explain import Explanation as Explanation

__version__: str
__all__: list[str]
