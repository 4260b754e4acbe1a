"""Members that share one network, in whole runs: BatchEnsemble, and views of the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from silent_reporter import run_in
from small_dense_recipe import small_dense
from small_segmentation_recipe import small_segmentation

import epibench
from epibench.data.batch import stack
from epibench.errors import InputError
from epibench.recipes import Recipe
from made_up_images import made_up_images
from trained_runs import TrainedRun, assert_same_weights, train

OPTIONS = {"num_networks": 2, "num_members": 2, "num_epochs": 1, "batch_size": 4}
SETTINGS = [f"batch_ensemble.{name}={value}" for name, value in OPTIONS.items()]


class TestRefreshedMembers:
    def recipe(self, folder: Path, num_batches: int) -> Recipe:
        settings = (f"batch_ensemble.refresh_batches={num_batches}", 'methods=["batch_ensemble"]')
        return small_dense(folder / "cache", *SETTINGS, *settings)

    @pytest.fixture(scope="class")
    def run(self, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
        folder = tmp_path_factory.mktemp("refreshed")
        return train(self.recipe(folder, 2), folder / "run", "batch_ensemble:1")

    def test_each_has_the_statistics_of_its_own_weights(self, run: TrainedRun) -> None:
        trained, plain = run.network("batch_ensemble", 1), self.recipe(run.folder.parent, 0).method("batch_ensemble")
        members = plain.members([1]).members
        found = [run.member("batch_ensemble", member) for member in members]
        before = [dict(plain.weights(member, trained)) for member in members]
        assert_same_weights(found, [run.refreshed("batch_ensemble", 1, weights, 2) for weights in before])
        assert not torch.equal(*(weights["encoder.0.0.norm1.running_mean"] for weights in found))

    def test_without_they_are_those_of_all_members_together(self, run: TrainedRun) -> None:
        written = run.written("batch_ensemble")
        other = train(self.recipe(run.folder.parent, 0), run.folder, "batch_ensemble:1")
        assert run.written("batch_ensemble") == written  # nothing is trained again
        name, (kept,) = "encoder.0.0.norm1.running_mean", run.kept("batch_ensemble", 1)
        members = other.recipe.method("batch_ensemble").members([1]).members
        assert all(torch.equal(other.member("batch_ensemble", each)[name], kept[name]) for each in members)


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
        run, data = TrainedRun(small_dense(folder / "cache", *SETTINGS), folder / "run"), made_up_images(3)
        found = epibench.evaluate(f"run:{run.folder},method=batch_ensemble", {"made-up": data}, device="cpu")
        (score,) = found.scores
        assert score.pool.num_members == 4
        expected = []
        for member in run.recipe.method("batch_ensemble").members((0, 1)).members:
            network = run.recipe.builder(None)().eval()
            network.load_state_dict(run.member("batch_ensemble", member))
            with torch.inference_mode():
                errors = [network(stack([each]).inputs)[:, 0] - each.target for each in data]
            expected.append(float(torch.cat(errors).square().mean().sqrt()))
        assert sorted(draw.metrics["rmse"] for draw in score.draws if draw.M == 1) == pytest.approx(sorted(expected))
        assert len(set(expected)) == 4
        with pytest.raises(InputError, match="tta has views of images; take epibench evaluate"):
            epibench.evaluate(f"run:{run.folder},method=tta", {"made-up": data}, device="cpu")


def test_classes_of_every_view_lie_on_the_image_and_members_share_the_pyramid(tmp_path: Path) -> None:
    """Grids of other scales are of another size; a batch of two is one image for each member."""
    shared = [f"batch_ensemble.{name}={value}" for name, value in {**OPTIONS, "batch_size": 2}.items()]
    views = ['tta.views=["identity", "flip", "scale 0.75", "flip scale 1.5"]', "tta.num_networks=1"]
    settings = ['methods=["ensemble", "tta", "batch_ensemble"]', "members=[1, 2, 4]", "ensemble.num_members=4"]
    results = run_in(tmp_path / "run", small_segmentation(tmp_path / "cache", *shared, *views, *settings))
    assert results["failed"] == {}
    for sizes in results["summary"]["tta"].values():
        nll = [sizes[size]["nll"]["mean"] for size in ("1", "2", "4")]
        assert len(set(nll)) == 3
        assert max(nll) < 10
