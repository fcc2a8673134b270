"""Fixtures of the tests on hosts: files, and the environment of a user's shell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hosts.inputs import Inputs
from hosts.namespaces import fresh_environment


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A table, events, and the answers of a run of one process."""
    return Inputs.made_in(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="session")
def shell(repository: Path) -> dict[str, str]:
    """The environment of a shell without a launcher, with this Python and this tree; ranks search for no fabrics."""
    tree = {"MPI_MATCH_PYTHON": sys.executable, "PYTHONPATH": str(repository)}
    return {**fresh_environment(), **tree, "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "vader,tcp,self"}
