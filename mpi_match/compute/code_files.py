"""Files of compiled code: one for each function and the types that it is compiled for, written whole and checked when read.

    FOLDER/NAME-LINE.py311.3f0c91….nbc      SHA-256 of the rest, then the pickled key and code

The key is Numba's: types, processor (its triple, name and features), and digests of the function's bytecode and closure; the
name has 16 digits of the key's digest.  A file that is damaged, or that has another key, is as good as missing.  Numba's own
files are not checked, and have an index for each function, which processes that compile it for different types overwrite.
"""

from __future__ import annotations

import pickle
import uuid
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba.core.serialize import dumps

SUFFIX = ".nbc"
_DIGEST_BYTES = sha256().digest_size


class CodeFiles:
    """The compiled code of one function; takes the place of Numba's `IndexDataCacheFile`.

    Parameters: `own` is the folder to write to and to read from first, None for none; `shipped` is a folder with code for
    `processor`, LLVM's name of one whose code runs on this one, None for none; `name` begins the names of the files.
    """

    def __init__(self, own: Path | None, shipped: Path | None, processor: str | None, name: str) -> None:
        self._own, self._shipped, self._processor, self._name = own, shipped, processor, name

    def load(self, key: Any) -> Any:
        """The code that was saved with a key, or is shipped; None if there is none."""
        code = None if self._own is None else _read(self._path(self._own, key), key)
        if code is None and self._shipped is not None:
            types, (triple, *_), digests = key
            key = types, (triple, self._processor, ""), digests
            code = _read(self._path(self._shipped, key), key)
        return code

    def save(self, key: Any, code: Any) -> None:
        """Write the code for a key.  Raises OSError."""
        if self._own is not None:
            self._own.mkdir(parents=True, exist_ok=True)
            write_checked(self._path(self._own, key), dumps((key, code)))

    def _path(self, folder: Path, key: object) -> Path:
        return folder / f"{self._name}.{sha256(repr(key).encode()).hexdigest()[:16]}{SUFFIX}"


def _read(path: Path, key: object) -> Any:
    """The code in a file; None if it is missing, damaged, or has another key."""
    content = read_checked(path)
    if content is None:
        return None
    found, code = pickle.loads(content)
    return code if found == key else None


def write_checked(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all, with its digest.  Raises OSError."""
    unfinished = path.with_name(f"{path.name}.tmp.{uuid.uuid4().hex[:16]}")
    try:
        unfinished.write_bytes(sha256(content).digest() + content)
        unfinished.replace(path)
    except OSError:
        with suppress(OSError):
            unfinished.unlink()
        raise


def read_checked(path: Path) -> bytes | None:
    """The content of a file; None if it is missing or damaged."""
    try:
        stored = memoryview(path.read_bytes())
    except OSError:
        return None
    digest, content = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    return bytes(content) if sha256(content).digest() == digest else None
