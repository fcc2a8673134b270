"""mpi-match: content-based publish/subscribe matching on a GPU cluster.

Public names are imported when first used, so `import mpi_match` costs nothing; `mpi_match.api` shows how they fit together.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULE_OF = {
    "make_table": "api",
    "load_table": "api",
    "make_events": "api",
    "make_batch": "api",
    "match": "api",
    "explain": "api",
    "RowMatcher": "api",
    "LiveMatcher": "live",
    "matched": "frames",
    "MatchedFrames": "frames",
    "Explainer": "verify.explain",
    "Explanation": "verify.explain",
    "open_engine": "engines",
    "EngineError": "engines",
    "Table": "table.table",
    "Events": "events.events",
    "EventBatch": "events.batch",
    "Matches": "matches.matches",
    "MatchesFile": "matches.file",
    "StorageError": "storage",
    "ModelError": "model",
    "make_filter": "model",
    "make_event": "model",
    "match_naive": "model",
    "Reject": "ingest.rows.judge",
}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("mpi-match")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
