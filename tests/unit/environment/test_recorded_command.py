"""The origin in a record: the command line as typed, without secrets, and the GPUs that the process may use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mpi_match.environment.machine import command, machine


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


def test_the_recorded_gpus_are_those_that_the_process_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "NVIDIA $3, 580"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine()["gpus"] == [{"name": "NVIDIA ", "driver": "580"}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert machine()["gpus"] == [{"name": "NVIDIA --id=2", "driver": "580"}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine()["gpus"] == []
