"""Runs under a Slurm started for the tests: the batch script as users submit it, srun, GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hosts.inputs import SLOWLY, Inputs, wait_for_answers
from hosts.namespaces import TIMEOUT_S
from hosts.slurm import SlurmCluster, why_no_slurm
from mpirun import DRIVER, MPIRUN, OPEN_MPI, needs_mpirun

pytestmark = [pytest.mark.slurm, needs_mpirun]
PMI = "pmix" if OPEN_MPI else "pmi2"
ON_TWO_GPUS = ("--gpus-per-node=2", "--ntasks-per-node=3", "--cpus-per-task=2")
"""Nodes of these tests, for the batch script."""


@pytest.fixture(scope="module", autouse=True)
def slurm() -> None:
    """Skips with the reason where Slurm cannot be started."""
    why = why_no_slurm()
    if why is not None:
        pytest.skip(why)


@pytest.fixture(scope="module")
def cluster(shell: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Three nodes."""
    with SlurmCluster(3, tmp_path_factory.mktemp("slurm"), shell) as cluster:
        yield cluster


def wait_for_end(cluster: SlurmCluster, job: int | str, timeout: float = 150) -> dict[str, str]:
    """The job, once it has ended for good."""
    end = time.monotonic() + timeout
    while (found := cluster.job(job))["JobState"] in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED"):
        assert time.monotonic() < end, f"{found}\n{cluster.logs()}"
        time.sleep(0.2)
    return found


def drive(inputs: Inputs, output: Path, *options: str) -> tuple[object, ...]:
    """The command of a rank with a test engine."""
    return (sys.executable, "-m", "mpi4py", DRIVER, inputs.table, inputs.events, output, *options)


def gpus_in(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The devices of a run with the engine `numbered`: host, assigned GPU and visible GPUs of each worker."""
    assert done.returncode == 0, done.stderr
    return sorted(json.loads(done.stdout)["device"].split(", "))


def submit(cluster: SlurmCluster, repository: Path, inputs: Inputs, output: Path, *options: object, **more: str) -> int:
    """Submit `launch/slurm.sbatch` from the project's directory; returns the job's number.  Its log is beside the output."""
    files = ("--table", inputs.table, "--events", inputs.events, "-o", output, "--engine", "counting", "--batch", 4)
    return sbatch(cluster, repository, ("--output", output.with_name("log"), *options), files, **more)


def sbatch(cluster: SlurmCluster, repository: Path, options: Sequence[object], words: Sequence[object], **more: str) -> int:
    """Submit `launch/slurm.sbatch` with options of sbatch and words of `run`; returns the job's number."""
    command = ("sbatch", "--parsable", *options, "launch/slurm.sbatch", *words)
    done = cluster.run(*command, cwd=repository, timeout=TIMEOUT_S, **more)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


SMALL = ("--ntasks=3", "--cpus-per-task=1", "--gpus-per-node=2", "--ntasks-per-node=3")
"""A job on one node, for sbatch."""
TYPOS = {
    "table": (3, "nosuch.h5: no such file", ("--table", "nosuch.h5")),
    "events": (3, "nosuch.h5: no such file", ("--events", "nosuch.h5")),
    "option": (2, "No such option", ("--nosuch",)),
    "directory": (3, "/nosuch/dir", ("-o", "/nosuch/dir/matches.h5")),
    "engine": (5, "no usable GPU", ("--engine", "keyed_cuda")),
    "room": (1, "disk full", ()),
}
"""By what is wrong: exit code, words of the line, and the options of `run` that replace those that are right."""


def test_an_error_that_another_start_would_not_cure_ends_the_job_with_its_exit_code(
    cluster: SlurmCluster, inputs: Inputs, repository: Path, tmp_path: Path
) -> None:
    """srun ends with 143, because it ends the ranks that wait for the one with the line."""
    full = tmp_path / "room"
    full.mkdir()
    for node in cluster.names:
        cluster.node(node).run("mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", full).check_returncode()
    jobs = {}
    for name, (_, _, wrong) in TYPOS.items():
        output = (full if name == "room" else tmp_path) / f"{name}.h5"
        words = ("--table", inputs.table, "--events", inputs.events, "-o", output, "--engine", "counting", *wrong)
        jobs[name] = sbatch(cluster, repository, (*SMALL, "--output", tmp_path / f"{name}.log"), words)
    ended = {name: wait_for_end(cluster, job) for name, job in jobs.items()}
    logs = {name: (tmp_path / f"{name}.log").read_text() for name in TYPOS}
    assert {name: (each["ExitCode"], each["Restarts"]) for name, each in ended.items()} == {
        name: (f"{code}:0", "0") for name, (code, _, _) in TYPOS.items()
    }, logs
    assert [name for name, (_, line, _) in TYPOS.items() if line not in logs[name]] == []
    assert [name for name, log in logs.items() if "queued again" in log] == []


def test_a_disk_that_fills_during_the_run_ends_the_job_with_its_answers_kept(
    cluster: SlurmCluster, inputs: Inputs, repository: Path, tmp_path: Path
) -> None:
    """Exit code 4 stands for runs that are worth another start as well."""
    full = tmp_path / "room"
    full.mkdir()
    for node in cluster.names:
        cluster.node(node).run("mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", full).check_returncode()
    words = ("--table", inputs.table, "--events", inputs.events, "-o", full / "m.h5", "--engine", "counting", "--batch", 4)
    slowly = f"{SLOWLY}:{repository}"
    job = sbatch(cluster, repository, (*SMALL, "--output", tmp_path / "log"), words, PYTHONPATH=slowly)
    host = cluster.node(wait_for_node(cluster, job))
    fill = 'until [ "$(stat -c %s m.h5.journal 2>&-)" -gt 4096 ]; do sleep 0.05; done 2>&-; cat /dev/zero >rest'
    host.run("sh", "-c", fill, cwd=full)
    ended = wait_for_end(cluster, job)
    log = (tmp_path / "log").read_text()
    assert (ended["ExitCode"], ended["Restarts"]) == ("4:0", "0"), log
    assert "No space left on device" in log
    assert (
        log.splitlines()[-1] == "exit code 4: a disk is full; make room, and submit the job again to go on from its journal"
    )


def wait_for_node(cluster: SlurmCluster, job: int) -> str:
    """The node of a job, once it runs."""
    end = time.monotonic() + TIMEOUT_S
    while (found := cluster.job(job))["JobState"] != "RUNNING":
        assert time.monotonic() < end, found
        time.sleep(0.1)
    return found["NodeList"]


def test_tasks_of_a_job_array_have_an_output_each(
    cluster: SlurmCluster, inputs: Inputs, repository: Path, tmp_path: Path
) -> None:
    """sbatch gives all of them the same arguments."""
    array = (*SMALL, "--array=0-1", "--output", tmp_path / "%a.log")
    outputs = [tmp_path / f"matches-{task}.h5" for task in range(2)]
    job = submit(cluster, repository, inputs, tmp_path / "matches-%a.h5", *array)
    states = [wait_for_end(cluster, f"{job}_{task}")["JobState"] for task in range(2)]
    assert states == ["COMPLETED", "COMPLETED"], [path.read_text() for path in tmp_path.glob("*.log")]
    assert [path.read_bytes() == inputs.expected for path in outputs] == [True, True]


@pytest.mark.parametrize("named", ["-o one.h5", "-oone.h5", "--output=one.h5", "--output one.h5", "--table %a.h5"])
def test_tasks_of_a_job_array_that_would_write_one_output_are_refused(
    named: str, cluster: SlurmCluster, repository: Path, tmp_path: Path
) -> None:
    job = sbatch(cluster, repository, (*SMALL, "--array=0-1", "--output", tmp_path / "%a.log"), named.split())
    ended = [wait_for_end(cluster, f"{job}_{task}") for task in range(2)]
    assert [(each["ExitCode"], each["Restarts"]) for each in ended] == [("2:0", "0")] * 2
    said = "slurm.sbatch: all tasks of the job array would write one output; put %a, the number of a task, into -o\n"
    assert [(tmp_path / f"{task}.log").read_text() for task in range(2)] == [said, said]


@pytest.mark.lasting
def test_a_task_of_a_job_array_is_queued_again_alone(
    cluster: SlurmCluster, inputs: Inputs, repository: Path, tmp_path: Path
) -> None:
    """One of the tasks has the number of the whole array as its job's."""
    array = (*SMALL, "--array=0-1", "--output", tmp_path / "%a.log")
    job = submit(cluster, repository, inputs, tmp_path / "%a.h5", *array, PYTHONPATH=f"{SLOWLY}:{repository}")
    tasks = [f"{job}_{task}" for task in range(2)]
    for task in range(2):
        wait_for_answers(tmp_path / f"{task}.h5")
    numbers = [cluster.job(task)["JobId"] for task in tasks]
    cluster.run("scancel", "--signal=TERM", tasks[numbers.index(str(job))]).check_returncode()
    ended = [wait_for_end(cluster, task) for task in tasks]
    assert [each["JobState"] for each in ended] == ["COMPLETED", "COMPLETED"]
    assert sorted(each["Restarts"] for each in ended) == ["0", "1"]
    assert [(tmp_path / f"{task}.h5").read_bytes() == inputs.expected for task in range(2)] == [True, True]


def test_the_batch_script_asks_for_nothing_that_a_cluster_without_gpus_lacks(
    shell: dict[str, str], inputs: Inputs, repository: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("slurm")  # short: Slurm's sockets are there
    with SlurmCluster(3, directory, shell, n_gpus=0) as cluster:
        job = wait_for_end(cluster, submit(cluster, repository, inputs, tmp_path / "matches.h5"))
    log = (tmp_path / "log").read_text()
    assert (job["JobState"], len(log.splitlines())) == ("COMPLETED", 2), log
    assert "4 workers" in log
    assert (tmp_path / "matches.h5").read_bytes() == inputs.expected


def test_a_job_without_gpus_where_there_are_some_says_how_to_get_them(
    cluster: SlurmCluster, inputs: Inputs, repository: Path, tmp_path: Path
) -> None:
    job = submit(cluster, repository, inputs, tmp_path / "matches.h5", "--ntasks=2", "--cpus-per-task=1")
    assert wait_for_end(cluster, job)["JobState"] == "COMPLETED"
    assert "--gpus-per-node=N --ntasks-per-node=N+1" in (tmp_path / "log").read_text().splitlines()[0]


def test_the_batch_script_as_it_is(cluster: SlurmCluster, inputs: Inputs, repository: Path, tmp_path: Path) -> None:
    """Five ranks on two nodes of two GPUs, of which only the first has the files; the master needs no GPU."""
    local = cluster.shell.local
    assert cluster.run("cp", inputs.table, inputs.events, local).returncode == 0
    there = replace(inputs, table=local / "table.h5", events=local / "events.h5")
    output = tmp_path / "matches.h5"
    job = wait_for_end(cluster, submit(cluster, repository, there, output, *ON_TWO_GPUS))
    log = (tmp_path / "log").read_text()
    assert (job["JobState"], job["ExitCode"], job["NodeList"]) == ("COMPLETED", "0:0", "n[1-2]"), log
    assert output.read_bytes() == inputs.expected
    assert len(log.splitlines()) == 2, log
    assert "4 workers" in log
    left = cluster.run("srun", "--nodes=3", "ls", "/dev/shm")
    assert (left.returncode, "mpi-match" in left.stdout) == (0, False), left


@pytest.mark.lasting
@pytest.mark.parametrize(
    "interruption",
    [
        ("scontrol", "requeue"),
        ("scancel", "--signal=TERM"),  # what --signal of the script does when the time is nearly up
    ],
)
def test_a_job_that_is_queued_again_goes_on_from_its_journal(
    interruption: tuple[str, ...], cluster: SlurmCluster, inputs: Inputs, repository: Path, tmp_path: Path
) -> None:
    output = tmp_path / "matches.h5"
    job = submit(cluster, repository, inputs, output, *ON_TWO_GPUS, PYTHONPATH=f"{SLOWLY}:{repository}")
    wait_for_answers(output)
    done = cluster.run(*interruption, job)
    assert done.returncode == 0, done.stderr
    ended = wait_for_end(cluster, job)
    log = (tmp_path / "log").read_text()
    assert (ended["JobState"], ended["ExitCode"], ended["Restarts"]) == ("COMPLETED", "0:0", "1"), log
    assert output.read_bytes() == inputs.expected
    assert "from the journal of an earlier run" in log


@pytest.mark.lasting
def test_a_job_that_loses_a_node_goes_on_from_its_journal_on_the_others(
    shell: dict[str, str], inputs: Inputs, repository: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A node fails silently; Slurm detects it, cancels the job on the other nodes and queues it again."""
    output = tmp_path / "matches.h5"
    directory = tmp_path_factory.mktemp("slurm")  # short: Slurm's sockets are there
    with SlurmCluster(3, directory, shell) as cluster:
        options = ("--ntasks=4", "--ntasks-per-node=2", "--gpus-per-node=2")
        job = submit(cluster, repository, inputs, output, *options, PYTHONPATH=f"{SLOWLY}:{repository}")
        wait_for_answers(output)
        last = cluster.names[1]
        assert last in cluster.run("scontrol", "show", "hostnames", cluster.job(job)["NodeList"]).stdout.split()
        cluster.kill_node(last)
        ended = wait_for_end(cluster, job)
    log = (tmp_path / "log").read_text()
    assert (ended["JobState"], ended["ExitCode"], ended["Restarts"], ended["NodeList"]) == (
        "COMPLETED",
        "0:0",
        "1",
        "n[1,3]",
    ), log
    assert output.read_bytes() == inputs.expected
    assert "from the journal of an earlier run" in log


def test_srun_with_the_pmi_of_another_mpi_is_refused(cluster: SlurmCluster, inputs: Inputs, tmp_path: Path) -> None:
    output = tmp_path / "matches.h5"
    done = cluster.run("srun", "-n", 3, "-N", 3, "--mpi=none", *drive(inputs, output, "engine=counting"))
    assert not output.exists()
    if "An error occurred in MPI_Init" in done.stderr:  # Open MPI 4.1 has noticed by itself, and said so at length
        assert done.returncode != 0
        return
    assert done.returncode == 5
    refused = [line for line in done.stderr.splitlines() if not line.startswith("srun: ")]
    assert refused == [
        "srun started 3 processes, but each finds itself alone (MPI world size 1): "
        f"mpi4py has loaded {'Open MPI' if OPEN_MPI else 'MPICH'}: use srun --mpi={PMI}, or mpirun inside the allocation"
    ]


def test_srun_with_pmi_2_and_open_mpi_is_refused(cluster: SlurmCluster, inputs: Inputs, tmp_path: Path) -> None:
    """With it srun sets the variables of MPICH's mpiexec, which is not to blame."""
    if not OPEN_MPI:
        pytest.skip("MPICH speaks PMI-2")
    output = tmp_path / "matches.h5"
    words = ("run", "--table", inputs.table, "--events", inputs.events, "-o", output, "--engine", "counting")
    done = cluster.run("srun", "-n", 3, "-N", 3, "--mpi=pmi2", sys.executable, "-m", "mpi4py", "-m", "mpi_match", *words)
    assert (done.returncode, output.exists()) == (5, False)
    refused = [line for line in done.stderr.splitlines() if line.startswith("mpi-match: ")]
    assert len(refused) == 1, done.stderr
    assert refused[0].endswith("mpi4py has loaded Open MPI: use srun --mpi=pmix, or mpirun inside the allocation")


def test_a_gpu_for_each_task(cluster: SlurmCluster, inputs: Inputs, tmp_path: Path) -> None:
    """Each task sees one GPU; the second task of a node sees the second one, as number 0."""
    ranks = ("srun", "-n", 5, "-N", 3, "--gpus-per-task=1", f"--mpi={PMI}")
    done = cluster.run(*ranks, *drive(inputs, tmp_path / "matches.h5", "engine=numbered"))
    assert gpus_in(done) == ["n1 GPU 0 of 1", "n2 GPU 0 of 0", "n2 GPU 0 of 1", "n3 GPU 0 of 0"]


@pytest.mark.lasting  # the next one asks so too
def test_gpus_for_each_node(cluster: SlurmCluster, inputs: Inputs, tmp_path: Path) -> None:
    """Every task sees all GPUs of its node; workers use one each, and the master none."""
    ranks = ("srun", "-N", 3, "--ntasks-per-node=2", "--gpus-per-node=2", f"--mpi={PMI}")
    done = cluster.run(*ranks, *drive(inputs, tmp_path / "matches.h5", "engine=numbered"))
    assert gpus_in(done) == [
        "n1 GPU 0 of 0,1",
        *("n2 GPU 0 of 0,1", "n2 GPU 1 of 0,1"),
        *("n3 GPU 0 of 0,1", "n3 GPU 1 of 0,1"),
    ]


def test_a_node_with_the_master_has_a_worker_for_each_gpu_too(cluster: SlurmCluster, inputs: Inputs, tmp_path: Path) -> None:
    """As `launch/slurm.sbatch` asks for nodes: two of two GPUs have four workers, on a GPU each."""
    ranks = ("srun", "-n", 5, "--ntasks-per-node=3", "--gpus-per-node=2", "--cpus-per-task=2", f"--mpi={PMI}")
    done = cluster.run(*ranks, *drive(inputs, tmp_path / "matches.h5", "engine=numbered"))
    first, second = sorted({each.split()[0] for each in gpus_in(done)})  # Slurm takes any two of its three nodes
    assert gpus_in(done) == [f"{node} GPU {gpu} of 0,1" for node in (first, second) for gpu in (0, 1)]


def test_mpirun_in_an_allocation(cluster: SlurmCluster, inputs: Inputs, tmp_path: Path) -> None:
    """mpirun starts one task on each other node, so both ranks there inherit its SLURM_LOCALID, which is 0."""
    allocate = ("salloc", "-N", 3, "--ntasks-per-node=2", "--gpus-per-node=2")
    flags = ("--bind-to", "none", "--allow-run-as-root") if OPEN_MPI else ()
    done = cluster.run(*allocate, MPIRUN, *flags, "-n", 6, *drive(inputs, tmp_path / "matches.h5", "engine=numbered"))
    taken = [each.split(" of ")[0] for each in gpus_in(done)]
    assert taken == ["n1 GPU 0", "n2 GPU 0", "n2 GPU 1", "n3 GPU 0", "n3 GPU 1"]


@pytest.mark.parametrize("under", ["srun", pytest.param("sbatch", marks=pytest.mark.lasting)])
def test_scaling_is_measured_under_slurm(under: str, cluster: SlurmCluster, repository: Path, tmp_path: Path) -> None:
    """Its files are on a file system that all nodes see, as the inputs of the other tests are."""
    size = ("--filters", 60, "--events", 40, "--batch", 8, "--repetitions", 1, "--check", 5, "--engine", "counting")
    words = ("bench", "ccm-10-names", "--scaling", "1", "--under", under, *size, "--directory", tmp_path / "files")
    done = cluster.run(sys.executable, "-m", "mpi_match", *words, timeout=TIMEOUT_S * 3, PYTHONPATH=str(repository))
    assert done.returncode == 0, done.stderr + cluster.logs()
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["kind"], r["workers"]) for r in results] == [("strong", 1), ("weak", 1)]
    assert all(r["checked"]["equal"] == r["n_events"] for r in results)
