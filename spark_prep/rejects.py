r"""Bad rows: always counted, described on request, and written to a dataset for correction.

The rejects dataset is JSON lines, one object for each bad row (`ingest.rows.judge.Reject`), in the order of the input:

    {"reason": "not JSON: Expecting value at column 1", "file": "/data/subs.jsonl", "line": 17, "row": "{\"interface\": "}

The dataset exists only when there are bad rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mpi_match.environment.addresses import address_of, no_local_file
from mpi_match.ingest.rows.judge import Reject
from spark_prep import SparkPrepError
from spark_prep.sources import RowSource, path_of

_OURS = ("part-", "_SUCCESS", ".part-", "._SUCCESS")


def rejects(records: DataFrame, source: RowSource) -> DataFrame:
    """Bad rows with their line numbers: reason, file, line, row; ordered."""
    bad = records.where(F.col("reason").isNotNull()).select("reason", "file", "block", "position", "row")
    placed = source.with_lines(bad).select(*Reject._fields)
    return placed.withColumn("file", path_of(F.col("file"))).orderBy("file", "line")


def first(rejects: DataFrame, n: int) -> list[Reject]:
    """The first few bad rows."""
    return [Reject(*row) for row in rejects.select(*Reject._fields).limit(n).collect()]


def refusal(rejects: DataFrame, n_rejected: int, n_rows: int) -> SparkPrepError:
    """The error under `strict`."""
    shown = [f"  {reject.place}: {reject.reason}" for reject in first(rejects, 3)]
    more = [f"  ... and {n_rejected - len(shown):,} more"] if n_rejected > len(shown) else []
    return SparkPrepError("\n".join([f"{n_rejected:,} of {n_rows:,} rows are bad, and strict allows none:", *shown, *more]))


def write(rejects: DataFrame, path: Path) -> None:
    """Write the rejects dataset, replacing an earlier one."""
    rejects.write.mode("overwrite").json(f"file://{path.absolute()}")  # not as_uri(): Hadoop does not decode %20


def take(files: Sequence[Path], path: Path) -> None:
    """Make the rejects dataset of the files of tasks, replacing an earlier one; without files only remove that."""
    clear(path)
    if files:
        path.mkdir()
    for i, file in enumerate(files):
        shutil.move(file, path / f"part-{i:05d}.json")


def check_path(path: Path) -> None:
    """Refuse to replace anything but an earlier rejects dataset.  Raises SparkPrepError."""
    if (address := address_of(path)) is not None:
        raise SparkPrepError(f"the rejects {no_local_file(address)}")
    if path.exists() and not _is_ours(path):
        raise SparkPrepError(
            f"{path}: exists and is not a rejects dataset; move it away or give another path for the rejects"
        )


def clear(path: Path) -> None:
    """Remove the rejects of an earlier compile."""
    if path.exists():
        shutil.rmtree(path)


def _is_ours(path: Path) -> bool:
    return path.is_dir() and all(item.name.startswith(_OURS) for item in path.iterdir())
