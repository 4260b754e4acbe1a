"""Views of images: what they are called, what networks see, and how it is mapped back onto the image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from small_dense_recipe import small_dense
from small_segmentation_recipe import small_segmentation
from torch import Tensor, nn

from epibench.data.augment import Augment
from epibench.data.batch import Batch
from epibench.errors import InputError
from epibench.members.networks import NetworkPool
from epibench.members.views import mapped_back, seen
from small_pools import method_of, network_pool

SIZE = (24, 40)


def views_of(*names: str) -> tuple[Any, ...]:
    """The views of a method, the image as it is first."""
    return method_of("tta", views=names).member_views


@pytest.mark.parametrize(
    ("names", "views"),
    [
        ([], ["identity"]),
        (["identity"], ["identity"]),
        (["flip"], ["identity", "flip"]),
        (["flip scale 1.5", "scale 0.5", "identity"], ["identity", "flip scale 1.5", "scale 0.5"]),
        (["scale"], ["identity", "scale 0.75", "scale 1.25"]),
        (
            ["flip", "scale"],
            ["identity", "flip", "scale 0.75", "flip scale 0.75", "scale 1.25", "flip scale 1.25"],
        ),
    ],
)
def test_views_are_named(names: list[str], views: list[str]) -> None:
    parsed = views_of(*names)
    assert [str(view) for view in parsed] == views
    assert views_of(*views) == parsed


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["rotate"], "view 'rotate' is unknown"),
        ([""], "view '' is unknown"),
        (["scale -1"], "view 'scale -1' is unknown"),
        (["scale 9"], "from 0.1 to 4"),
        (["flip", "flip"], "'flip' is given twice"),
        (["scale", "flip scale 1.5"], "'flip scale 1.5' beside scale"),
    ],
)
def test_what_is_no_view_is_refused(names: list[str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        views_of(*names)


class Pixels(nn.Module):
    """Mean and log variance of every pixel from that pixel alone, or from a window that is not symmetric."""

    align_corners = False

    def __init__(self, symmetric: bool = True, stride: int = 1):
        super().__init__()
        self.symmetric, self.stride = symmetric, stride

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        image = inputs["image"].float()
        image = image if self.symmetric else image - 0.5 * image.roll(1, -1)
        if self.stride > 1:
            image = nn.functional.avg_pool2d(image, self.stride)
        return torch.cat((image[:, :1], image[:, 1:2] / 100), 1)


def make_pool(*views: str, network: nn.Module | None = None, kind: str = "gaussian", **options: Any) -> NetworkPool:
    network = network or Pixels()
    return network_pool(
        method_of("tta", num_networks=1, views=views), lambda: network, lambda member: {}, kind, **options
    )


def planes(pool: NetworkPool, image: Tensor) -> Tensor:
    """What all members predict, (member, row, column)."""
    maps = pool.outputs({"image": image}, slice(0, pool.num_members), range(len(image)))
    return next(iter(maps.planes(0, slice(0, image.shape[-2])).values()))


@pytest.fixture
def image() -> Tensor:
    return torch.randint(0, 256, (1, 3, *SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_image_itself_gives_the_network_bit_for_bit(image: Tensor, symmetric: bool) -> None:
    network = Pixels(symmetric)
    assert torch.equal(planes(make_pool("identity", network=network), image)[0], network({"image": image})[0, 0])
    assert torch.equal(planes(make_pool("flip", network=network), image)[0], network({"image": image})[0, 0])


@pytest.mark.parametrize("options", [{}, {"window": (16, 16), "overlap": 0.25}, {"precision": torch.bfloat16}])
def test_a_network_that_sees_single_pixels_sees_the_same_in_a_mirror(image: Tensor, options: dict[str, Any]) -> None:
    own, mirrored = planes(make_pool("flip", **options), image)
    assert torch.equal(own, mirrored)


def test_a_network_that_is_not_symmetric_sees_something_else_which_is_mapped_back(image: Tensor) -> None:
    network = Pixels(symmetric=False)
    own, mirrored = planes(make_pool("flip", network=network), image)
    assert not torch.equal(own, mirrored)
    assert torch.equal(mirrored, network({"image": image.flip(-1)})[0, 0].flip(-1))


def test_a_view_is_the_same_alone_and_among_others(image: Tensor) -> None:
    pool = make_pool("flip", "scale", network=Pixels(symmetric=False, stride=4))
    together = planes(pool, image)
    for number in range(6):
        maps = pool.outputs({"image": image}, slice(number, number + 1), range(1))
        assert torch.equal(maps.planes(0, slice(0, SIZE[0]))["mean"][0], together[number])


@pytest.mark.parametrize("stride", [1, 4])
@pytest.mark.parametrize(("scale", "error"), [("0.5", 1e-4), ("0.75", 0.02), ("1.25", 1e-4), ("2", 1e-4)])
def test_a_ramp_is_mapped_back_onto_itself(scale: str, error: float, stride: int) -> None:
    """Up to the edges, where nothing lies beyond to interpolate with; smoothing with a few weights shifts it a bit."""
    ramp = torch.arange(80.0).expand(1, 3, 48, 80)
    views = ("identity", "flip", f"scale {scale}", f"flip scale {scale}")
    found = planes(make_pool(*views, network=Pixels(stride=stride)), ramp)
    inner = slice(4 * stride, 80 - 4 * stride)
    expected = ramp[0, 0, :, inner].expand(4, -1, -1)
    torch.testing.assert_close(found[..., inner], expected, atol=error, rtol=0)
    if stride == 1:
        assert torch.equal(found[:2], ramp[0, 0].expand(2, -1, -1))


def test_corners_that_are_aligned_are_off_by_less_than_half_a_pixel() -> None:
    ramp, network = torch.arange(80.0).expand(1, 3, 48, 80), Pixels()
    network.align_corners = True
    _, *others = planes(make_pool("identity", "scale 0.75", "scale 1.25", network=network), ramp)
    for other in others:
        assert float((other - ramp[0, 0]).abs().max()) < 0.5


def test_images_are_scaled_as_in_training(image: Tensor) -> None:
    target = torch.zeros(SIZE, dtype=torch.int64)
    sample = Batch({"image": image[0]}, target, target == 0)
    for scale in (0.6, 0.75):
        expected = Augment(flip=False, scale=(scale, scale))(sample, 0).inputs["image"]
        assert torch.equal(seen(views_of(f"scale {scale}")[1], {"image": image})["image"][0], expected)


def test_only_images_have_other_scales(image: Tensor) -> None:
    inputs = {"image": image, "sparse_depth": torch.rand(1, 1, *SIZE)}
    assert seen(views_of()[0], inputs) is inputs
    assert torch.equal(seen(views_of("flip")[1], inputs)["sparse_depth"], inputs["sparse_depth"].flip(-1))
    with pytest.raises(InputError, match="for images alone, and there is 'sparse_depth'"):
        seen(views_of("scale 0.5")[1], inputs)


def test_classes_are_mapped_back_as_logits(image: Tensor) -> None:
    pool = make_pool("flip", kind="categorical")
    assert list(pool.outputs({"image": image}, slice(0, 2), range(1)).values) == ["logits"]
    logits = torch.rand(1, 3, *SIZE)
    assert torch.equal(mapped_back(views_of("flip")[1], {"logits": logits})["logits"], logits.flip(-1))


def test_views_of_a_network_share_its_weights(image: Tensor) -> None:
    loaded = []
    pool = make_pool("flip")
    pool = replace(pool, load=lambda member: loaded.append(member) or {})
    planes(pool, image)
    assert len(loaded) == 1


class TestRecipes:
    def test_depth_has_no_other_scales(self, tmp_path: Any) -> None:
        settings = ['methods=["tta"]', "members=[1]", "tta.num_networks=2"]
        recipe = small_dense(tmp_path, *settings)
        assert recipe.method("tta").views == ("identity", "flip")
        with pytest.raises(InputError, match=r"tta.views: 'scale 0.75' is for classes alone"):
            small_dense(tmp_path, *settings, 'tta.views=["flip", "scale 0.75"]')

    def test_classes_have_and_larger_sets_than_there_are_views_are_left_out(self, tmp_path: Any) -> None:
        settings = ['methods=["tta"]', "members=[1]", "tta.num_networks=2", 'tta.views=["scale", "flip"]']
        recipe = small_segmentation(tmp_path, *settings)
        method = recipe.method("tta")
        assert len(method.views) == method.largest_draw == 6
        assert method.draw_sizes((1, 2, 4, 8)) == (1, 2, 4)
        with pytest.raises(InputError, match=r"M = 8 is impossible: a draw of tta has at most 6 members\. Fix: "):
            small_segmentation(tmp_path, *settings, "members=[8]")

    def test_networks_in_a_form_of_their_own_are_no_start(self, tmp_path: Any) -> None:
        with pytest.raises(InputError, match=r"tta.of: networks of batch_ensemble are trained in a form of their own"):
            small_segmentation(tmp_path, 'methods=["tta"]', "members=[1]", "tta.of=batch_ensemble")
