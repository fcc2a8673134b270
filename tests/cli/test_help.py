"""Every command and option is documented, and --help loads no heavy module."""

from __future__ import annotations

import sys

import click
from cli_reference import every_command
from command_line import in_a_process, mpi_match

from mpi_match import engines
from mpi_match.cli.main import commands
from mpi_match.lab.workloads import scenarios


def test_every_command_and_option_is_documented() -> None:
    found = {path[1:]: command for path, command in every_command(commands, ("mpi-match",))}
    names = [
        "bench",
        "compare",
        "doctor",
        "engines",
        "explain",
        "export",
        "generate",
        "inspect",
        "launch",
        "match",
        "plot",
        "report",
        "run",
        "supervise",
        "translate",
        "verify",
    ]
    of_groups = {
        "compile": ("subscriptions", "events", "changes", "update"),
        "experiment": ("list", "run"),
        "bench": (
            *("end-to-end", "read", "soak", "growth", "kills", "memory", "false-positives", "load", "ablation"),
            "routing",
        ),
    }
    in_groups = {(group, name) for group, names in of_groups.items() for name in names}
    assert set(found) == {(name,) for name in names} | in_groups
    for path, command in found.items():
        shown = mpi_match(*path, "--help").stdout
        assert "Exit codes: 0 done" in shown, path
        assert len((command.help or "").split()) >= 8, path
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, (path, option.name)
                assert option.help[0].isupper() or ":" in option.help, (path, option.name)
                assert all(name in shown for name in option.opts)
        valued = [
            o
            for o in command.params
            if isinstance(o, click.Option)
            and o.to_info_dict()["default"] not in (None, False)
            and not o.is_flag
            and not o.required
        ]
        assert not valued or "[default: " in shown, path


def test_help_lists_every_scenario_and_engine() -> None:
    shown = mpi_match("generate", "--help").stdout
    assert all(f"  {name} " in shown for name in scenarios.SCENARIOS)
    assert f"[{'|'.join(['auto', *engines.REGISTRY])}]" in mpi_match("run", "--help").stdout


def test_version() -> None:
    assert mpi_match("--version").stdout.startswith("mpi-match ")


def test_the_command_line_loads_none_of_the_heavy_modules() -> None:
    heavy = "{'numba', 'numpy', 'h5py', 'mpi4py', 'mpi4py.MPI', 'pyspark'}"
    code = f"import sys; import mpi_match.cli.main; print(sorted({heavy} & set(sys.modules)))"
    assert in_a_process(sys.executable, "-c", code).stdout.strip() == "[]"
