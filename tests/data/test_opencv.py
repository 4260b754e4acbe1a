"""Published scaling against a transcription of OpenCV's rules in NumPy, which equals OpenCV 3.4.18, 4.14 and 5.0."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from epibench.data.augment import Augment, rescaled
from epibench.data.batch import Batch
from epibench.data.batched import Cut, finish, joined
from epibench.data.images import resized

FACTORS = [0.5 + step / 10.0 for step in range(17)]  # as the authors compute them
LABELS = (1024, 2048)


def nearest(labels: np.ndarray, height: int, width: int, down: float, across: float) -> np.ndarray:
    """`cv2.resize` with INTER_NEAREST: cvFloor(x · (1 / factor)), at most the last pixel."""
    rows, columns = (
        np.minimum(np.floor(np.arange(wanted) * (1.0 / factor)).astype(np.int64), length - 1)
        for wanted, factor, length in ((height, down, labels.shape[0]), (width, across, labels.shape[1]))
    )
    return labels[rows][:, columns]


def coefficients(length: int, wanted: int, factor: float) -> tuple[np.ndarray, ...]:
    """Both source pixels, and their shares in 2048ths (INTER_RESIZE_COEF_BITS = 11)."""
    position = ((np.arange(wanted) + 0.5) * (1.0 / factor) - 0.5).astype(np.float32)
    first = np.floor(position).astype(np.int64)
    behind = position - first.astype(np.float32)
    shares = [np.rint(share * np.float32(2048)).astype(np.int32) for share in (np.float32(1) - behind, behind)]
    return np.clip(first, 0, length - 1), np.clip(first + 1, 0, length - 1), *shares


def bilinear(image: np.ndarray, factor: float) -> np.ndarray:
    """`cv2.resize` with INTER_LINEAR of (height, width, channel) uint8."""
    height, width = image.shape[:2]
    left, right, left_share, right_share = coefficients(width, round(factor * width), factor)
    levels = image.astype(np.int32)
    across = levels[:, left] * left_share[:, None] + levels[:, right] * right_share[:, None]
    upper, lower, upper_share, lower_share = coefficients(height, round(factor * height), factor)
    parts = [
        (share[:, None, None] * (across[row] >> 4)) >> 16 for row, share in ((upper, upper_share), (lower, lower_share))
    ]
    return ((parts[0] + parts[1] + 2) >> 2).astype(np.uint8)


def sample(height: int, width: int) -> Batch:
    """Noise, so that every wrong pixel shows."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)
    target = torch.randint(0, 2**40, (height, width), generator=generator)
    return Batch({"image": image}, target, target % 7 > 0)


def test_published_factors_are_those_of_the_authors() -> None:
    augment = Augment(scale=(0.5, 2.1), scale_step=0.1)
    assert {augment._factor((step + 0.5) / 17) for step in range(17)} == set(FACTORS)


@pytest.mark.parametrize("factor", FACTORS)
def test_labels_are_scaled_as_by_opencv(factor: float) -> None:
    labels = torch.arange(LABELS[0] * LABELS[1]).view(LABELS)
    height, width = (round(factor * length) for length in LABELS)
    made = rescaled(Batch({}, labels, labels >= 0), factor, rule="opencv").target
    np.testing.assert_array_equal(made.numpy(), nearest(labels.numpy(), height, width, factor, factor))


def test_labels_are_enlarged_as_by_opencv() -> None:
    labels = torch.arange(720 * 1440).view(720, 1440)
    made = resized(labels, LABELS, "opencv").numpy()
    np.testing.assert_array_equal(made, nearest(labels.numpy(), *LABELS, LABELS[0] / 720, LABELS[1] / 1440))
    np.testing.assert_array_equal(made[:, 0] // 1440, np.floor(0.703125 * np.arange(1024)))


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("size", [(128, 256), (77, 131)])
def test_images_are_scaled_as_by_opencv(factor: float, size: tuple[int, int]) -> None:
    given = sample(*size)
    made = rescaled(given, factor, rule="opencv").inputs["image"]
    expected = bilinear(given.inputs["image"].permute(1, 2, 0).numpy(), factor)
    np.testing.assert_array_equal(made.permute(1, 2, 0).numpy(), expected)


@pytest.mark.parametrize("factor", FACTORS)
def test_crops_of_a_batch_are_parts_of_what_opencv_makes(factor: float) -> None:
    given, augment = sample(77, 131), Augment((38, 64), flip=False, scale=(factor, factor), scale_rule="opencv")
    for key in range(5):
        place = augment.placed(77, 131, key)
        made = finish(augment, joined([Cut(augment)(given, key)]))
        whole = bilinear(given.inputs["image"].permute(1, 2, 0).numpy(), factor)[place.rows, place.columns]
        np.testing.assert_array_equal(made.inputs["image"][0].permute(1, 2, 0).numpy(), whole)
