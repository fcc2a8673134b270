"""The command line that records keep: as typed, without secrets."""

from __future__ import annotations

import sys

import pytest

from mpi_match.environment.machine import command


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["bench", "ccm", "--engine", "keyed"], "bench ccm --engine keyed"),
        (["bench", "--beside", "x=run --password hush -n 3"], "bench --beside 'x=run --password *** -n 3'"),
        (["bench", "--beside", "x=PGPASSWORD=hush run"], "bench --beside 'x=PGPASSWORD=*** run'"),
        (["bench", "--beside", "x=psql postgres://me:hush@host/db"], "bench --beside 'x=psql postgres://me:***@host/db'"),
        (["run", "--api-key", "hush", "--events", "e"], "run --api-key '***' --events e"),
        (["run", "--token=hush", "-o", "m"], "run '--token=***' -o m"),
        (["bench", "ccm-token", "--seed", "1"], "bench ccm-token --seed 1"),
        (["bench", "--under", "srun", "--mpirun-flags", "-x SECRET_KEY=hush"], None),
    ],
)
def test_secrets_are_left_out_of_a_recorded_command(
    words: list[str], kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/some/where/mpi-match", *words])
    assert "hush" not in command()
    assert kept is None or command() == f"mpi-match {kept}"
