"""Imported before Numba, it spares a process the packages that Numba imports where they are installed and does not use.

They are a sixth of its time to start, and tests start some hundred ranks.
"""

import sys
from typing import Any

_UNUSED: dict[str, Any] = dict.fromkeys(("coverage", "yaml"))
sys.modules.update(_UNUSED)
