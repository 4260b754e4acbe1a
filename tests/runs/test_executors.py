"""Who carries out jobs: what they have in common, and what is refused in words. Ray itself: test_ray.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from silent_reporter import Silent, by_name, run_in
from small_dense_recipe import small_dense
from small_recipes import small

from epibench import api
from epibench.errors import InputError
from epibench.recipes.only import networks_asked_for
from epibench.runs import run as steps
from epibench.runs.executors import JobResources, LocalExecutor
from epibench.runs.folder import RunFolder
from epibench.runs.machine import Machine, Run
from epibench.runs.ray_executor import environment
from epibench.runs.toy import ToyExperiment
from epibench.runs.train import collect_trained
from street_runs import epibench_command


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return small_dense(tmp_path_factory.mktemp("scenes"))


def double(job: int, send) -> None:
    send(2 * job)
    if job == 3:
        raise InputError("3: give another one")


def test_the_local_executor_does_jobs_here() -> None:
    received: list[tuple[int, int]] = []
    errors = LocalExecutor().run([1, 3, 5], double, JobResources(), lambda *message: received.append(message))
    assert errors == {1: "3: give another one"}
    assert received == [(0, 2), (1, 6), (2, 10)]


def test_an_unknown_executor_is_refused_with_those_there_are(tmp_path: Path) -> None:
    for command in (("run", "street-depth"), ("train", "street-depth"), ("evaluate", "nowhere")):
        status, said = epibench_command(*command, "--executor", "slurm")
        assert (status, said.strip()) == (2, "epibench: --executor 'slurm' is unknown: there are local and ray")
    with pytest.raises(InputError, match="executor 'slurm' is unknown"):
        api.run("street-depth", tmp_path / "run", executor="slurm")


def test_without_ray_one_line_says_what_to_install(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    status, said = epibench_command("run", "toy-regression-quick", "--executor", "ray", "--out", tmp_path / "run")
    assert status == 2
    assert said.splitlines()[-1] == "epibench: --executor ray needs a package more: pip install 'epibench[ray]'"
    assert not (tmp_path / "run").exists()


def test_given_models_are_evaluated_here() -> None:
    status, said = epibench_command("evaluate", "--model", "onnx:a.onnx", "--executor", "ray")
    assert status == 2
    assert "--executor ray: the networks of a run" in said


def test_tasks_find_this_package_and_its_settings(monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/mine", "", "/mine"]))
    monkeypatch.setenv("EPIBENCH_CACHE", "/scenes")
    monkeypatch.setenv("SECRET", "1")
    source = str(Path(api.__file__).parents[1])
    assert environment()["PYTHONPATH"].split(os.pathsep) == [source, "/mine"]
    assert environment()["EPIBENCH_CACHE"] == "/scenes"
    assert "SECRET" not in environment()


class Elsewhere(LocalExecutor):
    """An executor with two nodes that have GPUs."""

    remote, cores = True, 12

    def resolve_device(self, name: str, option: str) -> str:
        return "cuda"


@pytest.mark.parametrize(
    ("jobs", "resources"),
    [
        (None, JobResources(1, cpus=9, gpus=1.0, memory=5)),
        (3, JobResources(3, cpus=4, gpus=1 / 3, memory=5)),
    ],
)
def test_networks_share_a_gpu_elsewhere(jobs: int | None, resources: JobResources) -> None:
    machine = Machine.of(torch.device("cuda"), jobs, Elsewhere())
    assert machine.job_resources(memory=5) == resources
    assert machine.device_of(7) == "cuda:0"  # it sees only what it is given


def test_a_toy_problem_is_evaluated_here_beside_gpus_elsewhere(tmp_path: Path, monkeypatch) -> None:
    """Networks are trained on GPUs elsewhere; this process has none."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recipe = small("toy-regression", 'methods=["ensemble"]')
    here = run_in(tmp_path / "run", recipe)
    machine = Machine(torch.device("cuda"), 1, 0, Elsewhere())
    experiment = ToyExperiment(Run(recipe, RunFolder(tmp_path / "run"), machine, Silent()))
    trained = collect_trained(experiment.run, "ensemble")
    assert experiment.pool(trained).parameters.device.type == "cpu"
    mean = experiment.direct_regression()
    assert mean.device.type == "cpu"
    assert len(mean) >= len(here["toy"]["direct"]["mean"])


def test_a_network_on_a_cpu_needs_a_core() -> None:
    machine = Machine.of(torch.device("cpu"), None, Elsewhere())
    assert machine.job_resources(memory=5) == JobResources(12, cpus=1, gpus=0.0, memory=5)
    assert machine.job_resources(at_once=1) == JobResources(1)


class Nodes(LocalExecutor):
    """An executor with machines of its own, which are this process. lost: what it cannot do."""

    remote, cores = True, 1

    def __init__(self, lost: str = "nothing"):
        self.lost, self.calls = lost, list[list[str]]()

    def room(self, resources: JobResources) -> int:
        return 3

    def run(self, jobs, work, resources, receive):
        self.calls.append([str(job) for job in jobs])
        kept = [number for number, job in enumerate(jobs) if not str(job).startswith(self.lost)]
        errors = super().run([jobs[n] for n in kept], work, resources, lambda n, message: receive(kept[n], message))
        assert errors == {}
        return {number: f"{job}: lost" for number, job in enumerate(jobs) if number not in kept}


def carry_out_by(executor: Nodes, recipe, folder: Path) -> dict[str, Any]:
    machine = Machine.of(torch.device("cpu"), 1, executor)
    return by_name(steps.train_and_evaluate(Run(recipe, RunFolder(folder), machine, Silent())).model_dump(mode="json"))


def test_machines_of_an_executor_do_everything_to_the_same_numbers(recipe, tmp_path: Path) -> None:
    executor = Nodes()
    there, here = carry_out_by(executor, recipe, tmp_path / "there"), run_in(tmp_path / "here", recipe)
    for name in ("draws", "curves", "pictures", "methods", "domains", "training", "failed"):
        assert there[name] == here[name]
    networks = [f"ensemble: network {number}" for number in range(3)] + [f"mc_dropout: network {n}" for n in range(2)]
    stretches = [f"{name} on {domain}, stretches 0 to 0" for name in recipe.methods for domain in ("clean", "wild")]
    assert executor.calls == [networks, stretches]  # all methods at once
    assert not list((tmp_path / "there").rglob("*.stretches"))


def test_a_domain_that_is_lost_elsewhere_leaves_the_others(recipe, tmp_path: Path) -> None:
    results = carry_out_by(Nodes(lost="ensemble on wild"), recipe, tmp_path / "run")
    assert results["failed"] == {"ensemble on wild": "ensemble on wild, stretches 0 to 0: lost"}
    assert {name: list(domains) for name, domains in results["summary"].items()} == {
        "ensemble": ["clean"],
        "mc_dropout": ["clean", "wild"],
    }


def test_a_network_that_is_lost_elsewhere_fails_its_method(recipe, tmp_path: Path) -> None:
    results = carry_out_by(Nodes(lost="ensemble: network 1"), recipe, tmp_path / "run")
    assert results["failed"] == {"ensemble": "ensemble: network 1: lost"}
    assert list(results["summary"]) == ["mc_dropout"]
    assert (tmp_path / "run" / "members" / "ensemble" / "0002.safetensors").exists()
    again = Nodes()
    assert carry_out_by(again, recipe, tmp_path / "run")["failed"] == {}
    assert again.calls[0] == ["ensemble: network 1"]


def test_a_store_is_written_by_one_process(recipe, tmp_path: Path) -> None:
    executor = Nodes()
    stored = recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update={"store": True})})
    assert carry_out_by(executor, stored, tmp_path / "run")["failed"] == {}
    assert len(executor.calls) == 1
    assert (tmp_path / "run" / "predictions" / "ensemble" / "clean.zarr").exists()


# Some networks only


@pytest.mark.parametrize(
    ("texts", "asked"),
    [
        ([], {}),
        (["ensemble"], {"ensemble": None}),
        (["ensemble:1-2"], {"ensemble": (1, 2)}),
        (["ensemble:2,0", "mc_dropout:1"], {"ensemble": (0, 2), "mc_dropout": (1,)}),
        (["ensemble:0", "ensemble:2"], {"ensemble": (0, 2)}),
        (["ensemble:0", "ensemble"], {"ensemble": None}),
        (["ensemble", "ensemble:0"], {"ensemble": None}),
    ],
)
def test_networks_by_their_numbers(texts: list[str], asked, recipe) -> None:
    assert networks_asked_for(texts, recipe, "--only") == asked


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("typo:1", "--only typo:1: small-dense has no method 'typo'; it has ensemble, mc_dropout"),
        ("ensemble:3", "--only ensemble:3: there is no '3'; the networks have the numbers 0 to 2"),
        ("ensemble:1-5", "--only ensemble:1-5: there is no '1-5'; the networks have the numbers 0 to 2"),
        ("ensemble:2-1", "--only ensemble:2-1: there is no '2-1'; the networks have the numbers 0 to 2"),
        ("ensemble:", "--only ensemble:: '' is no number of a network; give numbers as 3-5 or 0,4"),
        ("ensemble:a", "--only ensemble:a: 'a' is no number of a network; give numbers as 3-5 or 0,4"),
    ],
)
def test_networks_that_there_are_not(text: str, complaint: str, recipe) -> None:
    with pytest.raises(InputError) as refused:
        networks_asked_for([text], recipe, "--only")
    assert str(refused.value) == complaint


def test_stacked_networks_are_trained_together() -> None:
    recipe = small("toy-regression")
    assert networks_asked_for(["sgld"], recipe, "--only") == {"sgld": None}
    with pytest.raises(InputError, match="the networks of sgld are trained together; give --only sgld"):
        networks_asked_for(["sgld:0"], recipe, "--only")


def test_parts_of_a_training_are_the_whole(recipe, tmp_path: Path) -> None:
    """Each command trains what it was asked for, and nothing else; the numbers are those of one command."""
    whole = run_in(tmp_path / "whole", recipe)
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    command = ("train", tmp_path / "recipe.json", "--out", tmp_path / "parts", "--device", "cpu", "--jobs", "1")
    weights = tmp_path / "parts" / "members"
    status, said = epibench_command(*command, "--only", "ensemble:1-2")
    assert status == 0
    assert "; 3 more are to be trained; " in said
    trained = sorted(str(path.relative_to(weights)) for path in weights.rglob("*.safetensors"))
    assert trained == ["ensemble/0001.safetensors", "ensemble/0002.safetensors"]
    assert epibench_command(*command, "--only", "ensemble:0,1", "--only", "mc_dropout")[0] == 0
    reporter = Silent()
    parts = steps.evaluate(Run(recipe, RunFolder(tmp_path / "parts"), Machine(torch.device("cpu"), 1, 0), reporter))
    assert by_name(parts.model_dump(mode="json"))["draws"] == whole["draws"]


def test_parts_in_python(recipe, tmp_path: Path) -> None:
    folder = api.train(recipe, tmp_path / "run", only=["mc_dropout:1"], device="cpu")
    assert [path.name for path in (folder / "members").rglob("*.safetensors")] == ["0001.safetensors"]
    with pytest.raises(InputError, match="only typo: small-dense has no method 'typo'"):
        api.train(recipe, tmp_path / "run", only="typo", device="cpu")


@pytest.mark.parametrize(("name", "expected"), [("cuda", "cuda:0"), ("cuda:1", "cuda:1"), ("cpu", "cpu")])
def test_this_process_names_its_gpu_by_number(name: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another thread takes for `cuda` may be another GPU."""
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    machine = Machine(torch.device(name), 1, 0)
    assert machine.here == machine.make_current() == torch.device(expected)
    assert current == ([] if name == "cpu" else [torch.device(expected)])


def test_a_process_without_the_gpus_of_its_jobs_is_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Machine(torch.device("cuda"), 1, 0).here == torch.device("cpu")
