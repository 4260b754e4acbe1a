"""What members predict on coarse grids and windows is what interpolating whole images gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from epibench.members.maps import GroupedMaps, WindowMaps, joined, upsampled_rows, whole, windows_over

Size = tuple[int, int]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def interpolated(coarse: Tensor, size: Size, align_corners: bool = True) -> Tensor:
    flat = coarse.flatten(0, -3)[:, None].double()
    fine = functional.interpolate(flat, size, mode="bilinear", align_corners=align_corners)
    return fine.view(*coarse.shape[:-2], *size)


sides = st.integers(1, 9)


@settings(deadline=None, max_examples=60)
@given(
    coarse=st.tuples(sides, sides),
    factor=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    align_corners=st.booleans(),
    data=st.data(),
)
def test_rows_are_those_of_the_whole_image(
    coarse: Size, factor: Size, align_corners: bool, data: st.DataObject
) -> None:
    size = (coarse[0] * factor[0] + data.draw(st.integers(0, 3)), coarse[1] * factor[1])
    start = data.draw(st.integers(0, size[0] - 1))
    rows = slice(start, data.draw(st.integers(start + 1, size[0])))
    values = random(2, 3, *coarse)
    found = upsampled_rows(values, size, rows, align_corners)
    assert found.shape == (2, 3, rows.stop - rows.start, size[1])
    assert torch.allclose(found.double(), interpolated(values, size, align_corners)[..., rows, :], atol=1e-5)


def test_maps_of_networks_with_other_grids_are_joined_at_the_size_of_the_image() -> None:
    coarse, fine = random(1, 2, 1, 3, 2, 3), random(2, 2, 1, 3, 4, 6, seed=1)
    size = (8, 12)
    parts = [WindowMaps(size, whole(size), {"logits": coarse}, False), WindowMaps(size, whole(size), {"logits": fine})]
    both = joined(parts).rows(1, slice(0, 8))["logits"]
    expected = torch.cat([interpolated(coarse[:, 1, 0], size, False), interpolated(fine[:, 1, 0], size)])
    assert torch.allclose(both.double(), expected.movedim(1, -1), atol=1e-5)


def test_logits_and_probabilities_are_joined_as_probabilities() -> None:
    size = (4, 6)
    logits, probs = random(1, 1, 1, 3, 4, 6), random(1, 1, 1, 3, 4, 6, seed=1).softmax(3)
    parts = [WindowMaps(size, whole(size), {"logits": logits}), WindowMaps(size, whole(size), {"probs": probs})]
    both = joined(parts).rows(0, slice(0, 4))["probs"]
    assert torch.allclose(both[0].float(), logits[0, 0, 0].softmax(0).movedim(0, -1), atol=1e-6)
    assert torch.allclose(both[1].float(), probs[0, 0, 0].movedim(0, -1), atol=1e-6)


def test_probabilities_of_groups_are_those_given_that_a_pixel_is_of_one() -> None:
    probs = torch.tensor([0.1, 0.2, 0.3, 0.4]).view(1, 1, 1, 4, 1, 1)
    nothing = torch.tensor([0.0, 0.0, 0.0, 1.0]).view(1, 1, 1, 4, 1, 1)
    maps = WindowMaps((1, 1), whole((1, 1)), {"probs": torch.cat([probs, nothing])})
    grouped = GroupedMaps(maps, [[0, 1], [2]]).rows(0, slice(0, 1))["probs"]
    assert torch.allclose(grouped[:, 0, 0], torch.tensor([[0.5, 0.5], [0.5, 0.5]]))


def test_what_is_at_full_resolution_stays_as_it_is() -> None:
    values = random(2, 1, 1, 6, 7)
    maps = WindowMaps((6, 7), whole((6, 7)), {"mean": values})
    assert torch.equal(maps.rows(0, slice(2, 5))["mean"], values[:, 0, 0, 2:5])


def test_classes_are_the_last_axis_of_rows_and_pixels() -> None:
    maps = WindowMaps((4, 6), whole((4, 6)), {"logits": random(2, 3, 1, 5, 4, 6)})
    rows = maps.rows(1, slice(1, 3))["logits"]
    assert rows.shape == (2, 2, 6, 5)
    assert maps.num_classes == 5
    kept = torch.tensor([0, 7, 11])
    pixels = maps.pixels(1, slice(1, 3), kept)["logits"]
    assert torch.equal(pixels, rows.flatten(1, 2)[:, kept])
    assert torch.equal(maps.pixels(1, slice(1, 3))["logits"], rows.flatten(1, 2))


@pytest.mark.parametrize("overlap", [0.0, 0.34, 0.5])
def test_windows_cover_every_pixel_and_stay_inside(overlap: float) -> None:
    covered = torch.zeros(11, 17)
    for window in windows_over((11, 17), (4, 6), overlap):
        assert (window.height, window.width) == (4, 6)
        assert window.top + 4 <= 11
        assert window.left + 6 <= 17
        covered[window.top : window.top + 4, window.left : window.left + 6] += 1
    assert covered.min() >= 1


def test_windows_larger_than_the_image_are_the_image() -> None:
    assert windows_over((5, 40), (9, 20), 0.5) == tuple(whole((5, 20))[0]._replace(left=left) for left in (0, 10, 20))
    assert windows_over((5, 8), (9, 9), 0.3) == whole((5, 8))


def test_where_windows_overlap_their_mean_counts() -> None:
    size, windows = (11, 17), windows_over((11, 17), (6, 8), 0.4)
    values = random(2, 1, len(windows), 3, 2, 3)
    total, count = torch.zeros(2, 3, *size, dtype=torch.float64), torch.zeros(size)
    for number, window in enumerate(windows):
        there = (..., slice(window.top, window.top + 6), slice(window.left, window.left + 8))
        total[there] += interpolated(values[:, 0, number], (6, 8))
        count[there] += 1
    maps = WindowMaps(size, windows, {"logits": values})
    for rows in (slice(0, 11), slice(4, 5), slice(3, 9)):
        found = maps.planes(0, rows)["logits"].double()
        assert torch.allclose(found, (total / count)[..., rows, :], atol=1e-5)


def test_probabilities_of_a_group_are_added_and_those_of_no_group_left_out() -> None:
    maps = WindowMaps((4, 4), whole((4, 4)), {"logits": random(3, 1, 1, 5, 2, 2)})
    grouped = GroupedMaps(maps, ((0, 2), (4,)))
    probs = torch.softmax(maps.rows(0, slice(0, 4))["logits"].double(), -1)
    expected = torch.stack((probs[..., 0] + probs[..., 2], probs[..., 4]), -1)
    found = torch.softmax(grouped.rows(0, slice(0, 4))["logits"].double(), -1)
    assert torch.allclose(found, expected / expected.sum(-1, keepdim=True), atol=1e-6)


def test_joined_maps_have_the_members_of_all() -> None:
    parts = [WindowMaps((4, 6), whole((4, 6)), {"mean": random(number, 1, 1, 2, 3, seed=number)}) for number in (1, 2)]
    found = joined(parts).rows(0, slice(0, 4))["mean"]
    alone = [part.rows(0, slice(0, 4))["mean"] for part in parts]
    assert torch.equal(found, torch.cat(alone))
    members = joined(parts).rows(0, slice(0, 4), slice(1, 3))["mean"]
    assert torch.equal(members, alone[1])
