"""Pictures of predictions, kept while members pass over the images of a domain."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fault_injection import killed_at
from safetensors.torch import load_file

import epibench
from decoded_pictures import decoded, numbers

MEMBERS, IMAGES, CLASSES, SIZE = 5, 3, 4, (10, 14)
Data = list[tuple[torch.Tensor, ...]]


def scene(kind: str, size: tuple[int, int] = SIZE, images: int = IMAGES) -> tuple[Data, torch.Tensor]:
    """Return images with targets, and outputs of all members for them, (member, image, output, height, width)."""
    generator = torch.Generator().manual_seed(3)
    image = torch.rand((images, 3, *size), generator=generator)
    image[:, 0, 0, 0] = torch.arange(images)  # models find their outputs by it
    valid = torch.rand((images, *size), generator=generator) < 0.7
    if kind == "categorical":
        target = torch.randint(0, CLASSES, (images, *size), generator=generator)
        outputs = 3 * torch.randn((MEMBERS, images, CLASSES, *size), generator=generator)
    else:
        target = 40 * torch.rand((images, *size), generator=generator)
        outputs = 0.1 + 10 * torch.rand((MEMBERS, images, 2, *size), generator=generator)
    return list(zip(image, target, valid, strict=True)), outputs


def evaluated(kind: str, data: Data, outputs: torch.Tensor, **options: Any) -> epibench.results.Results:
    def model(member: int) -> Any:
        return lambda image: outputs[member, image[:, 0, 0, 0].round().long()]

    known = {"task": "segmentation"} if kind == "categorical" else {"model_format": {"spread": "variance"}}
    models = [model(member) for member in range(len(outputs))]
    return epibench.evaluate(models, {"val": data}, device="cpu", **{**known, **options})


def shown(results: epibench.results.Results) -> tuple[list[Any], list[Any], list[int]]:
    """Return pictures of images, predictions for them, and the members of the draw that predicts."""
    (score,) = results.scores
    return results.domains["val"].pictures, score.pictures, score.draws[0].members


def test_classes_and_entropy_are_those_of_the_averaged_probabilities() -> None:
    data, outputs = scene("categorical")
    images, predicted, members = shown(evaluated("categorical", data, outputs, members=[3], pictures=2))
    probs = torch.softmax(outputs.double(), 2)[members].mean(0)
    entropy = -(probs * probs.log()).sum(1)
    assert [picture.image for picture in images] == [drawn.image for drawn in predicted] == [0, 2]
    for picture, drawn in zip(images, predicted, strict=True):
        assert (decoded(drawn.predicted) == probs[drawn.image].argmax(0).numpy()).all()
        assert np.abs(numbers(drawn.uncertainty) - entropy[drawn.image].numpy()).max() <= 1 / 512
        assert drawn.uncertainty.scale * 65535 >= math.log(CLASSES)
        assert (picture.height, picture.width, drawn.M) == (*SIZE, 3)


def test_unlabelled_pixels_are_255() -> None:
    data, outputs = scene("categorical")
    (picture,), _, _ = shown(evaluated("categorical", data, outputs, pictures=1))
    _, target, valid = data[picture.image]
    found = decoded(picture.target)
    assert found.dtype == np.uint8
    assert (found == torch.where(valid, target, 255).numpy()).all()


def test_numbers_have_the_moments_of_the_draw() -> None:
    data, outputs = scene("gaussian")
    images, predicted, members = shown(evaluated("gaussian", data, outputs, members=[2], pictures=IMAGES))
    mean, variance = outputs[members].double().unbind(2)
    std = (variance.mean(0) + mean.var(0, unbiased=False)).sqrt()
    assert [drawn.image for drawn in predicted] == list(range(IMAGES))
    for picture, drawn in zip(images, predicted, strict=True):
        for grid, expected in ((drawn.mean, mean.mean(0)), (drawn.std, std)):
            assert np.abs(numbers(grid) - expected[drawn.image].numpy()).max() <= grid.scale
        _, target, valid = data[drawn.image]
        assert ((decoded(picture.target.png) > 0) == valid.numpy()).all()
        assert np.abs(numbers(picture.target) - target.numpy())[valid.numpy()].max() <= picture.target.scale


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
def test_pictures_do_not_depend_on_batches(kind: str) -> None:
    data, outputs = scene(kind)
    whole, *others = (
        shown(evaluated(kind, data, outputs, members=[4], pictures=IMAGES, batch_size=size)) for size in (1, 2, 3)
    )
    assert len(whole[1]) == IMAGES
    assert others == [whole, whole]


def test_wide_pictures_are_thinned_at_the_same_pixels() -> None:
    data, outputs = scene("categorical", (10, 1200), 1)
    (picture,), (drawn,), (member,) = shown(evaluated("categorical", data, outputs, members=[1], pictures=1))
    assert (picture.height, picture.width) == (4, 400)
    assert decoded(picture.photo).shape == (4, 400, 3)
    assert (decoded(drawn.predicted) == outputs[member, 0, :, ::3, ::3].argmax(0).numpy()).all()
    _, target, valid = data[0]
    assert (decoded(picture.target) == torch.where(valid, target, 255)[::3, ::3].numpy()).all()


@pytest.mark.usefixtures("eager")
def test_the_saved_state_of_classes_does_not_grow_with_members(tmp_path: Path) -> None:
    data, outputs = scene("categorical")
    shapes = []
    for count in (2, MEMBERS):
        out = tmp_path / str(count)
        with killed_at(".unfinished.safetensors"):
            evaluated("categorical", data, outputs[:count], members=[count], pictures=2, batch_size=1, out=out)
        (state,) = out.rglob("*.unfinished.safetensors")
        shapes.append({name: each.shape for name, each in load_file(state).items()})
    assert shapes[0] == shapes[1]
    assert SIZE in {shape[:2] for shape in shapes[0].values()}  # a picture is among them


@pytest.mark.parametrize(("number", "total", "found"), [(2, 10, [2, 7]), (4, 2, [0, 1]), (0, 5, []), (1, 1, [0])])
def test_pictures_are_spread_evenly(number: int, total: int, found: list[int]) -> None:
    data, outputs = scene("categorical", images=total)
    images, predicted, _ = shown(evaluated("categorical", data, outputs[:1], pictures=number))
    assert [picture.image for picture in images] == [drawn.image for drawn in predicted] == found


def test_a_ranking_has_no_pictures() -> None:
    data, outputs = scene("gaussian")
    results = evaluated("gaussian", data, outputs, pictures=2, model_format={"spread": "confidence"})
    assert {score.kind for score in results.scores} == {"ranking"}
    assert all(score.pictures == [] for score in results.scores)
