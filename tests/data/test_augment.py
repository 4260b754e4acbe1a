"""Augmented samples: a function of the key, and inputs, target and valid pixels stay together."""

import pytest
import torch
from torch.nn import functional

from epibench.data.augment import Augment, Colours, padded, rescaled, thinned
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


@pytest.fixture
def street():
    """A picture with classes: the class of a pixel can be read from its colour; some pixels do not count."""
    target = torch.arange(SIZE[0] * SIZE[1]).view(SIZE) // 97 % 11
    target[5:9, 7:20] = 255
    image = torch.where(target == 255, 7, 10 + 20 * target).to(torch.uint8).expand(3, *SIZE).clone()
    return Batch({"image": image}, target, target != 255)


def classes_are_right(sample):
    """Whether the colours of valid pixels tell their classes."""
    image = sample.inputs["image"][0].long()
    return torch.equal(image[sample.valid], 10 + 20 * sample.target[sample.valid])


def framed(sample):
    """Whether what is not valid has no class."""
    return torch.equal(sample.valid, sample.target != 255)


def test_classes_stay_with_their_pixels(street):
    made = [Augment((40, 80), scale=(0.5, 2.0), scale_step=0.5, pad=True)(street, key) for key in range(20)]
    assert all(framed(sample) for sample in made)
    unscaled = [Augment((40, 80), pad=True)(street, key) for key in range(20)]
    assert all(classes_are_right(sample) for sample in unscaled)


@pytest.mark.parametrize("size", [(64, 96), (24, 96), (64, 32), (48, 64), (24, 32)])
def test_a_padded_crop_has_its_size_and_all_that_fits(street, size):
    augment = Augment(size, pad=True)
    made = [augment(street, key) for key in range(12)]
    assert {tuple(sample.target.shape) for sample in made} == {size}
    assert {tuple(sample.inputs["image"].shape) for sample in made} == {(3, *size)}
    inside = min(size[0], SIZE[0]) * min(size[1], SIZE[1])
    ignored = 4 * 13
    assert all(inside - ignored <= int(sample.valid.sum()) <= inside for sample in made)
    if size[0] >= SIZE[0] and size[1] >= SIZE[1]:
        assert {int(sample.valid.sum()) for sample in made} == {SIZE[0] * SIZE[1] - ignored}


def test_an_image_lies_anywhere_in_a_larger_crop(street):
    tops = {int(Augment((52, 64), pad=True)(street, key).valid.any(1).nonzero()[0]) for key in range(60)}
    assert tops == {0, 1, 2, 3, 4}


def test_what_is_padded_has_the_mean_colour(street):
    made = padded(street, (SIZE[0] + 2, SIZE[1]), 2, 0)
    mean = street.inputs["image"].float().mean((1, 2)).round().to(torch.uint8)
    assert torch.equal(made.inputs["image"][:, :2], mean[:, None, None].expand(3, 2, SIZE[1]))
    assert torch.equal(made.inputs["image"][:, 2:], street.inputs["image"])
    assert not made.valid[:2].any()


def test_padded_depth_is_no_depth(sample):
    made = Augment((64, 96), flip=False, pad=True)(sample, 3)
    assert not made.target[~made.valid].any()
    assert count(made) == count(sample)
    assert together(made)


def test_padding_changes_nothing_where_the_crop_fits(sample):
    one, other = (Augment((16, 32), scale=(0.8, 1.2), pad=pad)(sample, 5) for pad in (False, True))
    assert torch.equal(one.target, other.target)
    assert torch.equal(one.inputs["image"], other.inputs["image"])


def test_published_scales_are_17_steps():
    # A crop as large as the image at scale 2.1 shows the scale as what is valid.
    image, target = torch.zeros(3, 10, 20, dtype=torch.uint8), torch.zeros(10, 20, dtype=torch.int64)
    flat = Batch({"image": image}, target, target == 0)
    augment = Augment((21, 42), scale=(0.5, 2.1), scale_step=0.1, pad=True)
    heights = [int(augment(flat, key).valid.any(1).sum()) for key in range(400)]
    assert set(heights) == set(range(5, 22))
    assert max(heights.count(height) for height in set(heights)) < 45


@pytest.mark.parametrize("factor", [0.5, 0.77, 1.3, 2.0, 2.1])
def test_a_part_of_a_scaled_image_is_that_part(street, factor):
    image = torch.randint(0, 256, (3, *SIZE), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    street = Batch({"image": image}, street.target, street.valid)
    whole, part = rescaled(street, factor), rescaled(street, factor, slice(3, 20), slice(5, 30))
    assert torch.equal(part.target, whole.target[3:20, 5:30])
    assert torch.equal(part.valid, whole.valid[3:20, 5:30])
    assert torch.equal(part.inputs["image"], whole.inputs["image"][:, 3:20, 5:30])
    smooth = functional.interpolate(
        image[None].float(), whole.target.shape, mode="bilinear", align_corners=False, antialias=factor < 1
    )
    assert float((whole.inputs["image"] - smooth[0]).abs().max()) < 0.501


def test_a_step_of_one_leaves_the_sample_as_it_is(sample):
    made = Augment(flip=False, scale=(1.0, 1.05), scale_step=0.1)(sample, 3)
    assert torch.equal(made.target, sample.target)


def test_colours_leave_everything_in_its_place(street):
    geometry = {"crop": (32, 80), "scale": (0.5, 2.0), "pad": True}
    for key in range(10):
        plain = Augment(**geometry)(street, key)
        coloured = Augment(**geometry, colours=Colours(1.0, 0.5, 0.5, 0.5))(street, key)
        assert torch.equal(plain.target, coloured.target)
        assert torch.equal(plain.valid, coloured.valid)
        assert not torch.equal(plain.inputs["image"], coloured.inputs["image"])


def test_colours_do_not_change_depth(sample):
    augment = {"crop": (16, 32), "thin": (0.3, 1.0)}
    plain, coloured = Augment(**augment)(sample, 5), Augment(**augment, colours=Colours(1.0))(sample, 5)
    assert torch.equal(plain.inputs["sparse_depth"], coloured.inputs["sparse_depth"])


def test_numbers_of_earlier_versions_stay(sample):
    """A run can be repeated: these come from the version before colours."""
    made = Augment((16, 32), scale=(0.8, 1.2), thin=(0.3, 1.0))(sample, 5)
    corners = float(made.target[0, 0]), float(made.target[-1, -1])
    assert corners == pytest.approx((12.78162, 25.26097), abs=1e-4)
    assert count(made) == 41
    assert int(made.inputs["image"].long().sum()) == 124983


def test_sparse_depth_is_drawn_anew_at_every_visit(sample):
    valid = torch.rand(SIZE, generator=torch.Generator().manual_seed(2)) < 0.8
    sample = Batch(sample.inputs, torch.where(valid, sample.target, 0), valid)
    augment = Augment(flip=False, sparse_share=0.05)
    drawn = [augment(sample, key).inputs["sparse_depth"] for key in range(100)]
    assert drawn[0].shape == (1, *SIZE)
    assert torch.equal(drawn[7], augment(sample, 7).inputs["sparse_depth"])  # a function of the visit
    counts = torch.tensor([int((each > 0).sum()) for each in drawn], dtype=torch.float64)
    expected = 0.05 * int(valid.sum())  # each pixel by itself: the number varies as a binomial one does
    assert float(counts.mean()) == pytest.approx(expected, abs=4 * (0.95 * expected / 100) ** 0.5)
    assert 0.7 < float(counts.std()) / (0.95 * expected) ** 0.5 < 1.3
    often = sum((each[0] > 0).double() for each in drawn)
    assert not bool(often[~valid].any())
    assert int((often[valid] == 0).sum()) < 0.05 * int(valid.sum())  # 0.95¹⁰⁰ = 0.6 % are never drawn
    assert all(together(augment(sample, key)) for key in range(3))


def test_opencv_interpolates_a_smaller_image_between_neighbours(labelled):
    stripes = torch.zeros(3, *labelled.target.shape, dtype=torch.uint8)
    stripes[:, :, ::2] = 200
    labelled = Batch({"image": stripes}, labelled.target, labelled.valid)
    smooth = Augment(flip=False, scale=(0.25, 0.25))(labelled, 0).inputs["image"]
    rough = Augment(flip=False, scale=(0.25, 0.25), scale_rule="opencv")(labelled, 0).inputs["image"]
    expected = functional.interpolate(stripes[None].float(), scale_factor=0.25, mode="bilinear")[0].round()
    assert torch.equal(rough.float(), expected)
    assert int(smooth[:, :, 2:-2].float().sub(100).abs().max()) <= 13  # what is finer than a pixel is averaged


@pytest.fixture
def labelled():
    generator = torch.Generator().manual_seed(4)
    image = torch.randint(0, 256, (3, *SIZE), dtype=torch.uint8, generator=generator)
    return Batch({"image": image}, torch.randint(0, 5, SIZE, generator=generator), torch.ones(SIZE, dtype=torch.bool))
