"""Logits that are stored on the network's own coarse grid score as those at full resolution do."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import epibench
from epibench.errors import InputError
from epibench.members.stored import validate
from epibench.store import StoreWriter, open_store, write_store
from stored_pixels import refined_array, stored_pixels, upsampled_logits

MEMBERS, IMAGES, CLASSES, SIZE, GRID = 3, 4, 5, (37, 50), (5, 7)


def scene(seed=0):
    generator = torch.Generator().manual_seed(seed)
    coarse = 4 * torch.randn((MEMBERS, IMAGES, CLASSES, *GRID), generator=generator)
    target = torch.randint(0, CLASSES, (IMAGES, *SIZE), generator=generator)
    target[:, :2] = 255
    return coarse, target


def by_torch(coarse, size, align_corners):
    """What PyTorch makes of it, (member, image, row, column, class)."""
    flat = functional.interpolate(coarse.flatten(0, 1), size, mode="bilinear", align_corners=align_corners)
    return flat.view(*coarse.shape[:3], *size).movedim(2, -1)


def fine(coarse, size, align_corners):
    """What a run writes at full resolution; PyTorch's differs by its rounding, which turns some ties round."""
    return upsampled_logits(coarse, size, align_corners)


def scored(path):
    return epibench.score(path, device="cpu").scores[0]


@pytest.mark.parametrize("align_corners", [True, False])
def test_scores_equal_those_of_the_full_resolution(tmp_path, align_corners):
    coarse, target = scene()
    own = coarse.movedim(2, -1)
    write_store(tmp_path / "coarse", kind="categorical", logits=own, target=target, align_corners=align_corners)
    write_store(tmp_path / "fine", kind="categorical", logits=fine(coarse, SIZE, align_corners), target=target)
    first, second = scored(tmp_path / "coarse"), scored(tmp_path / "fine")
    assert first.pixels == second.pixels
    for one, other in zip(first.draws, second.draws, strict=True):
        for name, value in other.metrics.items():
            assert one.metrics[name] == pytest.approx(value, rel=1e-6, abs=1e-6), name


@pytest.mark.parametrize("align_corners", [True, False])
def test_scores_are_those_of_pytorchs_interpolation(tmp_path, align_corners):
    coarse, target = scene()
    own = coarse.movedim(2, -1)
    write_store(tmp_path / "coarse", kind="categorical", logits=own, target=target, align_corners=align_corners)
    write_store(tmp_path / "fine", kind="categorical", logits=by_torch(coarse, SIZE, align_corners), target=target)
    first, second = (scored(tmp_path / name).summary[MEMBERS] for name in ("coarse", "fine"))
    assert {name: first[name].mean for name in ("brier", "nll", "ece", "miou")} == pytest.approx(
        {name: second[name].mean for name in ("brier", "nll", "ece", "miou")}, rel=1e-6
    )
    assert first["ause"].mean == pytest.approx(second["ause"].mean, rel=1e-4)  # ties


def test_corners_make_a_difference(tmp_path):
    coarse, target = scene()
    for align_corners in (True, False):
        path, own = tmp_path / str(align_corners), coarse.movedim(2, -1)
        write_store(path, kind="categorical", logits=own, target=target, align_corners=align_corners)
    first, second = (scored(tmp_path / name).summary[MEMBERS]["brier"].mean for name in ("True", "False"))
    assert abs(first - second) > 1e-3


@pytest.mark.parametrize("budget", [1, 3000, 40_000, 10**9])
def test_bands_of_any_height_give_the_same_pixels(tmp_path, budget):
    coarse, target = scene()
    own = coarse.movedim(2, -1)
    write_store(tmp_path / "coarse", kind="categorical", logits=own, target=target, align_corners=False)
    predictions = stored_pixels(open_store(tmp_path / "coarse"), budget)
    blocks = [block.outputs["logits"] for block in predictions]
    expected = by_torch(coarse, SIZE, False)[:, target != 255]
    assert torch.allclose(torch.cat(blocks, 1), expected, atol=1e-5)


def test_a_loop_writes_grids_of_images_of_different_size(tmp_path):
    coarse, target = scene()
    sizes = [(37, 50), (20, 50), (37, 31), (11, 9)]
    grids = [(5, 7), (3, 7), (5, 4), (2, 2)]
    common = {"kind": "categorical", "size": SIZE, "num_members": MEMBERS, "num_images": IMAGES}
    with (
        StoreWriter(tmp_path / "coarse", align_corners=False, coarse_size=GRID, **common) as small,
        StoreWriter(tmp_path / "fine", **common) as large,
    ):
        for image, (size, grid) in enumerate(zip(sizes, grids, strict=True)):
            for member in reversed(range(MEMBERS)):
                own = coarse[member : member + 1, image : image + 1, :, : grid[0], : grid[1]]
                small.write(member, image, logits=own[0, 0].movedim(0, -1))
                large.write(member, image, logits=fine(own, size, False)[0, 0])
            for store in (small, large):
                store.write_target(image, target[image, : size[0], : size[1]])
    first, second = scored(tmp_path / "coarse"), scored(tmp_path / "fine")
    assert first.pixels == second.pixels
    for name, stat in second.summary[MEMBERS].items():
        assert first.summary[MEMBERS][name].mean == pytest.approx(stat.mean, rel=1e-6, abs=1e-6, nan_ok=True), name


def test_writing_goes_on_in_a_coarse_store(tmp_path):
    coarse, target = scene()
    common = {"kind": "categorical", "size": SIZE, "num_members": MEMBERS, "num_images": IMAGES, "resume": True}
    for image in range(IMAGES):
        with StoreWriter(tmp_path / "coarse", align_corners=True, **common) as store:
            store.write_target(image, target[image])
            for member in range(MEMBERS):
                store.write(member, image, logits=coarse[member, image].movedim(0, -1))
    write_store(tmp_path / "whole", kind="categorical", logits=fine(coarse, SIZE, True), target=target)
    first, second = (scored(tmp_path / name).summary[MEMBERS]["nll"].mean for name in ("coarse", "whole"))
    assert first == pytest.approx(second, rel=1e-6)
    with pytest.raises(InputError, match="align_corners is True in the store, False here"):
        StoreWriter(tmp_path / "coarse", align_corners=False, **common).write_target(0, target[0])


def test_half_precision_is_interpolated_in_single(tmp_path):
    coarse, target = scene()
    half = coarse.half()
    own = half.movedim(2, -1).numpy()
    write_store(tmp_path / "coarse", kind="categorical", logits=own, target=target, align_corners=True)
    read = refined_array(open_store(tmp_path / "coarse"), "logits")
    assert read.dtype == np.float32
    expected = by_torch(half.float(), SIZE, True)[1:2, 2:3, 3:9]
    selection = (slice(1, 2), slice(2, 3), slice(3, 9), slice(0, SIZE[1]), slice(0, CLASSES))
    np.testing.assert_allclose(read.read(selection), expected, atol=1e-5)


def test_an_npz_may_be_coarse(tmp_path):
    coarse, target = scene()
    own = coarse.movedim(2, -1).numpy()
    np.savez(tmp_path / "a.npz", logits=own, target=target.numpy(), align_corners=np.array(False))
    assert validate(open_store(tmp_path / "a.npz")).valid == int((target != 255).sum())


def test_what_was_never_written_is_found(tmp_path):
    coarse, target = scene()
    sizes = {"num_members": 2, "num_images": 2}
    with StoreWriter(tmp_path / "coarse", kind="categorical", align_corners=True, **sizes) as store:
        for image in range(2):
            store.write_target(image, target[image])
            for member in range(2 - image):
                store.write(member, image, logits=coarse[member, image].movedim(0, -1))
    with pytest.raises(InputError, match=r"member 1, image 1.*never written"):
        open_store(tmp_path / "coarse")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"align_corners": None}, "on a coarse grid"),
        ({"target": np.zeros((3, *SIZE), int)}, "with 'align_corners' they are"),
    ],
)
def test_grids_that_do_not_fit_are_refused(tmp_path, change, complaint):
    coarse, target = scene()
    arrays = {"logits": coarse.movedim(2, -1), "target": target, "align_corners": True, **change}
    with pytest.raises(InputError, match=complaint):
        write_store(tmp_path / "a.zarr", kind="categorical", **arrays)


def test_only_logits_can_be_coarse(tmp_path):
    one = {"align_corners": True, "num_members": 1, "num_images": 1}
    with pytest.raises(InputError, match="align_corners is for logits"):
        StoreWriter(tmp_path / "a.zarr", kind="gaussian", **one)
    store = StoreWriter(tmp_path / "a.zarr", kind="categorical", **one)
    with pytest.raises(InputError, match="holds logits; got probs"):
        store.write(0, 0, probs=np.full((2, 2, 2), 0.5))
    with pytest.raises(InputError, match=r"on a grid \(9, 9\), more than \(5, 7\)"):
        StoreWriter(tmp_path / "b.zarr", kind="categorical", coarse_size=GRID, **one).write(
            0, 0, logits=np.zeros((9, 9, 2))
        )
