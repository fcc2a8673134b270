"""Recognises addresses of other file systems (`s3a://bucket/x`) among names of files of this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+:)/+[^/]")
_NO_ADDRESS = (
    "is an address of another file system, and a local file is expected here; use a mounted file system, or copy it "
    "(aws s3 cp, hadoop fs), with the directory NAME.parts if there is one beside it"
)
KAFKA = "kafka://"
_NO_KAFKA = (
    "topics of Kafka are matched by Spark, which has a client: "
    'spark_prep.matched(spark.readStream.format("kafka")..., table, ...), see "Kafka" in docs/following.md'
)


def address_of(name: str | os.PathLike[str]) -> str | None:
    """A name that is an address (`s3a://bucket/x`), also as a path, which has one slash; None for the name of a file."""
    text = os.fspath(name)
    found = _ADDRESS.match(text)
    if found is None or Path(found[1]).exists():
        return None
    return text if "://" in text else text.replace(":/", "://", 1)


def no_local_file(address: str) -> str:
    """The line that says why an address cannot be used where a local file is expected."""
    return f"{address}: {_NO_KAFKA if address.startswith(KAFKA) else _NO_ADDRESS}"
