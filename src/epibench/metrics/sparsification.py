"""Sparsification: how fast the error falls when the most uncertain pixels are removed, against an oracle (AUSE)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from epibench.conventions import Convention, check_convention
from epibench.metrics import ranking
from epibench.metrics.checks import check_keys, same_pixels
from epibench.metrics.info import AUSE, AUSE_MAE, describe
from epibench.metrics.plotting import CurvePlot
from epibench.metrics.ranking import PartialSum
from epibench.metrics.streaming import Array, StreamingMetric, each_row, to_tensor, trapezoid
from epibench.parallel import in_threads

SparsificationError = Literal["rmse", "mae", "brier"]
NUM_CUTS = 100


class Sparsification(StreamingMetric):
    """AUSE: area between the sparsification curve and its oracle, streamed in constant memory.

    `update(uncertainty, loss)` takes, for each pixel, any uncertainty ≥ 0 and its loss: the squared error for
    `error="rmse"`, the absolute error for "mae", the Brier score for "brier". With `exact=True` all pixels are kept
    and sorted; otherwise they are binned by `bits` leading bits of their float32 pattern (2.5 MiB per draw at 16).

    `compute()` gives the following values, named `ause_mae` … for "mae". They are NaN without pixels.

    - `ause`;
    - `ause_bound`, a rigorous bound: the largest deviation from the exact value;
    - `ause_standard_error`, if pixels are in random order within a bin;
    - `ause_random`, the score of a random uncertainty;
    - with `inverted=True`, `ause_inverted`, the area of the inverted uncertainty, with its bound, and
      `ause_inverted_noise`, the standard deviation of the area of a random uncertainty.
    """

    higher_is_better = False
    info = describe(*AUSE, *AUSE_MAE)
    curve_plot = CurvePlot(("curve", "oracle"), "share of pixels removed", "relative error of those that remain")
    settings = ("num_draws", "error", "convention", "bits", "exact", "inverted")
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
        inverted: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_draws, **kwargs)
        self.error = check_error(error)
        self.inverted = inverted
        self.convention = check_convention(convention)
        self.bits = bits
        self.exact = exact
        if exact:
            # (pixel, draw), so that torchmetrics can join them along the first axis.
            self.add_state("kept_uncertainty", [], dist_reduce_fx="cat")
            self.add_state("kept_loss", [], dist_reduce_fx="cat")
        else:
            bins = ranking.num_bins(bits)
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
            self.kept_uncertainty.append(keys.detach().T.to(torch.float64, copy=True))
            self.kept_loss.append(losses.detach().T.to(torch.float64, copy=True))
            return
        each_row([self._add_by_uncertainty, self._add_by_loss], keys, losses)

    def _add_by_uncertainty(self, rows: slice, key: Tensor, loss: Tensor) -> None:
        index, loss = ranking.bin_index(key, self.bits), loss.to(torch.float64)
        counts, losses, squares = self.uncertainty_counts, self.uncertainty_losses, self.uncertainty_squares
        ranking.accumulate(index, (counts[rows], None), (losses[rows], loss), (squares[rows], loss.square()))

    def _add_by_loss(self, rows: slice, key: Tensor, loss: Tensor) -> None:
        index = ranking.bin_index(loss, self.bits)
        ranking.accumulate(index, (self.loss_counts[rows], None), (self.loss_losses[rows], loss))

    def compute(self) -> dict[str, Tensor]:
        """Return the area, its rigorous bound, its standard error and the area by chance, each one value per draw."""
        curves, name = self._curves(self.convention), self._name
        values = {
            name: curves.area(),
            f"{name}_bound": curves.bound(),
            f"{name}_standard_error": curves.standard_error,
            f"{name}_random": curves.random(),
        }
        if self.inverted:
            turned = self._curves(self.convention, inverted=True)
            values |= {f"{name}_inverted": turned.area(), f"{name}_inverted_bound": turned.bound()}
            values[f"{name}_inverted_noise"] = self._noise()
        return {name: self.result(value) for name, value in values.items()}

    def _noise(self) -> Tensor:
        """Return the standard deviation of the area if pixels come in random order, (draw,).

        After a cut, n of N losses remain, and the curve is their mean. As a function of n/N, its deviations are a
        Brownian bridge divided by n/N. Its integral has variance 1/N, in units of the losses' coefficient of variation.
        """
        if self.exact:
            losses = self._joined(self.kept_loss).T
            total, squares = losses.sum(1), losses.square().sum(1)
            number = torch.full_like(total, losses.shape[1])
        else:
            number = self.uncertainty_counts.sum(1).to(torch.float64)
            total, squares = self.uncertainty_losses.sum(1), self.uncertainty_squares.sum(1)
        variation = (number * squares / total.square() - 1).clamp(min=0).sqrt()
        noise = variation / number.sqrt() / (2 if self.error == "rmse" else 1)
        return torch.where((total == 0) & (number > 0), torch.zeros_like(noise), noise)

    def _published(self) -> dict[str, Tensor]:
        return {f"{self._name}_gustafsson2020": self.result(self._curves("gustafsson2020").area())}

    @property
    def _name(self) -> str:
        return "ause_mae" if self.error == "mae" else "ause"

    def curves(self) -> dict[str, Tensor]:
        """Return relative errors of the remaining pixels: `curve`, `oracle`, and their gap `error`."""
        with self.all_processes():
            curves = self._curves(self.convention)
        return {
            "x": torch.arange(NUM_CUTS, dtype=torch.float64, device=self.device) / NUM_CUTS,
            "curve": self.result(curves.curve.value),
            "oracle": self.result(curves.oracle.value),
            "error": self.result(curves.curve.value - curves.oracle.value),
        }

    def _curves(self, convention: Convention, *, inverted: bool = False) -> _Curves:
        if not self.exact:
            tables = (getattr(self, name) for name in self.state_names)
            histograms = Histograms(ranking.bin_edges(self.bits, self.device), *tables)
            return binned_curves(histograms, self.error, convention, inverted=inverted)
        keys, losses = self._joined(self.kept_uncertainty), self._joined(self.kept_loss)
        return exact_curves(-keys.T if inverted else keys.T, losses.T, self.error, convention)

    def _joined(self, kept: list[Tensor] | Tensor) -> Tensor:
        """Return the kept values, (pixel, draw).

        They are a list of tensors before a sync, one tensor after it.
        """
        nothing = torch.zeros((0, self.num_draws or 1), dtype=torch.float64, device=self.device)
        return torch.cat([nothing, *kept]) if isinstance(kept, list) else kept

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        if self.exact:  # a process without pixels must have the same shape and type as others
            self.kept_uncertainty = [self._joined(self.kept_uncertainty)]
            self.kept_loss = [self._joined(self.kept_loss)]
        super()._sync_dist(*args, **kwargs)


class Histograms(NamedTuple):
    """Pixels by uncertainty and by loss, (row, bin): numbers, sums of losses and of their squares.

    edges: upper edges of the bins, (bin,). The first bin has only zeros.
    """

    edges: Tensor
    uncertainty_counts: Tensor
    uncertainty_losses: Tensor
    uncertainty_squares: Tensor
    loss_counts: Tensor
    loss_losses: Tensor


class _Curves(NamedTuple):
    """Relative error after each cut, (draw, cut): by uncertainty and by the oracle, each with its bounds."""

    curve: PartialSum
    oracle: PartialSum
    standard_error: Tensor

    def area(self) -> Tensor:
        return trapezoid(self.curve.value - self.oracle.value)

    def random(self) -> Tensor:
        # Random removal does not change the error on average.
        return trapezoid((self.oracle.value[:, :1] > 0).to(torch.float64) - self.oracle.value)

    def bound(self) -> Tensor:
        low = trapezoid(self.curve.lower - self.oracle.upper)
        high = trapezoid(self.curve.upper - self.oracle.lower)
        return torch.maximum(high - self.area(), self.area() - low).clamp(min=0)


def kept_pixels(total: Tensor, convention: Convention = "pooled") -> Tensor:
    """Return the number of `total` pixels (draw,) that remain after each of the 100 cuts: (draw, 100) int64."""
    cuts = torch.arange(NUM_CUTS, device=total.device)
    if convention == "gustafsson2020":
        return ((1.0 - cuts.to(torch.float64) * 0.01) * total[:, None]).to(torch.int64)  # 57·0.01 is not 57/100
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
    keys, losses = (to_tensor(values).reshape(1, -1).to(torch.float64) for values in (uncertainty, loss))
    same_pixels(uncertainty=keys, loss=losses)
    check_keys(keys, "uncertainty")
    check_keys(losses, "loss", finite=True)
    return exact_curves(keys, losses, check_error(error), check_convention(convention))


def exact_curves(keys: Tensor, losses: Tensor, error: SparsificationError, convention: Convention) -> _Curves:
    """Curves from sorting all pixels. keys, losses: (draw, pixel)."""
    draws, num_pixels = keys.shape
    total = torch.full((draws,), num_pixels, device=keys.device)
    kept = kept_pixels(total, convention)

    def sums(draw: int) -> tuple[Tensor, Tensor]:
        key, value = keys[draw].contiguous(), losses[draw].to(torch.float64).contiguous()
        order = ranking.sorting(key)
        ranked = ranking.sum_of_first(kept[draw], key[order], value[order])
        value = value[ranking.sorting(value)]
        return ranked, ranking.sum_of_first(kept[draw], value, value, tied=False)

    by_key, by_loss = (torch.stack(rows) for rows in zip(*in_threads(sums, range(draws)), strict=True))
    curve, oracle = (relative_error(PartialSum(rows, rows, rows), kept, error) for rows in (by_key, by_loss))
    return _Curves(curve, oracle, torch.where(total > 0, torch.zeros_like(by_key[:, 0]), torch.nan))


def binned_curves(
    histograms: Histograms,
    error: SparsificationError = "rmse",
    convention: Convention = "pooled",
    *,
    inverted: bool = False,
) -> _Curves:
    """Return curves of each row with their bounds. `inverted`: the least uncertain pixels are removed first."""
    by_uncertainty = (histograms.uncertainty_counts, histograms.uncertainty_losses, histograms.uncertainty_squares)
    counts, losses, squares = (table.flip(1) for table in by_uncertainty) if inverted else by_uncertainty
    kept = kept_pixels(counts.sum(1), convention)
    cut = ranking.cut_at(kept, counts)
    tied = not inverted  # the first bin has only zeros
    sums = ranking.sum_in_any_order(cut, losses, squares, zeros_are_tied=tied)
    oracle_cut = ranking.cut_at(kept, histograms.loss_counts)
    oracle_sums = ranking.sum_of_keys(oracle_cut, histograms.loss_losses, histograms.edges)
    curve, oracle = (relative_error(partial, kept, error) for partial in (sums, oracle_sums))
    covariance = ranking.covariance_in_random_order(cut, losses, squares, zeros_are_tied=tied)
    return _Curves(curve, oracle, _standard_error(covariance, sums, curve, kept, error))


def relative_error(sums: PartialSum, kept: Tensor, error: SparsificationError) -> PartialSum:
    """Return the error of the remaining pixels divided by the error of all.

    Without any loss it is 0.
    """
    total, growth = sums.value[:, :1], kept[:, :1] / kept.to(torch.float64)
    curves = []
    for part in sums:
        ratio = torch.where(total == 0, torch.zeros_like(part), part / total) * growth
        curves.append(ratio.sqrt() if error == "rmse" else ratio)
    return PartialSum(*curves)


def _standard_error(
    covariance: Tensor, sums: PartialSum, curve: PartialSum, kept: Tensor, error: SparsificationError
) -> Tensor:
    """Delta method: the area is a weighted sum of curve values, each a function of its partial sum."""
    slope = curve.value / sums.value / (2 if error == "rmse" else 1)
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
