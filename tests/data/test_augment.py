"""Augmented samples: a function of the key, and inputs, target and valid pixels stay together."""

import pytest
import torch

from epibench.data.augment import Augment, rescaled, thinned
from epibench.data.batch import Batch
from epibench.errors import InputError

SIZE = (48, 64)


@pytest.fixture
def sample():
    """Every pixel has a depth of its own; a quarter of them is given."""
    depth = (1 + torch.arange(SIZE[0] * SIZE[1], dtype=torch.float32)).view(SIZE) / 64
    given = torch.rand(SIZE, generator=torch.Generator().manual_seed(0)) < 0.25
    image = (depth * 4).to(torch.uint8).expand(3, *SIZE)
    return Batch({"image": image, "sparse_depth": (depth * given)[None]}, depth, torch.ones(SIZE, dtype=torch.bool))


def count(sample):
    return int((sample.inputs["sparse_depth"] > 0).sum())


def together(sample):
    """Whether the sparse points are those of the target."""
    sparse = sample.inputs["sparse_depth"][0]
    return torch.equal(sparse[sparse > 0], sample.target[sparse > 0])


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_thinning_keeps_that_share_of_the_points(sample, share):
    kept = [count(thinned(sample, share, key)) / count(sample) for key in range(20)]
    assert sum(kept) / 20 == pytest.approx(share, abs=0.02)


def test_thinning_leaves_the_points_that_it_keeps(sample):
    assert together(thinned(sample, 0.5, 1))


def test_thinning_all_keeps_all(sample):
    assert thinned(sample, 1.0, 1) is sample


def test_other_keys_keep_other_points(sample):
    one, other = (thinned(sample, 0.5, key).inputs["sparse_depth"] > 0 for key in (1, 2))
    assert not torch.equal(one, other)


def test_the_share_of_a_sample_lies_in_the_range(sample):
    shares = [count(Augment(thin=(0.4, 0.8))(sample, key)) / count(sample) for key in range(60)]
    assert 0.35 < min(shares) < 0.48
    assert 0.72 < max(shares) < 0.85


def test_samples_without_sparse_depth_are_not_thinned(sample):
    plain = Batch({"image": sample.inputs["image"]}, sample.target, sample.valid)
    assert Augment(thin=(0.1, 0.2), flip=False)(plain, 3).inputs.keys() == {"image"}


def test_the_same_key_makes_the_same_sample(sample):
    augment = Augment((16, 32), scale=(0.8, 1.2), thin=(0.3, 1.0))
    one, other = augment(sample, 5), augment(sample, 5)
    assert torch.equal(one.target, other.target)
    assert all(torch.equal(one.inputs[name], other.inputs[name]) for name in one.inputs)


def test_everything_is_cropped_and_flipped_together(sample):
    made = [Augment((16, 32), thin=(0.5, 1.0))(sample, key) for key in range(8)]
    assert all(together(each) for each in made)
    assert {tuple(each.target.shape) for each in made} == {(16, 32)}
    assert {bool(each.target[0, 0] < each.target[0, 1]) for each in made} == {True, False}


def test_what_is_enlarged_is_nearer(sample):
    twice = rescaled(sample, 2.0)
    assert torch.equal(twice.target[::2, ::2], sample.target / 2)
    assert together(twice)


def test_a_crop_that_does_not_fit_is_refused(sample):
    with pytest.raises(InputError, match="a crop of 64×64 does not fit into an image of 48×64"):
        Augment((64, 64))(sample, 0)
