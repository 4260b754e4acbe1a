"""Members that share one network, in whole runs: BatchEnsemble, and views of the image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from silent_reporter import run_in
from small_dense_recipe import small_dense
from small_segmentation_recipe import small_segmentation

from epibench.data.loading import Stream, batches
from epibench.errors import InputError
from epibench.networks.batch_ensemble import member_weights
from epibench.recipes import DenseRecipe, apply_settings
from epibench.runs.given_inputs import run_models
from epibench.runs.image_training import augment_of, open_training_data
from epibench.runs.machine import Machine
from epibench.runs.train_job import TrainJob
from epibench.runs.trained_views import view_of
from epibench.runs.trainers import train_job
from epibench.training.statistics import batch_norm_statistics

OPTIONS = {"num_networks": 2, "num_members": 2, "num_epochs": 1, "batch_size": 4}
SETTINGS = [f"batch_ensemble.{name}={value}" for name, value in OPTIONS.items()]


class TestRefreshedMembers:
    @pytest.fixture(scope="class")
    def job(self, tmp_path_factory: pytest.TempPathFactory) -> TrainJob:
        folder = tmp_path_factory.mktemp("refreshed")
        recipe = small_dense(folder / "cache", *SETTINGS, "batch_ensemble.refresh_batches=2")
        job = TrainJob(
            apply_settings(recipe, ['methods=["batch_ensemble"]']), "batch_ensemble", (1,), folder / "run", "cpu"
        )
        train_job(job, lambda message: None)
        return job

    def test_each_has_the_statistics_of_its_own_weights(self, job: TrainJob) -> None:
        assert isinstance(job.recipe, DenseRecipe)
        method, trained = job.recipe.method("batch_ensemble"), view_of(job)(1)
        order, change = (trained.key("statistics", purpose) for purpose in ("order", "change"))
        stream = Stream(open_training_data(job.recipe), augment_of(job.recipe), order, change)
        seen = list(batches(stream, range(8), 4))
        means = []
        for member in method.members([1]).members:
            folded = member_weights(job.files.load_weights(0), 2, member.number)
            network = job.recipe.builder(None)()
            network.load_state_dict(folded)
            expected = batch_norm_statistics(network, (batch.inputs for batch in seen))
            weights = method.weights(member, trained)
            assert weights.keys() == folded.keys()
            for name, values in weights.items():
                assert torch.equal(values, expected.get(name, folded[name])), name
            means.append(weights["encoder.0.0.norm1.running_mean"])
        assert not torch.equal(*means)

    def test_without_they_are_those_of_all_members_together(self, job: TrainJob) -> None:
        recipe = apply_settings(job.recipe, ["batch_ensemble.refresh_batches=0"])
        other = replace(job, recipe=recipe)
        assert other.files.finished() is not None  # nothing is trained again
        method, trained = recipe.method("batch_ensemble"), view_of(other)(1)
        name = "encoder.0.0.norm1.running_mean"
        kept = job.files.load_weights(0)[name]
        assert all(torch.equal(method.weights(each, trained)[name], kept) for each in method.members([1]).members)


def test_a_batch_that_members_cannot_share_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"batch_ensemble.*batch_size: 5 images cannot be shared among 2 members"):
        small_dense(tmp_path, *SETTINGS, "batch_ensemble.batch_size=5")


class TestWholeRun:
    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("one_network")

    @pytest.fixture(scope="class")
    def results(self, folder: Path) -> dict[str, Any]:
        settings = ['methods=["ensemble", "tta", "batch_ensemble"]', "tta.num_networks=3", "members=[1, 2, 3]"]
        return run_in(folder / "run", small_dense(folder / "cache", *SETTINGS, *settings))

    def test_the_first_view_of_a_network_is_the_network(self, results: dict[str, Any]) -> None:
        assert results["failed"] == {}
        for domain in ("clean", "wild"):
            scores = {
                name: sorted(each["metrics"]["rmse"] for each in results["draws"][name][domain] if each["M"] == 1)
                for name in ("ensemble", "tta")
            }
            assert scores["tta"] == scores["ensemble"]
            assert len(scores["tta"]) == 3

    def test_sets_are_no_larger_than_there_are_members(self, results: dict[str, Any]) -> None:
        sizes = {name: sorted(map(int, results["summary"][name]["clean"])) for name in results["summary"]}
        assert sizes == {"ensemble": [1, 2, 3], "tta": [1, 2], "batch_ensemble": [1, 2]}
        assert [results["methods"][name]["num_members"] for name in sizes] == [3, 6, 4]

    def test_members_of_one_network_are_models_of_their_own(self, results: dict[str, Any], folder: Path) -> None:
        machine = Machine.of(torch.device("cpu"), 1)
        models = run_models(folder / "run", {"method": "batch_ensemble"}, machine)
        assert len(models) == len({model.fingerprint for model in models}) == 4
        assert type(models[0].open()).__name__ == "DepthCompletion"
        with pytest.raises(InputError, match="tta has views of images"):
            run_models(folder / "run", {"method": "tta"}, machine)


def test_classes_of_every_view_lie_on_the_image_and_members_share_the_pyramid(tmp_path: Path) -> None:
    """Grids of other scales are of another size; a batch of two is one image for each member."""
    shared = [f"batch_ensemble.{name}={value}" for name, value in {**OPTIONS, "batch_size": 2}.items()]
    views = ['tta.views=["identity", "flip", "scale 0.75", "flip scale 1.5"]', "tta.num_networks=1"]
    settings = ['methods=["ensemble", "tta", "batch_ensemble"]', "members=[1, 2, 4]", "ensemble.num_members=4"]
    results = run_in(
        tmp_path / "run", apply_settings(small_segmentation(tmp_path / "cache"), [*shared, *views, *settings])
    )
    assert results["failed"] == {}
    for sizes in results["summary"]["tta"].values():
        nll = [sizes[size]["nll"]["mean"] for size in ("1", "2", "4")]
        assert len(set(nll)) == 3
        assert max(nll) < 10
