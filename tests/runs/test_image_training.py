"""Trainings of large networks as a recipe says."""

import pytest
import torch

from epibench.runs.image_training import large_training
from named_recipes import recipe_of


def test_maximum_likelihood_knows_no_prior() -> None:
    kitti = recipe_of("kitti-depth")
    names = ("map", "ml", "ensemble")
    decays = {name: large_training(kitti, name, [], torch.device("cpu")).weight_decay for name in names}
    assert decays == {"map": 2.5e-4, "ml": 0.0, "ensemble": 2.5e-4}


@pytest.mark.parametrize("name", ["sgld", "sghmc", "cyclical"])
def test_chains_have_the_prior_on_every_parameter_instead_of_weight_decay(name: str) -> None:
    kitti = recipe_of("kitti-depth", "training.prior_scale=2")
    training = large_training(kitti, name, range(50), torch.device("cpu"))
    assert (training.weight_decay, training.decay_all) == (1 / (50 * 2**2), True)  # of U/N, N = 50 images
    street = recipe_of("street-depth")
    assert large_training(street, name, range(50), torch.device("cpu")).decay_all
    assert not large_training(street, "ensemble", range(50), torch.device("cpu")).decay_all


def test_a_device_augments_whole_batches() -> None:
    recipes = [recipe_of("street-depth"), recipe_of("street-depth", "training.augment=device")]
    samples = recipes[0].data.train.open("depth", recipes[0].data.folders, "data.train")
    trainings = [large_training(each, "ensemble", samples, torch.device("cpu")) for each in recipes]
    assert [training.whole_batches for training in trainings] == [False, True]
