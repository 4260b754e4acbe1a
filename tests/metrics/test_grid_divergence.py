"""KL on a grid against loops in plain Python: both kinds, directions, regions and conventions."""

import math

import pytest
import torch

from epibench.metrics.divergence import divergences

torch.manual_seed(3)
POINTS, DRAWS = 9, 4
INSIDE = torch.tensor([False, True, True, False, True, False, False, True, False])
GAUSSIAN = (
    {"mean": torch.randn(POINTS).double(), "variance": torch.rand(POINTS).double() + 0.1},
    {"mean": torch.randn(DRAWS, POINTS).double(), "variance": torch.rand(DRAWS, POINTS).double() + 0.1},
)
CATEGORICAL = (
    {"probs": torch.softmax(torch.randn(POINTS, 2).double(), 1)},
    {"probs": torch.softmax(torch.randn(DRAWS, POINTS, 2).double(), 2)},
)


def gaussian_kl(p, q, draw: int | None, other: int | None, points) -> float:
    total = 0.0
    for i in points:
        (m, v), (n, w) = (
            (float(x["mean"][i]), float(x["variance"][i]))
            if number is None
            else (float(x["mean"][number, i]), float(x["variance"][number, i]))
            for x, number in ((p, draw), (q, other))
        )
        total += 0.5 * math.log(w / v) + (v + (m - n) ** 2) / (2 * w) - 0.5
    return total / len(points)


def row(x, number):
    return x["probs"] if number is None else x["probs"][number]


def categorical_kl(p, q, draw, other, points) -> float:
    first, second = row(p, draw).tolist(), row(q, other).tolist()
    return sum(a * math.log(a / b) for i in points for a, b in zip(first[i], second[i], strict=True)) / len(points)


def map_kl(p, q, draw, other, points) -> float:
    first, second = ([row(x, number)[i, 0].item() for i in points] for x, number in ((p, draw), (q, other)))
    total, other_total = sum(first), sum(second)
    return sum(a / total * math.log(a / total / (b / other_total)) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("sides", "convention", "brute_force"),
    [
        (GAUSSIAN, "pooled", gaussian_kl),
        (GAUSSIAN, "gustafsson2020", gaussian_kl),
        (CATEGORICAL, "pooled", categorical_kl),
        (CATEGORICAL, "gustafsson2020", map_kl),
    ],
)
@pytest.mark.parametrize("region", ["grid", "train"])
def test_divergences_equal_brute_force(sides, convention, brute_force, region) -> None:
    reference, predicted = sides
    points = range(POINTS) if region == "grid" else [i for i in range(POINTS) if INSIDE[i]]
    found = divergences(reference, predicted, INSIDE, convention)
    for draw in range(DRAWS):
        there = brute_force(reference, predicted, None, draw, points)
        back = brute_force(predicted, reference, draw, None, points)
        assert found["reference_to_method"][region][draw].item() == pytest.approx(there, rel=1e-10)
        assert found["method_to_reference"][region][draw].item() == pytest.approx(back, rel=1e-10)


def test_the_published_map_does_not_see_a_common_factor() -> None:
    reference = CATEGORICAL[0]
    halved = torch.stack((reference["probs"][:, 0] / 2, 1 - reference["probs"][:, 0] / 2), 1)
    predicted = {"probs": halved[None]}
    assert divergences(reference, predicted, INSIDE, "gustafsson2020")["reference_to_method"]["grid"].item() < 1e-12
    assert divergences(reference, predicted, INSIDE, "pooled")["reference_to_method"]["grid"].item() > 0.01
