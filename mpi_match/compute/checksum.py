"""CRC-32 in compiled code.

ISA-L's function is called by its address, so that a thread that checks a file block by block does not ask for Python's lock
after each block: on 16 cores, eight threads waited half of their time for it.
"""

from __future__ import annotations

import ctypes
from typing import Any

from isal import isal_zlib
from llvmlite import binding
from numba.core import types

_NAME = "mpi_match_crc32"


def _is_registered() -> bool:
    try:
        function = ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl
    except (OSError, AttributeError):  # a build that hides it
        return False
    binding.add_symbol(_NAME, ctypes.cast(function, ctypes.c_void_p).value)
    return True


is_compiled = _is_registered()
"""True if `crc32_at` can be called here; otherwise callers use `isal_zlib.crc32`."""

crc32_at: Any = types.ExternalFunction(_NAME, types.uint32(types.uint32, types.uintp, types.uint64))
"""`crc32_at(before, address, n_bytes)`: the CRC-32 of bytes that follow others whose CRC-32 is `before` (0: none)."""
