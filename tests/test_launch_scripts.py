"""The scripts of launch/: what is left over from an earlier launcher does not keep the next one from starting."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpirun import MPIRUN, TESTS, execute, needs_mpirun

pytestmark = [pytest.mark.mpi, needs_mpirun]
LEFT_BEHIND = 'mkdir "$TMPDIR/ompi.$$" && touch "$TMPDIR/ompi.$$/pmix.$(uname -n).tool" && exec "$@"'
"""What a killed launcher of Open MPI leaves, under the number that this shell's successor will have, and that successor."""


def test_a_dead_launchers_files_under_the_same_number_do_not_matter(tmp_path: Path) -> None:
    script = [str(TESTS.parent / "launch" / "local.sh"), "1", "--help"]
    done = execute(["bash", "-c", LEFT_BEHIND, "sh", *script], TMPDIR=str(tmp_path), MPIRUN=str(MPIRUN))
    assert (done.returncode, done.stderr) == (0, "")
    assert "--table" in done.stdout
    left = sorted(path.name.partition(".")[0] for path in tmp_path.iterdir())
    assert left == ["mpi-match", "ompi"], "the dead one's are nobody's to remove, and the new one has made its own"


def test_a_launcher_keeps_the_tmpdir_that_it_is_given(tmp_path: Path) -> None:
    script = [str(TESTS.parent / "launch" / "local.sh"), "1", "--help"]
    done = execute(script, TMPDIR=str(tmp_path), MPIRUN=str(MPIRUN))
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, "", [])
