"""Random colours: a function of the key, off is identity, and each option changes what it says."""

import itertools

import pytest
import torch

from epibench.data.augment import LARGEST_NOISE, UNCHANGED, Colours, blurred, colour_matrix

SIZE = (24, 32)
KEYS = range(200)


@pytest.fixture
def image():
    """Smooth colours of every brightness."""
    rows, columns = torch.linspace(0, 1, SIZE[0])[:, None], torch.linspace(0, 1, SIZE[1])
    red, green, blue = rows + 0 * columns, 0 * rows + columns, rows * columns
    return (255 * torch.stack((red, green, blue))).to(torch.uint8)


def plain(level):
    return torch.full((3, *SIZE), level, dtype=torch.uint8)


def means(image, colours):
    return [float(colours(image, key).float().mean()) for key in KEYS]


def test_nothing_changes_when_all_is_off(image):
    assert UNCHANGED(image, 3) is image


@pytest.mark.parametrize("option", ["strength", "grey", "blur", "noise"])
def test_each_option_alone_changes_the_image(image, option):
    changed = Colours(**{option: 1.0})(image, 3)
    assert changed.dtype == torch.uint8
    assert changed.shape == image.shape
    assert not torch.equal(changed, image)


def test_the_image_itself_is_left_as_it_is(image):
    before = image.clone()
    Colours(1.0, grey=1.0, blur=1.0, noise=1.0)(image, 3)
    assert torch.equal(image, before)


def test_the_same_key_makes_the_same_image(image):
    colours = Colours(1.0, grey=0.5, blur=0.5, noise=0.5)
    assert all(torch.equal(colours(image, key), colours(image, key)) for key in range(20))


def test_the_number_of_threads_makes_no_difference(image):
    large = image.repeat(1, 12, 9)
    colours, threads = Colours(1.0, blur=1.0, noise=1.0), torch.get_num_threads()
    try:
        made = []
        for number in (1, 2):
            torch.set_num_threads(number)
            made.append(colours(large, 3))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*made)


def test_other_keys_make_other_images(image):
    made = [Colours(0.5)(image, key) for key in range(20)]
    assert not any(torch.equal(*pair) for pair in itertools.combinations(made, 2))


@pytest.mark.parametrize(("option", "share"), [("grey", 0.25), ("blur", 0.5), ("noise", 0.75)])
def test_an_option_is_as_likely_as_it_says(image, option, share):
    changed = [not torch.equal(Colours(**{option: share})(image, key), image) for key in KEYS]
    assert sum(changed) / len(KEYS) == pytest.approx(share, abs=0.1)


def test_grey_images_are_grey(image):
    made = Colours(grey=1.0)(image, 3)
    assert torch.equal(made[0], made[1])
    assert torch.equal(made[1], made[2])


def test_stronger_colours_are_further_away(image):
    def distance(strength):
        return sum(float((Colours(strength)(image, key).float() - image).abs().mean()) for key in KEYS)

    assert 0 < distance(0.25) < distance(0.5) < distance(1.0)


def test_images_become_darker_and_brighter(image):
    made, own = means(image, Colours(1.0)), float(image.float().mean())
    assert min(made) < own / 2
    assert max(made) > own * 1.2


def test_few_images_are_lost_in_white_or_black(image):
    """An image of one colour teaches nothing."""
    spread = [float(Colours(1.0)(image, key).float().std()) for key in KEYS]
    assert sum(one < 10 for one in spread) < 0.05 * len(KEYS)


def test_white_stays_within_the_levels():
    made = [Colours(noise=1.0)(plain(255), key) for key in range(20)]
    assert all(int(one.min()) > 100 for one in made)  # numbers beyond 255 would wrap around to black


def test_neutral_colours_are_the_identity():
    assert torch.allclose(colour_matrix(1.0, 0.0, 1.0), torch.eye(3), atol=1e-6)


@pytest.mark.parametrize("hue", [-1.0, 0.5])
@pytest.mark.parametrize("saturation", [0.0, 0.5, 2.0])
def test_saturation_and_hue_keep_grey_and_luminance(saturation, hue):
    matrix, luminance = colour_matrix(saturation, hue, 1.0), torch.tensor([0.299, 0.587, 0.114])
    assert torch.allclose(matrix.sum(1), torch.ones(3), atol=1e-3)
    assert torch.allclose(luminance @ matrix, luminance, atol=1e-3)


def test_a_warmer_light_is_redder_and_less_blue():
    red, green, blue = (colour_matrix(1.0, 0.0, 1.25) @ torch.ones(3)).tolist()
    assert (red, green, blue) == pytest.approx((1.25, 1.0, 0.8), abs=1e-3)


@pytest.mark.parametrize("deviation", [0.5, 1.0, 2.0])
def test_a_blurred_point_has_the_deviation(deviation):
    point = torch.zeros(3, 41, 41)
    point[:, 20, 20] = 1
    spread = blurred(point, deviation)[0]
    places = torch.arange(41.0) - 20
    assert float(spread.sum()) == pytest.approx(1, abs=1e-5)
    for axis in (0, 1):
        assert float((spread.sum(axis) * places**2).sum()) ** 0.5 == pytest.approx(deviation, rel=0.1)


def test_blur_keeps_plain_images_up_to_their_edges():
    assert torch.allclose(blurred(plain(90).float(), 1.7), torch.full((3, *SIZE), 90.0), atol=1e-3)


def test_hardly_any_blur_is_none(image):
    assert torch.allclose(blurred(image.float(), 1e-3), image.float())


def test_no_blur_is_none(image):
    values = image.float()
    assert blurred(values, 0.0) is values


def test_noise_is_as_strong_as_it_may_be():
    spread = [float(Colours(noise=1.0)(plain(128), key).float().std()) for key in KEYS]
    assert min(spread) < 2
    assert 0.9 * LARGEST_NOISE < max(spread) < 1.1 * LARGEST_NOISE
