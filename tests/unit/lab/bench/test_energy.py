"""Energy of runs: counters of processors, which may be unreadable or begin again, and of GPUs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from mpi_match.gpu import energy as gpu_energy
from mpi_match.lab.bench import energy
from mpi_match.lab.bench.energy import EnergyMeter, Joules
from mpi_match.lab.bench.engines import energy_of


def written(folder: Path, name: str, microjoules: int, most: int = 1_000_000) -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{microjoules}\n")
    (folder / name / "max_energy_range_uj").write_text(f"{most}\n")


def test_packages_are_added_and_a_counter_may_begin_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    for name, microjoules in (("intel-rapl:0", 900_000), ("intel-rapl:1", 5), ("intel-rapl:0:0", 7)):
        written(tmp_path, name, microjoules)
    meter = EnergyMeter(None)
    written(tmp_path, "intel-rapl:0", 100_000)
    written(tmp_path, "intel-rapl:1", 300_005)
    written(tmp_path, "intel-rapl:0:0", 999)
    spent = meter.spent()
    assert spent.cpu == pytest.approx(0.5)
    assert spent.gpu is None


def test_without_counters_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    assert EnergyMeter(None).spent() == Joules(None, None)
    (tmp_path / "intel-rapl:0").mkdir()  # whose counter cannot be read
    assert EnergyMeter(None).spent().whole is None


def test_the_energy_of_a_gpu_is_what_its_driver_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        counts = iter([1_000, 3_500, 1_000])

        def device_get_handle_by_uuid(self, uuid: str) -> str:
            return uuid

        def device_get_total_energy_consumption(self, handle: str) -> int:
            return next(self.counts)

    clock = iter([0.0, energy.LEAST_GPU_S, 10.0, 10.0 + 0.9 * energy.LEAST_GPU_S, 20.0])
    driver = Driver()
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    monkeypatch.setattr(gpu_energy, "_nvml", lambda: driver)
    monkeypatch.setattr(energy, "time", SimpleNamespace(perf_counter=clock.__next__))
    meter = EnergyMeter("GPU-1")
    spent = meter.spent()
    assert spent.cpu is None
    assert spent.gpu == pytest.approx(2.5)
    meter = EnergyMeter("GPU-1")
    assert meter.spent().gpu is None, "the run is too short for the counter"
    assert meter.spent().gpu is None, "the driver does not count"


def test_a_run_that_is_not_measured_makes_the_median_unknown() -> None:
    runs = [Joules(1.0, 4.0), Joules(3.0, None), Joules(2.0, 5.0)]
    assert energy_of(runs) == {"cpu": 2.0, "gpu": None}
