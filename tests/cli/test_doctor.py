"""`doctor`: the requirements that are met, and the commands that install the others."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from command_line import mpi_match
from pages import REPOSITORY

from mpi_match import engines, gpu
from mpi_match.commands import doctor


@pytest.mark.mpi  # two ranks, if there is a launcher
def test_doctor_finds_what_this_machine_has() -> None:
    findings = {f["name"]: f for f in json.loads(mpi_match("doctor", "--json").stdout)["findings"]}
    assert {"Python", "numpy", "numba", "h5py", "mpi4py", "MPI", "GPU", "Java", "pyspark"} <= set(findings)
    assert findings["Python"]["ok"]
    assert "HDF5" in findings["h5py"]["found"]
    assert all(f["ok"] or f["fix"] or f["name"] == "GPU" for f in findings.values())


def test_doctor_names_what_is_missing_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_CHECKS", (doctor._python, doctor._package("no-such-package", "dreams")))
    result = mpi_match("doctor", code=5)
    ok, missing, fix = result.stdout.splitlines()
    assert ok.startswith("ok       Python")
    assert missing.startswith("MISSING  no-such-package")
    assert "needed for dreams" in fix
    assert "-m pip install 'no-such-package'" in fix


def test_doctor_tries_the_places_that_it_writes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for check in (doctor._compiled_code, doctor._shared_memory, doctor._file_locks):
        found = check()
        assert (found.ok, found.fix) == (True, ""), found

    def refused(number: int) -> Callable[..., NoReturn]:
        def refuse(*_: object) -> NoReturn:
            raise OSError(number, os.strerror(number))

        return refuse

    monkeypatch.setattr(os, "fsync", refused(errno.EDQUOT))
    monkeypatch.setattr(fcntl, "flock", refused(errno.ENOLCK))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**23))
    cache, memory, locks = doctor._compiled_code(), doctor._shared_memory(), doctor._file_locks()
    assert "not kept, every process compiles: " in cache.found
    assert cache.found.endswith(os.strerror(errno.EDQUOT))
    assert memory.found == "8 MiB free in /dev/shm"
    assert locks.found.endswith(os.strerror(errno.ENOLCK))
    for found, cure in ((cache, "NUMBA_CACHE_DIR"), (memory, "--shm-size"), (locks, "lockd")):
        assert not found.ok
        assert cure in found.fix


Install = Callable[..., None]
"""Sets the stated requirements, and the installed packages by keyword."""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Set the requirements of the project and the installed packages."""

    def install(stated: list[str], **versions: str) -> None:
        def version(name: str) -> str:
            if name not in versions:
                raise PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(doctor, "requires", lambda _: stated)
        monkeypatch.setattr(doctor, "version", version)

    return install


def test_doctor_checks_all_requirements_of_the_project(installed: Install) -> None:
    stated = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = stated["optional-dependencies"]
    wanted = [*stated["dependencies"], *extras["spark"], *extras["plot"]]
    names = {re.split(r"[^\w-]", each)[0] for each in wanted}
    assert {"numpy", "pandas", "matplotlib"} <= names
    installed([])
    findings = {check().name: check() for check in doctor._CHECKS if check not in (doctor._mpi, doctor._gpu)}
    assert names <= findings.keys()
    assert not [name for name in names if findings[name].ok]


def test_doctor_advises_extras(installed: Install) -> None:
    names = {"pyspark", "pyarrow", "pandas"}
    installed(['pandas<3,>=2.2; extra == "spark"'], pyspark="4.1.1", pyarrow="21.0.0")
    found = {check().name: check() for check in doctor.SPARK_CHECKS}
    assert names <= found.keys()
    assert (found["pyspark"].ok, found["pandas"].ok, found["pandas"].found) == (True, False, "not installed")
    assert found["pandas"].fix == f"{sys.executable} -m pip install 'mpi-match[spark]'"


def test_doctor_compares_versions_with_the_requirements(installed: Install) -> None:
    stated = ["numpy>=2.2", "h5py<4,>=3.16", 'numba-cuda[cu12]<0.31,>=0.30; extra == "gpu"', 'numpy<2.5; extra == "gpu"']
    installed(stated, numpy="2.5.1", h5py="4.0.0", **{"numba-cuda": "0.30.4"})
    assert doctor._package("numpy", "everything")().ok
    assert doctor._unmet("gpu") == ["numpy 2.5.1, not <2.5"]
    h5py = doctor._package("h5py", "all files")()
    assert (h5py.ok, h5py.required, h5py.found) == (False, True, "4.0.0, not <4,>=3.16")
    assert h5py.fix == f"{sys.executable} -m pip install 'h5py<4,>=3.16'"


def test_doctor_reads_java_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor.java_version() is None
    for said, version in (('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_392"', 1), ("nonsense", None)):
        java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        java.chmod(0o755)
        assert doctor.java_version() == version
        assert doctor._java().ok == (version == 17)
    assert "point JAVA_HOME at" in doctor._java().fix


@pytest.mark.parametrize(("newest", "well"), [("13.0", True), ("12.9", True), ("12.4", False), ("11.8", False)])
def test_doctor_compares_the_driver_with_the_compiler_of_kernels(
    monkeypatch: pytest.MonkeyPatch, newest: str, well: bool
) -> None:
    card = SimpleNamespace(index=0, name="NVIDIA H200", memory_bytes=140 << 30)
    fake = SimpleNamespace(driver_versions=lambda: ("550.1", newest), visible_gpus=lambda: [card])
    monkeypatch.setattr(gpu, "kernels", fake, raising=False)
    monkeypatch.setitem(sys.modules, "mpi_match.gpu.kernels", fake)
    monkeypatch.setattr(doctor, "_cuda_compiler", lambda: "12.9")
    found = doctor._gpu()
    assert found.ok == well
    assert f"0: NVIDIA H200, 140 GiB; driver 550.1, CUDA {newest}" in found.found
    assert ("update the driver" in found.fix) != well


def test_doctor_without_a_gpu_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> NoReturn:
        raise engines.EngineError("no usable GPU on this machine: no driver")

    fake = SimpleNamespace(driver_versions=none)
    monkeypatch.setattr(gpu, "kernels", fake, raising=False)
    monkeypatch.setitem(sys.modules, "mpi_match.gpu.kernels", fake)
    found = doctor._gpu()
    assert (found.ok, found.required) == (False, False)
    assert "no driver" in found.found
