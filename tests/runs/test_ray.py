"""Runs on a Ray cluster: the same numbers, also after the loss of nodes and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray_jobs
from child_processes import is_alive, wait_until
from fault_injection import noted_fetches, replace_work, script_environment
from silent_reporter import Silent, run_in
from small_dense_recipe import small_dense
from small_recipes import small

import epibench
from epibench.errors import InputError
from epibench.runs import ray_executor
from epibench.runs.executors import JobResources, open_executor
from epibench.runs.machine import Machine

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'epibench[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Ray's sockets and pipes


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a cluster with two cores on its first node; tests add and remove further nodes."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        for name, value in ray_executor.STARTED_WITH.items():
            patch.setenv(name, value)
        patch.setenv("RAY_health_check_period_ms", "300")  # the loss of a node is noticed soon
        patch.setattr(ray_executor, "RETRIES", 1)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        patch.setenv("RAY_ADDRESS", cluster.address)
        ray.cloudpickle.register_pickle_by_value(ray_jobs)
        yield cluster
        ray.cloudpickle.unregister_pickle_by_value(ray_jobs)
        cluster.shutdown()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def executor(cluster, tmp_path: Path, said: list[str], monkeypatch) -> Iterator[ray_executor.RayExecutor]:
    """Open the cluster in a folder where its tasks work, too."""
    monkeypatch.chdir(tmp_path)
    with open_executor("ray", tmp_path, said.append) as executor:
        yield executor


def notes(folder: Path, what: str) -> list[tuple[str, int]]:
    """Return nodes and processes of tasks by the beginning of their note."""
    path = folder / "notes.txt"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(node, int(process)) for name, node, process in lines if name.startswith(what)]


def test_jobs_that_fail_leave_the_others(executor, said: list[str], tmp_path: Path) -> None:
    jobs, received = ["good", "bad", "broken", "dead", "dead-at-first"], []
    errors = executor.run(jobs, ray_jobs.work, JobResources(memory=10**8), lambda *message: received.append(message))
    assert errors == {
        1: "bad: give another one",
        2: "broken: failed 2 times, the last time because ZeroDivisionError: of all things; the same command tries it "
        "again",
        3: "dead: failed 2 times, the last time because its process died; the same command tries it again",
    }
    assert {job: len(notes(tmp_path, job)) for job in ("good", "bad", "broken", "dead")} == {
        **{"good": 1, "bad": 1},  # an error of the user is not tried again
        **{"broken": 2, "dead": 4},  # with the one that died only at first
    }
    assert "dead-at-first: its process died; it is tried again (1 of 1)" in said
    for number in (0, 1, 4):  # the last message of a job always arrives
        assert [content for sender, content in received if sender == number][-1] == (jobs[number], 2)
    processes = [process for _, process in notes(tmp_path, "")]
    assert len(processes) == len({*processes, os.getpid()}) - 1  # each in a process of its own


def test_the_cluster_is_described_in_a_line(executor, said: list[str]) -> None:
    assert said[0].startswith("Ray: 1 node, 2 cores")
    assert executor.run([], ray_jobs.work, JobResources(), lambda *message: None) == {}


def test_the_device_depends_on_the_gpus_of_the_cluster(executor) -> None:
    assert executor.resolve_device("auto", "--device") == "cpu"
    with pytest.raises(InputError, match="--device cuda: no node of the Ray cluster has a GPU"):
        executor.resolve_device("cuda", "--device")
    with pytest.raises(InputError, match="Ray chooses the GPU"):
        executor.resolve_device("cuda:1", "--device")
    with pytest.raises(InputError, match="--device 'gpu' is unknown"):
        executor.resolve_device("gpu", "--device")


def test_the_handler_of_sigterm_stays(cluster, tmp_path: Path) -> None:
    def handle(*received: Any) -> None: ...

    before = signal.signal(signal.SIGTERM, handle)
    try:
        with open_executor("ray", tmp_path, lambda text: None):
            assert signal.getsignal(signal.SIGTERM) is handle
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_interruption_fetches_nothing(executor) -> None:
    def interrupt(*message: Any) -> None:
        raise KeyboardInterrupt

    with noted_fetches() as fetched:
        with pytest.raises(KeyboardInterrupt):
            executor.run(["good"], ray_jobs.work, JobResources(), interrupt)
        assert fetched == []
        assert executor.run(["good"], ray_jobs.work, JobResources(), lambda *message: None) == {}
        assert fetched == ["fetched"]


def test_no_task_requests_more_than_a_node_has(executor, said: list[str]) -> None:
    options = executor.options(JobResources(cpus=64, memory=10**15))
    assert options["num_cpus"] == 2
    assert options["memory"] < 10**15
    thirds = executor.options(JobResources(gpus=1 / 3))["num_gpus"]
    assert 0.333 < thirds <= 1 / 3


def test_the_number_of_tasks_that_fit(executor) -> None:
    assert executor.room(JobResources()) == 2
    assert executor.room(JobResources(cpus=2)) == 1
    assert executor.room(JobResources(gpus=0.5)) == 1  # without it no task would begin


def test_a_node_must_see_the_folders(executor, tmp_path: Path) -> None:
    executor.folder = tmp_path / "elsewhere"
    errors = executor.run(["good"], ray_jobs.work, JobResources(), lambda *message: None)
    assert errors[0].startswith(f"{tmp_path}/elsewhere: node ")
    assert "give --out on storage that all nodes have" in errors[0]
    assert notes(tmp_path, "good") == []


SCRIPT = """
import signal
import sys
from pathlib import Path

import ray
import ray_jobs

from epibench.runs.executors import JobResources, open_executor

# What is started in the background of a shell ignores Ctrl-C; this one is not to.
signal.signal(signal.SIGINT, signal.default_int_handler)
ray.cloudpickle.register_pickle_by_value(ray_jobs)
with open_executor("ray", Path.cwd(), print) as executor:
    executor.run(["endless", "endless", "endless"], ray_jobs.work, JobResources(), lambda *message: None)
"""


def test_an_interruption_ends_all_tasks(cluster, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + SCRIPT,
    ]
    # What is started in the background of a shell ignores Ctrl-C; this one is not to.
    script = subprocess.Popen(command, cwd=tmp_path, env=script_environment(), stderr=subprocess.DEVNULL)
    try:
        running = wait_until(lambda: len(begun := notes(tmp_path, "endless")) == 2 and begun)
        script.send_signal(signal.SIGINT)
        assert script.wait(120) == -signal.SIGINT  # as Python ends
    finally:
        script.kill()
        script.wait()
    wait_until(lambda: not any(is_alive(process) for _, process in running))
    assert len(notes(tmp_path, "endless")) == 2  # the third did not begin


# Whole runs


def run_on_ray(path: Path, recipe: Any) -> tuple[dict[str, Any], list[str]]:
    """Return computed results of a run on the cluster, and its messages."""
    reporter = Silent()
    results = epibench.run(recipe, path, device="cpu", executor="ray", progress=reporter)
    return results.computed(), reporter.said


def run_here(path: Path, recipe: Any) -> dict[str, Any]:
    run_in(path, recipe)
    return epibench.load_results(path).computed()


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scenes")


def test_a_toy_problem_has_the_same_numbers(cluster, tmp_path: Path) -> None:
    recipe = small("toy-classification", 'methods=["ensemble", "sgld"]')
    assert run_on_ray(tmp_path / "ray", recipe)[0] == run_here(tmp_path / "local", recipe)


def test_a_network_that_always_fails_leaves_the_others(cluster, cache: Path, tmp_path: Path, monkeypatch) -> None:
    recipe = small_dense(cache, "ensemble.num_members=2", "mc_dropout.num_networks=1", "members=[1]")
    replace_work(monkeypatch, train=ray_jobs.train_all_but_one)
    why = "failed 2 times, the last time because its process died; the same command tries it again"
    with pytest.raises(InputError, match=f"^ensemble: network 1: {why}$"):
        epibench.train(recipe, tmp_path / "run", device="cpu", executor="ray")
    trained = [str(path.relative_to(tmp_path / "run" / "members")) for path in tmp_path.rglob("*.safetensors")]
    assert sorted(trained) == ["ensemble/0000.safetensors", "mc_dropout/0000.safetensors"]


class Losses(threading.Thread):
    """Remove the first further node where a task waits at a gate, and open the gate."""

    def __init__(self, cluster: Any, folder: Path, gates: list[str]):
        super().__init__(daemon=True)
        self.cluster, self.folder, self.gates, self.lost = cluster, folder, gates, list[str]()

    def run(self) -> None:
        for gate in self.gates:
            node = wait_until(partial(self.node_at, gate), 120)
            self.cluster.remove_node(node, allow_graceful=False)
            self.lost.append(node.node_id)
            (self.folder / gate).touch()

    def node_at(self, gate: str) -> Any:
        """Return a further node where a task waits."""
        waiting = {name for name, _ in notes(self.folder, f"{gate}:")}
        return next((node for node in self.cluster.worker_nodes if node.node_id in waiting), None)


def test_the_loss_of_nodes_changes_no_number(cluster, cache: Path, tmp_path: Path, monkeypatch) -> None:
    """Kill one of three nodes in training and another one in evaluation."""
    recipe = small_dense(cache, 'methods=["ensemble"]')
    local = run_here(tmp_path / "local", recipe)
    for _ in range(2):
        cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    monkeypatch.setattr(Machine, "job_resources", lambda *given, **named: JobResources(cpus=2))  # one task on each node
    replace_work(monkeypatch, ray_jobs.train_at_gate, ray_jobs.evaluate_at_gate)
    losses = Losses(cluster, tmp_path, ["train", "evaluate"])
    losses.start()
    results, said = run_on_ray(tmp_path / "run", recipe)
    losses.join(10)
    assert len(set(losses.lost)) == 2
    assert results == local
    again = [line for line in said if "it is tried again" in line]
    assert [line.partition(":")[0].split(" on ")[0] for line in again] == ["ensemble", "ensemble"]
    assert ["stretches 0 to 0" in line for line in again] == [False, True]
    assert all("its node was lost" in line or "its process died" in line for line in again)
