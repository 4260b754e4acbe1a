import io
import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from epibench.data.batch import Batch
from epibench.evaluation import pictures
from epibench.members.maps import Maps
from epibench.picture_files import PictureFile
from epibench.plans import centres
from epibench.results import Grid, Picture, PredictedPicture
from epibench.runs.observers import Gallery

MEMBERS, IMAGES, CLASSES, SIZE = 5, 3, 4, (10, 14)


class Outputs(Maps):
    """Outputs of some members for some images, (member, image, height, width[, class])."""

    def __init__(self, outputs: Mapping[str, Tensor]) -> None:
        self.outputs = outputs

    def planes(self, place: int, rows: slice, members: slice = slice(None)) -> dict[str, Tensor]:
        found = {name: values[members, place, rows] for name, values in self.outputs.items()}
        return {name: values.movedim(3, 1) if values.dim() == 4 else values for name, values in found.items()}


@pytest.fixture
def scene() -> tuple[Batch, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    target = torch.randint(0, CLASSES, (IMAGES, *SIZE), generator=generator)
    image = torch.randint(0, 256, (IMAGES, 3, *SIZE), generator=generator, dtype=torch.uint8)
    valid = torch.rand((IMAGES, *SIZE), generator=generator) < 0.7
    logits = 3 * torch.randn((MEMBERS, IMAGES, *SIZE, CLASSES), generator=generator)
    return Batch({"image": image}, target, valid), {"logits": logits}


@pytest.fixture
def depth_scene() -> tuple[Batch, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    depth = 40 * torch.rand((IMAGES, *SIZE), generator=generator)
    image = torch.zeros((IMAGES, 3, *SIZE), dtype=torch.uint8)
    outputs = {name: 10 * torch.rand((MEMBERS, IMAGES, *SIZE), generator=generator) for name in ("mean", "variance")}
    return Batch({"image": image, "sparse_depth": depth[:, None]}, depth, depth > 20), outputs


def decoded(file: PictureFile) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file.read())))


def numbers(grid: Grid) -> np.ndarray:
    return decoded(grid.png) * grid.scale


def pictures_of(gallery: Gallery) -> dict[int, tuple[Picture, PredictedPicture]]:
    """What is known of each image, and what the draw predicts for it, by the number of the image."""
    return {picture.image: (picture, predicted) for picture, predicted in gallery.pictures()}


def show(
    gallery: Gallery, scene: tuple[Batch, dict[str, Tensor]], groups: tuple[int, ...], images: range = range(IMAGES)
) -> None:
    """All members in groups that begin at some of them, each on all images."""
    batch, outputs = scene
    place = slice(images.start, images.stop)
    shown = Batch({name: one[place] for name, one in batch.inputs.items()}, batch.target[place], batch.valid[place])
    for start, stop in zip(groups, (*groups[1:], MEMBERS), strict=True):
        maps = Outputs({name: values[start:stop, place] for name, values in outputs.items()})
        gallery.see(shown, images, slice(start, stop), maps)


def test_classes_and_entropy_are_those_of_the_averaged_probabilities(scene: tuple[Batch, dict[str, Tensor]]) -> None:
    gallery = Gallery((0, 2), (4, 1, 2), "categorical")
    show(gallery, scene, (0, 2, 3))
    probs = torch.softmax(scene[1]["logits"].double(), -1)[[1, 2, 4]].mean(0)
    entropy = -(probs * probs.log()).sum(-1)
    pictures = pictures_of(gallery)
    assert list(pictures) == [0, 2]
    for image, (picture, drawn) in pictures.items():
        assert (decoded(drawn.predicted) == probs[image].argmax(-1).numpy()).all()
        assert np.abs(numbers(drawn.uncertainty) - entropy[image].numpy()).max() <= 1 / 512
        assert drawn.uncertainty.scale * 65535 >= math.log(CLASSES)
        assert (picture.image, picture.height, picture.width, drawn.M) == (image, *SIZE, 3)


def test_what_is_not_labelled_is_255(scene: tuple[Batch, dict[str, Tensor]]) -> None:
    gallery = Gallery((1,), (0,), "categorical")
    show(gallery, scene, (0,))
    batch = scene[0]
    expected = torch.where(batch.valid, batch.target, 255)[1].numpy()
    found = decoded(pictures_of(gallery)[1][0].target)
    assert found.dtype == np.uint8
    assert (found == expected).all()


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
def test_pictures_do_not_depend_on_groups_or_a_resume(
    kind: str,
    scene: tuple[Batch, dict[str, Tensor]],
    depth_scene: tuple[Batch, dict[str, Tensor]],
) -> None:
    shown = scene if kind == "categorical" else depth_scene
    whole = Gallery((0, 1, 2), (0, 1, 3, 4), kind)
    show(whole, shown, (0,))
    first, second = (Gallery((0, 1, 2), (0, 1, 3, 4), kind) for _ in range(2))
    show(first, shown, (0, 2, 4), range(2))
    second.load_state(first.state())
    show(first, shown, (0,), range(2, 3))  # what goes on elsewhere is not seen by the other
    show(second, shown, (0, 1, 4), range(2, 3))
    assert second.pictures() == whole.pictures()
    assert len(whole.pictures()) == IMAGES


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
def test_a_state_in_the_middle_of_the_members_goes_on(
    kind: str, scene: tuple[Batch, dict[str, Tensor]], depth_scene: tuple[Batch, dict[str, Tensor]]
) -> None:
    batch, outputs = shown = scene if kind == "categorical" else depth_scene
    whole, begun, rest = (Gallery((0,), (0, 3), kind) for _ in range(3))
    show(whole, shown, (0,))
    parts = [(slice(a, b), Outputs({name: one[a:b] for name, one in outputs.items()})) for a, b in ((0, 2), (2, 5))]
    begun.see(batch, range(IMAGES), *parts[0])
    assert begun.pictures() == []
    rest.load_state(begun.state())
    rest.see(batch, range(IMAGES), *parts[1])
    assert rest.pictures() == whole.pictures()


def test_wide_pictures_are_thinned_at_the_same_pixels(
    scene: tuple[Batch, dict[str, Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "MAX_WIDTH", 5)
    gallery = Gallery((0,), (2,), "categorical")
    show(gallery, scene, (0,))
    picture, drawn = pictures_of(gallery)[0]
    batch, outputs = scene
    assert (picture.height, picture.width) == (4, 5)
    assert decoded(picture.photo).shape == (4, 5, 3)
    assert (decoded(drawn.predicted) == outputs["logits"][2, 0, ::3, ::3].argmax(-1).numpy()).all()
    assert (decoded(picture.target) == torch.where(batch.valid, batch.target, 255)[0, ::3, ::3].numpy()).all()


def test_depth_has_the_moments_of_the_draw(depth_scene: tuple[Batch, dict[str, Tensor]]) -> None:
    gallery = Gallery((1,), (0, 3))
    show(gallery, depth_scene, (0, 2))
    picture, drawn = pictures_of(gallery)[1]
    mean, variance = (depth_scene[1][name][[0, 3], 1].double() for name in ("mean", "variance"))
    std = (variance.mean(0) + mean.var(0, unbiased=False)).sqrt()
    assert np.abs(numbers(drawn.mean) - mean.mean(0).numpy()).max() <= 1 / 128
    assert np.abs(numbers(drawn.std) - std.numpy()).max() <= 1 / 128
    assert ((numbers(picture.target) > 0) == depth_scene[0].valid[1].numpy()).all()
    assert (numbers(picture.sparse_depth) > 0).mean() > 0.9


def test_the_state_of_classes_does_not_grow_with_members(scene: tuple[Batch, dict[str, Tensor]]) -> None:
    few, many = Gallery((0,), (0,), "categorical"), Gallery((0,), range(MEMBERS), "categorical")
    for gallery in (few, many):
        show(gallery, scene, (0, 2))
    sizes = [{name: tuple(one.shape) for name, one in gallery.state().items()} for gallery in (few, many)]
    assert sizes[0] == sizes[1]


def test_images_without_a_drawn_member_have_no_picture(scene: tuple[Batch, dict[str, Tensor]]) -> None:
    gallery = Gallery((0, 7), (0,), "categorical")
    show(gallery, scene, (0,))
    assert list(pictures_of(gallery)) == [0]


@pytest.mark.parametrize(("number", "total", "found"), [(2, 10, [2, 7]), (4, 2, [0, 1]), (0, 5, []), (1, 1, [0])])
def test_pictures_are_spread_evenly(number: int, total: int, found: list[int]) -> None:
    assert list(centres(total, number)) == found


def test_a_ranking_has_no_pictures(depth_scene: tuple[Batch, dict[str, Tensor]]) -> None:
    gallery = Gallery((0, 2), (0, 1), "ranking")
    show(gallery, depth_scene, (0, 2))
    assert gallery.pictures() == []
