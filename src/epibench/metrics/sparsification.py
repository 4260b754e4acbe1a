"""Sparsification: how fast the error falls when the most uncertain pixels are removed, against an oracle (AUSE)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from epibench.metrics.conventions import Convention, check_convention
from epibench.metrics.ranking import (
    Cut,
    PartialSum,
    accumulate,
    bin_edges,
    bin_index,
    check_keys,
    covariance_in_random_order,
    cut_at,
    num_bins,
    sum_in_any_order,
    sum_of_keys,
)
from epibench.metrics.streaming import Array, StreamingMetric, pieces, same_pixels, trapezoid

SparsificationError = Literal["rmse", "mae", "brier"]
NUM_CUTS = 100


class Sparsification(StreamingMetric):
    """AUSE: area between the sparsification curve and its oracle, streamed in constant memory.

    `update(uncertainty, loss)` takes, for each pixel, any uncertainty ≥ 0 and its loss: the squared error for
    `error="rmse"`, the absolute error for "mae", the Brier score for "brier". With `exact=True` all pixels are kept
    and sorted; otherwise they are binned by `bits` leading bits of their float32 pattern (2.5 MiB per draw at 16).

    `compute()` gives `ause`, `ause_bound` (rigorous: the exact value is no farther) and `ause_standard_error` (if
    pixels are in random order within a bin); `ause_mae` … for "mae". NaN without pixels.
    """

    higher_is_better = False
    uncertainty_counts: Tensor
    uncertainty_losses: Tensor
    uncertainty_squares: Tensor
    loss_counts: Tensor
    loss_losses: Tensor
    kept_uncertainty: list[Tensor]
    kept_loss: list[Tensor]

    def __init__(
        self,
        error: SparsificationError = "rmse",
        num_draws: int | None = None,
        *,
        convention: Convention = "pooled",
        bits: int = 16,
        exact: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_draws, **kwargs)
        self.error = check_error(error)
        self.convention = check_convention(convention)
        self.bits = bits
        self.exact = exact
        if exact:
            # (pixel, draw), so that torchmetrics can join them along the first axis.
            self.add_state("kept_uncertainty", [], dist_reduce_fx="cat")
            self.add_state("kept_loss", [], dist_reduce_fx="cat")
        else:
            bins = num_bins(bits)
            self.add_counts("uncertainty_counts", bins)
            self.add_sums("uncertainty_losses", bins)
            self.add_sums("uncertainty_squares", bins)
            self.add_counts("loss_counts", bins)
            self.add_sums("loss_losses", bins)

    def update(self, uncertainty: Array, loss: Array) -> None:
        """Add pixels. uncertainty, loss: (draw, …) with `num_draws`, otherwise (…)."""
        keys, losses = self.rows(uncertainty), self.rows(loss)
        same_pixels(uncertainty=keys, loss=losses)
        check_keys(keys, "uncertainty")
        check_keys(losses, "loss", finite=True)
        if self.exact:
            self.kept_uncertainty.append(keys.T.clone())
            self.kept_loss.append(losses.T.clone())
            return
        for key, value in pieces(keys, losses):
            index = bin_index(key, self.bits)
            own = bin_index(value, self.bits)
            value = value.to(torch.float64)
            accumulate(self.uncertainty_counts, index, None)
            accumulate(self.uncertainty_losses, index, value)
            accumulate(self.uncertainty_squares, index, value.square())
            accumulate(self.loss_counts, own, None)
            accumulate(self.loss_losses, own, value)

    def compute(self) -> dict[str, Tensor]:
        """The area, its rigorous bound and its standard error, each one value per draw."""
        curves = self._curves()
        name = "ause" if self.error in ("rmse", "brier") else f"ause_{self.error}"
        return {
            name: self.result(curves.area()),
            f"{name}_bound": self.result(curves.bound()),
            f"{name}_standard_error": self.result(curves.standard_error),
        }

    def curves(self) -> dict[str, Tensor]:
        """Error of what remains relative to the error of all (`curve`), and with the oracle's order (`oracle`)."""
        curves = self._curves()
        return {"curve": self.result(curves.curve.value), "oracle": self.result(curves.oracle.value)}

    def _curves(self) -> _Curves:
        if self.exact:
            if not self.kept_uncertainty:
                nothing = torch.zeros((self.num_draws or 1, 0), dtype=torch.float64, device=self.device)
                return exact_curves(nothing, nothing, self.error, self.convention)
            keys, losses = _joined(self.kept_uncertainty), _joined(self.kept_loss)
            return exact_curves(keys.T, losses.T, self.error, self.convention)
        return binned_curves(self)


class _Curves(NamedTuple):
    """Relative error after each cut, (draw, cut): by uncertainty and by the oracle, each with its bounds."""

    curve: PartialSum
    oracle: PartialSum
    standard_error: Tensor

    def area(self) -> Tensor:
        return trapezoid(self.curve.value - self.oracle.value)

    def bound(self) -> Tensor:
        low = trapezoid(self.curve.lower - self.oracle.upper)
        high = trapezoid(self.curve.upper - self.oracle.lower)
        return torch.maximum(high - self.area(), self.area() - low).clamp(min=0)


def kept_pixels(total: Tensor, convention: Convention = "pooled") -> Tensor:
    """How many of `total` pixels (draw,) are kept after each of the 100 cuts: (draw, 100) int64."""
    cuts = torch.arange(NUM_CUTS, device=total.device)
    if convention == "gustafsson2020":
        return ((1.0 - cuts.to(torch.float64) / 100.0) * total[:, None]).to(torch.int64)
    return total[:, None] - cuts * total[:, None] // 100


def ause(
    uncertainty: Array, loss: Array, error: SparsificationError = "rmse", *, convention: Convention = "pooled"
) -> Tensor:
    """Area under the sparsification error curve of whole arrays, exactly, by sorting.

    `loss` per pixel: squared error for "rmse", absolute error for "mae", Brier score for "brier". For more pixels than
    fit in memory several times, use `Sparsification`.
    """
    return _exact(uncertainty, loss, error, convention).area()[0]


def sparsification_curves(
    uncertainty: Array, loss: Array, error: SparsificationError = "rmse", *, convention: Convention = "pooled"
) -> tuple[Tensor, Tensor]:
    """The sparsification curve and the oracle's, each (100,), of whole arrays, exactly."""
    curves = _exact(uncertainty, loss, error, convention)
    return curves.curve.value[0], curves.oracle.value[0]


def _exact(uncertainty: Array, loss: Array, error: SparsificationError, convention: Convention) -> _Curves:
    keys, losses = torch.as_tensor(uncertainty).reshape(1, -1), torch.as_tensor(loss).reshape(1, -1)
    same_pixels(uncertainty=keys, loss=losses)
    check_keys(keys, "uncertainty")
    check_keys(losses, "loss", finite=True)
    return exact_curves(keys, losses, check_error(error), check_convention(convention))


def exact_curves(keys: Tensor, losses: Tensor, error: SparsificationError, convention: Convention) -> _Curves:
    """Curves from sorting all pixels. keys, losses: (draw, pixel)."""
    draws, num_pixels = keys.shape
    total = torch.full((draws,), num_pixels, device=keys.device)
    kept = kept_pixels(total, convention)
    by_key = torch.empty(kept.shape, dtype=torch.float64, device=keys.device)
    by_loss = torch.empty_like(by_key)
    for draw in range(draws):  # one at a time: a sort needs several times its input
        order = torch.argsort(keys[draw], stable=True)
        value = losses[draw].to(torch.float64)
        by_key[draw] = _first_sums(value[order], kept[draw])
        if convention == "pooled":
            by_key[draw] = _tied_sums(keys[draw][order], value[order], kept[draw])
        by_loss[draw] = _first_sums(value.sort().values, kept[draw])
    curve, oracle = (relative_error(_certain(sums), kept, error) for sums in (by_key, by_loss))
    return _Curves(curve, oracle, torch.where(total > 0, torch.zeros_like(by_key[:, 0]), torch.nan))


def _first_sums(values: Tensor, kept: Tensor) -> Tensor:
    """Σ of the first k values for each k in `kept`; the last, with all values, first."""
    cumulative = torch.cat([values.new_zeros(1), values.cumsum(0)])
    return cumulative[kept]


def _tied_sums(keys: Tensor, values: Tensor, kept: Tensor) -> Tensor:
    """Σ of the first k values where pixels with equal keys count with the mean value of their group."""
    _, group, sizes = torch.unique_consecutive(keys, return_inverse=True, return_counts=True)
    sums = torch.zeros(sizes.shape[0], dtype=torch.float64, device=values.device).scatter_add_(0, group, values)
    cut = cut_at(kept[None], sizes[None])
    return cut.before(sums[None].cumsum(1))[0] + (sums[None].gather(1, cut.bin) * cut.inside / cut.size)[0]


def binned_curves(state: Sparsification) -> _Curves:
    """Curves from the histograms, with what the bins leave open."""
    kept = kept_pixels(state.uncertainty_counts.sum(1), state.convention)
    cut = cut_at(kept, state.uncertainty_counts)
    sums = sum_in_any_order(cut, state.uncertainty_losses, state.uncertainty_squares)
    oracle_cut = cut_at(kept, state.loss_counts)
    oracle_sums = sum_of_keys(oracle_cut, state.loss_losses, bin_edges(state.bits, kept.device))
    curve = relative_error(sums, kept, state.error)
    oracle = relative_error(oracle_sums, kept, state.error)
    return _Curves(curve, oracle, _standard_error(state, cut, sums, curve, kept))


def relative_error(sums: PartialSum, kept: Tensor, error: SparsificationError) -> PartialSum:
    """The error of what is kept divided by the error of all; 0 where the total loss is 0."""
    total, growth = sums.value[:, :1], kept[:, :1] / kept
    curves = []
    for part in sums:
        ratio = torch.where(total == 0, torch.zeros_like(part), part / total) * growth
        curves.append(ratio.sqrt() if error == "rmse" else ratio)
    return PartialSum(*curves)


def _standard_error(state: Sparsification, cut: Cut, sums: PartialSum, curve: PartialSum, kept: Tensor) -> Tensor:
    """Delta method: the area is a weighted sum of curve values, each a function of its partial sum."""
    covariance = covariance_in_random_order(cut, state.uncertainty_losses, state.uncertainty_squares)
    slope = curve.value / sums.value / (2 if state.error == "rmse" else 1)
    slope = torch.where(sums.value > 0, slope, torch.zeros_like(slope))
    weight = torch.full((NUM_CUTS,), 0.01, dtype=torch.float64, device=slope.device)
    weight[0] = weight[-1] = 0.005
    slope = slope * weight
    variance = torch.einsum("di,dij,dj->d", slope, covariance, slope)
    return torch.where(kept[:, 0] > 0, variance.clamp(min=0).sqrt(), torch.nan)


def check_error(error: str) -> SparsificationError:
    """Return `error` if AUSE is defined with it, else raise."""
    for known in get_args(SparsificationError):
        if error == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"error '{error}' is unknown; there are {', '.join(get_args(SparsificationError))}")


def _certain(sums: Tensor) -> PartialSum:
    return PartialSum(sums, sums, sums)


def _joined(kept: list[Tensor] | Tensor) -> Tensor:
    """A list of tensors before a sync, one tensor after it."""
    return torch.cat(kept) if isinstance(kept, list) else kept
