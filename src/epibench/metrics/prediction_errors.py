"""Errors of predictions: RMSE, MAE, accuracy, intersection over union."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from epibench.conventions import Convention, check_convention
from epibench.metrics.checks import check_finite, check_numbers, same_pixels
from epibench.metrics.class_metric import ClassMetric
from epibench.metrics.info import infos
from epibench.metrics.ranking import accumulate
from epibench.metrics.streaming import Array, StreamingMetric, each_row, to_tensor, value_of

GROUP_OF_IMAGES, SHUFFLES = 4, 100


class _MeanError(StreamingMetric):
    higher_is_better = False
    error: ClassVar[str]  # prefix of its states

    def __init__(self, num_draws: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_draws, **kwargs)
        self.add_sums(f"{self.error}_sum")
        self.add_counts(f"{self.error}_count")

    def update(self, mean: Array, target: Array) -> None:
        """Add pixels. mean: (draw, …) with `num_draws`, otherwise (…); target: (…)."""
        means, targets = self.rows(mean), self.shared(target)
        same_pixels(mean=means, target=targets)
        check_finite(mean=means, target=targets)
        each_row(self._add, means, targets)
        getattr(self, f"{self.error}_count").add_(means.shape[1])

    def _add(self, rows: slice, mean: Tensor, target: Tensor) -> None:
        raise NotImplementedError


class RootMeanSquaredError(_MeanError):
    """√mean squared error over all pixels, for any batches. `update(mean, target)`; gives `rmse`."""

    info = infos("rmse")
    error = "squared_error"
    squared_error_sum: Tensor
    squared_error_count: Tensor

    def _add(self, rows: slice, mean: Tensor, target: Tensor) -> None:
        self.squared_error_sum[rows] += squared_error(mean, target).sum(1)

    def compute(self) -> dict[str, Tensor]:
        """The error in the target's unit, one value per draw."""
        return {"rmse": self.result((self.squared_error_sum / self.squared_error_count).sqrt())}


class GroupedRootMeanSquaredError(StreamingMetric):
    """`rmse` under `gustafsson2020`: the mean of the RMSEs of groups of 4 images, averaged over 100 random groupings.

    `update(mean, target, image)` with the index of each pixel's image. Images without a valid pixel do not count.
    `rmse_spread` is the standard deviation over the groupings. Under `pooled`, `rmse` is the error of all pixels.
    """

    higher_is_better = False
    info = infos("rmse", "rmse_spread", "rmse_gustafsson2020", "rmse_spread_gustafsson2020")
    settings = ("num_draws", "num_images", "convention")
    image_squared_error: Tensor
    image_count: Tensor

    def __init__(
        self,
        num_images: int,
        num_draws: int | None = None,
        *,
        convention: Convention = "gustafsson2020",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_draws, **kwargs)
        self.num_images = num_images
        self.convention = check_convention(convention)
        self.add_sums("image_squared_error", num_images)
        self.add_counts("image_count", num_images)

    def update(self, mean: Array, target: Array, image: Array) -> None:
        """Add pixels. mean: (draw, …) with `num_draws`, otherwise (…); target and image: (…)."""
        means, targets, images = self.rows(mean), self.shared(target), self.shared(image)
        same_pixels(mean=means, target=targets, image=images)
        check_finite(mean=means, target=targets)
        check_numbers(images, self.num_images, "image")
        each_row(self._add, means, targets, images.to(torch.int64))

    def _add(self, rows: slice, mean: Tensor, target: Tensor, image: Tensor) -> None:
        error = squared_error(mean, target)
        accumulate(image.expand_as(error), (self.image_squared_error[rows], error), (self.image_count[rows], None))

    def compute(self) -> dict[str, Tensor]:
        """The error in the target's unit and, under `gustafsson2020`, its spread, one value per draw."""
        if self.convention == "gustafsson2020":
            return self._of_groups("rmse", "rmse_spread")
        return {"rmse": self.result((self.image_squared_error.sum(1) / self.image_count.sum(1)).sqrt())}

    def _published(self) -> dict[str, Tensor]:
        return self._of_groups("rmse_gustafsson2020", "rmse_spread_gustafsson2020")

    def _of_groups(self, mean: str, spread: str) -> dict[str, Tensor]:
        used = self.image_count[0].nonzero().squeeze(1)  # the pixels are the same in every draw
        if not len(used):
            nothing = torch.full_like(self.image_squared_error[:, 0], torch.nan)
            return {mean: self.result(nothing), spread: self.result(nothing)}
        errors, counts = self.image_squared_error[:, used], self.image_count[:1, used].to(torch.float64)
        values = []
        for seed in range(SHUFFLES):
            order = torch.randperm(len(used), generator=torch.Generator().manual_seed(seed)).to(self.device)
            values.append((_group_sums(errors[:, order]) / _group_sums(counts[:, order])).sqrt().mean(1))
        deviation, average = torch.std_mean(torch.stack(values, 1), dim=1, correction=0)
        return {mean: self.result(average), spread: self.result(deviation)}


def _group_sums(of_images: Tensor) -> Tensor:
    """Sums over groups of consecutive images, of which the last may be smaller: (draw, group)."""
    short = -of_images.shape[1] % GROUP_OF_IMAGES
    return torch.nn.functional.pad(of_images, (0, short)).view(len(of_images), -1, GROUP_OF_IMAGES).sum(2)


class MeanAbsoluteError(_MeanError):
    """Mean absolute error over all pixels. `update(mean, target)`; gives `mae`."""

    info = infos("mae")
    error = "absolute_error"
    absolute_error_sum: Tensor
    absolute_error_count: Tensor

    def _add(self, rows: slice, mean: Tensor, target: Tensor) -> None:
        self.absolute_error_sum[rows] += (mean.to(torch.float64) - target).abs().sum(1)

    def compute(self) -> dict[str, Tensor]:
        """The error in the target's unit, one value per draw."""
        return {"mae": self.result(self.absolute_error_sum / self.absolute_error_count)}


class MeanIoU(ClassMetric):
    """Intersection over union and accuracy from one confusion matrix over the data set.

    `update(probs, target)` with the class axis last. `compute()` gives:

    - `miou` over the classes with a non-empty union (`gustafsson2020`: over all classes, an empty union as 0);
    - `accuracy`;
    - `iou_per_class`, (…, class), NaN if the union is empty;
    - `accuracy_per_class`, the recall: the share of a class's pixels that are predicted as it, NaN without pixels;
    - `share_per_class`, the share of a class in all pixels.
    """

    higher_is_better = True
    info = infos("miou", "miou_gustafsson2020", "iou_per_class", "accuracy", "accuracy_per_class", "share_per_class")
    settings = ("num_draws", "num_classes", "convention")
    confusion: Tensor

    def __init__(
        self, num_classes: int, num_draws: int | None = None, *, convention: Convention = "pooled", **kwargs: Any
    ) -> None:
        super().__init__(num_draws, **kwargs)
        self.num_classes = num_classes
        self.convention = check_convention(convention)
        self.add_counts("confusion", num_classes * num_classes)

    def update(
        self, probs: Array | None = None, target: Array | None = None, *, predicted: Array | None = None
    ) -> None:
        """Add pixels by their `probs`, or by their `predicted` class.

        probs: (draw, …, class) with `num_draws`, otherwise (…, class); predicted: (draw, …) or (…); target: (…).
        """
        if target is not None and predicted is not None:
            labels, targets = self.labelled(target, predicted=predicted)
            check_numbers(targets, self.num_classes, "target", label=True)
            check_numbers(labels, self.num_classes, "predicted")
            each_row(self._add, labels, targets)
        elif target is not None and probs is not None:
            pixels = self.class_pixels(probs, target, self.num_classes)
            each_row(lambda rows, piece, truth: self._add(rows, piece.max(2).indices, truth), *pixels)
        else:
            raise TypeError("MeanIoU.update needs target, and probs or predicted")

    def _add(self, rows: slice, predicted: Tensor, target: Tensor) -> None:
        accumulate(target.to(torch.int64) * self.num_classes + predicted, (self.confusion[rows], None))

    def compute(self) -> dict[str, Tensor]:
        """Return the mean, the share of right pixels and the values of each class, one row per draw."""
        hits, true, iou = self._overlaps()
        total = true.sum(1)
        return {
            "miou": self._miou(iou, total, self.convention),
            "iou_per_class": self.result(iou),
            "accuracy": self.result(hits.sum(1) / total),
            "accuracy_per_class": self.result(hits / true),
            "share_per_class": self.result(true / total[:, None]),
        }

    def _published(self) -> dict[str, Tensor]:
        _, true, iou = self._overlaps()
        return {"miou_gustafsson2020": self._miou(iou, true.sum(1), "gustafsson2020")}

    def _overlaps(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return for each class, (draw, class): right pixels, true pixels, and intersection over union."""
        confusion = self.confusion.view(-1, self.num_classes, self.num_classes)
        hits = confusion.diagonal(dim1=1, dim2=2).to(torch.float64)
        true = confusion.sum(2).to(torch.float64)
        return hits, true, hits / (confusion.sum(1) + true - hits)

    def _miou(self, iou: Tensor, total: Tensor, convention: Convention) -> Tensor:
        mean = iou.nan_to_num().mean(1) if convention == "gustafsson2020" else iou.nanmean(1)
        return self.result(torch.where(total > 0, mean, torch.nan))


class PublishedMeanIoU(MeanIoU):
    """`miou_gustafsson2020` beside metrics of another convention, of probabilities averaged in float32."""

    info = infos("miou_gustafsson2020")

    def __init__(self, num_classes: int, num_draws: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_classes, num_draws, convention="gustafsson2020", **kwargs)

    def update(self, published_predicted: Array, target: Array) -> None:  # type: ignore[override]
        """Add pixels by their predicted class, (draw, …) with `num_draws`, otherwise (…); target: (…)."""
        super().update(target=target, predicted=published_predicted)

    def compute(self) -> dict[str, Tensor]:
        """One value per draw."""
        return self._published()


def squared_error(mean: Tensor, target: Tensor) -> Tensor:
    """(y − μ)² in float64."""
    return (mean.to(torch.float64) - target).square()


def rmse(mean: Array, target: Array) -> Tensor:
    """√mean squared error of whole arrays."""
    return value_of(RootMeanSquaredError(), "rmse", mean, target)


def mae(mean: Array, target: Array) -> Tensor:
    """Mean absolute error of whole arrays."""
    return value_of(MeanAbsoluteError(), "mae", mean, target)


def miou(probs: Array, target: Array, *, convention: Convention = "pooled", ignore_index: int | None = None) -> Tensor:
    """Mean intersection over union of whole arrays. probs: (…, class)."""
    metric = MeanIoU(to_tensor(probs).shape[-1], convention=convention, ignore_index=ignore_index)
    return value_of(metric, "miou", probs, target)


def accuracy(probs: Array, target: Array, *, ignore_index: int | None = None) -> Tensor:
    """Return the share of pixels whose most probable class, the first of equals, is the target. probs: (…, class)."""
    return value_of(MeanIoU(to_tensor(probs).shape[-1], ignore_index=ignore_index), "accuracy", probs, target)
