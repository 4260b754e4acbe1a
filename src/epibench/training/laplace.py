"""A Gaussian around the last layer of a trained network.

The precision of the posterior is H + δ·1. δ is the precision of a prior N(0, 1/δ) on the weights and biases θ of the
layer. H is the generalised Gauss-Newton matrix of the negative log-likelihood, which equals the Fisher matrix for the
likelihoods of epibench: the sum over observations of (∂raw/∂θ)ᵀ Λ (∂raw/∂θ). For classes Λ = diag(p) − ppᵀ. For the
mean and the log variance of a Gaussian, Λ is 1/σ² and ½. A last layer is linear, so that ∂raw/∂θ are the features of a
pixel, and H is the sum of Λ ⊗ φφᵀ. The sum runs over some pixels at a time: no tensor has the size pixels × outputs ×
parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from epibench import randomness
from epibench.errors import InputError
from epibench.interpolation import grid_positions
from epibench.likelihoods import gaussian
from epibench.networks.last_layer import LastLayer, LastLayers, Place, Seen

ENTRIES = 2**20  # of the largest tensor of pixels; limits the pixels of one pass
LARGEST_WHOLE = 2048  # weights of a layer up to which `auto` keeps the whole curvature
HELD_OUT = 5  # one of HELD_OUT images is held out to choose the prior precision
FACTORS = tuple(10 ** (power / 2) for power in range(-8, 13))  # factors of the prior precision that are tried
SAMPLES = 16  # samples of the posterior for each factor
WIDEST = 50.0  # log δ lies between ± this

Batches = Iterable[tuple[Any, Tensor, Tensor]]
Form = Literal["auto", "full", "kronecker"]


class Pixels(NamedTuple):
    """Counted pixels in float64: inputs of each last layer, and outputs of the network.

    Args:
        features: (pixel, feature) for each layer, with the feature of its bias last.
        raw: (pixel, output).
        target: (pixel,).
        weight: (pixel,), 1 for all pixels of an image together.
        held_out: (pixel,), whether the image is held out.
    """

    features: tuple[Tensor, ...]
    raw: Tensor
    target: Tensor
    weight: Tensor
    held_out: Tensor

    def where(self, mask: Tensor) -> Pixels:
        """Return the pixels where the mask is true."""
        raw, target, weight, held_out = (each[mask] for each in self[1:])
        return Pixels(tuple(each[mask] for each in self.features), raw, target, weight, held_out)


@dataclass(frozen=True)
class TrainingPixels:
    """The last layers' view of the training data, read some pixels at a time.

    Every image has weight 1, whatever its number of pixels.

    Args:
        network: The last layers.
        batches: Yields the training data.
        key: Random key of the chosen pixels.
        num_pixels: Approximate number of random pixels of each image; None: all pixels.
        class_weights: Weights of classes; None: equal weights.
    """

    network: LastLayers
    batches: Callable[[], Batches]
    key: int
    num_pixels: int | None = None
    class_weights: Sequence[float] | None = None

    @property
    def at_once(self) -> int:
        """The number of pixels in one pass."""
        shapes = [layer.shape for layer in self.network.layers]
        widest = max(max(outputs * features, 4 * features) for outputs, features in shapes)
        return max(1, ENTRIES // max(widest, SAMPLES * sum(outputs for outputs, _ in shapes)))

    def __iter__(self) -> Iterator[Pixels]:
        first = (0, 0)  # the number of the first image, and of its first pixel
        for inputs, target, valid in self.batches():
            if target.ndim == 1:  # a point is an image of one pixel
                target, valid = target[:, None, None], valid[:, None, None]
            seen = self.network.see(inputs)
            target, valid = target.to(seen.raw.device), valid.to(seen.raw.device)
            yield from self._of_images(seen, target, valid, *first)
            first = (first[0] + len(target), first[1] + target.numel())

    def _of_images(
        self, seen: Seen, target: Tensor, valid: Tensor, first_image: int, first_pixel: int
    ) -> Iterator[Pixels]:
        area = target[0].numel()
        counts = valid.sum((1, 2))
        shares = (counts if self.num_pixels is None else self.num_pixels) / counts.clamp(min=1)
        expected = self._total_weights(target, valid) * shares.clamp(max=1)
        for numbers in self._drawn(valid, shares, first_pixel):
            image, classes = numbers // area, target.flatten()[numbers]
            yield Pixels(
                self._features(seen, numbers, target.shape[1:]),
                values_at(seen.raw, numbers, target.shape[1:], self.network.align_corners),
                classes,
                self._weights(classes) / expected[image],
                (first_image + image) % HELD_OUT == HELD_OUT - 1,
            )

    def _drawn(self, valid: Tensor, shares: Tensor, first_pixel: int) -> Iterator[Tensor]:
        """Yield numbers of valid pixels, each chosen with the probability of its image."""
        key = torch.tensor([self.key], device=valid.device)
        for start in range(0, valid.numel(), ENTRIES):
            numbers = torch.nonzero(valid.flatten()[start : start + ENTRIES]).flatten() + start
            uniform = randomness.uniform_at(key, first_pixel + numbers)
            drawn = numbers[uniform < shares[numbers // valid[0].numel()]]
            yield from torch.split(drawn, self.at_once) if len(drawn) else ()

    def _features(self, seen: Seen, numbers: Tensor, size: Sequence[int]) -> tuple[Tensor, ...]:
        found = list[Tensor]()
        for layer, maps in zip(self.network.layers, seen.features, strict=True):
            values = values_at(maps, numbers, size, self.network.align_corners)
            found.append(values if layer.bias is None else torch.cat((values, torch.ones_like(values[:, :1])), 1))
        return tuple(found)

    def _weights(self, classes: Tensor) -> Tensor:
        if self.class_weights is None:
            return torch.ones(classes.shape, dtype=torch.float64, device=classes.device)
        return torch.tensor(self.class_weights, dtype=torch.float64, device=classes.device)[classes]

    def _total_weights(self, target: Tensor, valid: Tensor) -> Tensor:
        """The weight of all valid pixels of each image, (image,) float64; 1 where there is none."""
        if self.class_weights is None:
            return valid.sum((1, 2)).double().clamp(min=1)
        summed = torch.stack([self._weights(each[here]).sum() for each, here in zip(target, valid, strict=True)])
        return torch.where(summed > 0, summed, 1.0)


def values_at(maps: Tensor, numbers: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Return interpolated values at some pixels of coarse maps, (pixel, channel) float64.

    Args:
        maps: (image, channel, row, column).
        numbers: Numbers of pixels: all images of `size` one after the other, row by row.
        size: Height and width of the images.
        align_corners: Whether the corners of maps and images lie on each other.
    """
    height, width = size
    image, inside = numbers // (height * width), numbers % (height * width)
    row, column = inside // width, inside % width
    if maps.shape[-2:] == (height, width):
        return maps[image, :, row, column].double()
    (top, bottom, down), (left, right, along) = (
        _neighbours(place, coarse, fine, align_corners)
        for place, coarse, fine in zip((row, column), maps.shape[-2:], size, strict=True)
    )
    upper = torch.lerp(maps[image, :, top, left].double(), maps[image, :, top, right].double(), along)
    lower = torch.lerp(maps[image, :, bottom, left].double(), maps[image, :, bottom, right].double(), along)
    return torch.lerp(upper, lower, down)


def _neighbours(place: Tensor, coarse: int, fine: int, align_corners: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the grid points before and after pixels of one axis, and their relative position, (pixel, 1)."""
    position = grid_positions(range(fine), coarse, fine, align_corners, place.device)[place]
    before = position.long()
    return before, (before + 1).clamp(max=coarse - 1), (position - before)[:, None]


def fisher_matrices(likelihood: str, raw: Tensor, layers: Sequence[LastLayer]) -> list[Tensor]:
    """Return Λ of each layer's own outputs before scaling, (pixel, output, output). `raw`: (pixel, output)."""
    if likelihood == "categorical":
        probs = torch.softmax(raw, 1)
        found = [torch.diag_embed(probs) - probs[:, :, None] * probs[:, None, :]]
    else:
        log_variance = raw[:, 1].clamp(-gaussian.FINITE_LOG_VARIANCE, gaussian.FINITE_LOG_VARIANCE)
        found = [torch.exp(-log_variance)[:, None, None], torch.full_like(raw[:, :1, None], 0.5)]
    scales = [torch.tensor(layer.scale, dtype=raw.dtype, device=raw.device) for layer in layers]
    return [each * scale[:, None] * scale for each, scale in zip(found, scales, strict=True)]


@dataclass(frozen=True)
class Spectrum:
    """A curvature as eigenvalues and eigenvectors: (left ⊗ right) diag(values) (left ⊗ right)ᵀ.

    values: (row, column); left: (row, row); right: (column, column). A whole matrix has one row.
    """

    values: Tensor
    left: Tensor
    right: Tensor

    def deviations(self, noise: Tensor, precision: float | Tensor) -> Tensor:
        """Return samples of N(0, (H + δ·1)⁻¹) from standard normal numbers in the shape of `values`."""
        return self.left @ (noise / (self.values + precision).sqrt()) @ self.right.T


class Curvature:
    """The sum H of one layer: the whole matrix, (output · feature)², or two factors.

    The factors are the means of Λ and of φφᵀ over all observations (Martens and Grosse 2015).
    """

    def __init__(self, shape: tuple[int, int], kronecker: bool, device: torch.device):
        outputs, features = shape
        sizes = [(outputs, outputs), (features, features), ()] if kronecker else [(outputs, features) * 2]
        self.sums = [torch.zeros(size, dtype=torch.float64, device=device) for size in sizes]

    def add(self, features: Tensor, fisher: Tensor, weight: Tensor) -> None:
        """Add pixels: features (pixel, feature), Λ (pixel, output, output), weights (pixel,)."""
        if len(self.sums) == 3:
            outer, inner, total = self.sums
            outer += torch.einsum("p,pij->ij", weight, fisher)
            inner += features.T @ (weight[:, None] * features)
            total += weight.sum()
            return
        fisher = weight[:, None, None] * fisher
        for row in range(fisher.shape[1]):  # H is symmetric: entries left of the diagonal are not computed
            rest = fisher[:, row, row:, None] * features[:, None]
            self.sums[0][row, :, row:] += (features.T @ rest.flatten(1)).view(-1, *rest.shape[1:])

    def __add__(self, other: Curvature) -> Curvature:
        together = object.__new__(Curvature)
        together.sums = [one + two for one, two in zip(self.sums, other.sums, strict=True)]
        return together

    def spectrum(self, observations: float = 1.0) -> Spectrum:
        """Return the eigenvalues and eigenvectors. `observations` is the weight of an image."""
        if len(self.sums) == 3:
            outer, inner, total = self.sums
            (rows, left), (columns, right) = (torch.linalg.eigh(each) for each in (outer, inner / total))
            values = rows.clamp(min=0)[:, None] * columns.clamp(min=0)
        else:
            whole = self.sums[0].flatten(0, 1).flatten(1)
            values, right = torch.linalg.eigh(whole.triu() + whole.triu(1).T)
            values, left = values.clamp(min=0)[None], torch.ones_like(values[:1, None])
        return Spectrum(observations * values, left, right)


def marginal_precision(values: Tensor, squared: float) -> float:
    """Return the prior precision δ of the largest marginal likelihood.

    log p(Y | δ) = ½ (D log δ − Σ log(λ + δ) − δ ‖θ‖²) + constant. It rises while the number of weights that the data
    determines, Σ λ/(λ + δ), exceeds δ ‖θ‖², and falls afterwards (MacKay 1992).

    Args:
        values: Eigenvalues λ of H.
        squared: ‖θ‖², the sum of squared weights.
    """
    low, high = -WIDEST, WIDEST
    while high - low > 1e-12 * WIDEST:
        middle = (low + high) / 2
        precision = math.exp(middle)
        rises = float((values / (values + precision)).sum()) > precision * squared
        low, high = (middle, high) if rises else (low, middle)
    return math.exp(low)


def negative_log_likelihood(likelihood: str, raw: Tensor, target: Tensor) -> Tensor:
    """Return the loss of the mean prediction of samples, (pixel,).

    raw: (sample, pixel, output); target: (pixel,).
    """
    if likelihood == "categorical":
        of_each = torch.log_softmax(raw, 2)[:, torch.arange(len(target), device=raw.device), target]
    else:
        log_variance = raw[..., 1].clamp(-gaussian.FINITE_LOG_VARIANCE, gaussian.FINITE_LOG_VARIANCE)
        of_each = -gaussian.loss(raw[..., 0], log_variance, target) - 0.5 * math.log(2 * math.pi)
    return math.log(len(raw)) - torch.logsumexp(of_each, 0)


@dataclass(frozen=True)
class Fit:
    """The fit of a Gaussian to the last layers of a network.

    Args:
        likelihood: Likelihood of the network.
        form: Form of the curvature; `auto` is the whole matrix up to LARGEST_WHOLE weights of a layer.
        precision: Prior precision: by the marginal likelihood, by held-out images, or a number.
        observations: Number of observations that an image counts as.
    """

    likelihood: str
    form: Form = "auto"
    precision: Literal["marginal", "validation"] | float = "marginal"
    observations: float = 1.0

    def __call__(self, data: TrainingPixels, trained: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors for `sampled`: of each layer the places, the spectrum of H, and δ."""
        layers = data.network.layers
        if self.likelihood == "categorical" and len(layers) > 1:
            raise InputError(f"logits come from {len(layers)} last layers; a curvature is made of those of one")
        rest, held_out = self.curvatures(data)
        spectra = [(one + two).spectrum(self.observations) for one, two in zip(rest, held_out, strict=True)]
        precisions = self._precisions(spectra, layers, trained)
        if self.precision == "validation":
            alone = [each.spectrum(self.observations) for each in rest]
            factor = self._best_factor(data, alone, self._precisions(alone, layers, trained))
            precisions = [factor * each for each in precisions]
        found = dict[str, Tensor]()
        for number, (layer, spectrum, precision) in enumerate(zip(layers, spectra, precisions, strict=True)):
            found |= {f"{number}.{name}": each for name, each in _tensors(layer, spectrum, precision).items()}
        return found

    def curvatures(self, data: TrainingPixels) -> tuple[list[Curvature], list[Curvature]]:
        """Return H of every layer, over the images that are not held out and over held-out images."""
        layers, parts = data.network.layers, tuple[list[Curvature], ...]()
        for pixels in data:
            parts = parts or tuple([self._empty(layer, pixels.raw.device) for layer in layers] for _ in range(2))
            for part, held_out in zip(parts, (False, True), strict=True):
                chosen = pixels.where(pixels.held_out == held_out)
                matrices = fisher_matrices(self.likelihood, chosen.raw, layers)
                for curvature, features, fisher in zip(part, chosen.features, matrices, strict=True):
                    curvature.add(features, fisher, chosen.weight)
        if not parts:
            raise InputError("no pixel of the training data counts: are there targets?")
        return parts[0], parts[1]

    def _empty(self, layer: LastLayer, device: torch.device) -> Curvature:
        factors = self.form == "kronecker" or (self.form == "auto" and math.prod(layer.shape) > LARGEST_WHOLE)
        # With one output the whole matrix is as small as its factors.
        return Curvature(layer.shape, factors and len(layer.scale) > 1, device)

    def _precisions(
        self, spectra: Sequence[Spectrum], layers: Sequence[LastLayer], trained: Mapping[str, Tensor]
    ) -> list[float]:
        """Return the prior precision of every layer: the given number, or of the largest marginal likelihood."""
        if not isinstance(self.precision, str):
            return [self.precision] * len(layers)
        squares = [float(layer.read(trained).square().sum()) for layer in layers]
        return [marginal_precision(each.values, squared) for each, squared in zip(spectra, squares, strict=True)]

    def _best_factor(self, data: TrainingPixels, spectra: Sequence[Spectrum], precisions: Sequence[float]) -> float:
        """Return the factor of all prior precisions whose samples predict held-out images best."""
        shapes = [(SAMPLES, *each.values.shape) for each in spectra]
        noises = [
            randomness.normal_of(randomness.key(data.key, "validation", number), shape).to(each.values)
            for number, (each, shape) in enumerate(zip(spectra, shapes, strict=True))
        ]
        deviations = [
            [
                each.deviations(noise, factor * precision).view(SAMPLES, *layer.shape)
                for each, noise, precision, layer in zip(spectra, noises, precisions, data.network.layers, strict=True)
            ]
            for factor in FACTORS
        ]
        losses, counted = torch.zeros(len(FACTORS), dtype=torch.float64), 0
        for pixels in data:
            chosen = pixels.where(pixels.held_out)
            counted += len(chosen.target)
            for number, each in enumerate(deviations):
                raw = moved(chosen, each, data.network.layers)
                loss = negative_log_likelihood(self.likelihood, raw, chosen.target)
                losses[number] += float((chosen.weight * loss).sum())
        if not counted:
            raise InputError(
                f"precision=validation holds out one of {HELD_OUT} images of the training data, which has fewer; take "
                f"precision=marginal, or give a number"
            )
        return FACTORS[int(losses.nan_to_num(torch.inf).argmin())]


def moved(pixels: Pixels, deviations: Sequence[Tensor], layers: Sequence[LastLayer]) -> Tensor:
    """Return raw outputs with samples of the last layers, (sample, pixel, output).

    deviations: (sample, output, feature).
    """
    parts = [
        features @ change.mT * torch.tensor(layer.scale).to(change)
        for features, change, layer in zip(pixels.features, deviations, layers, strict=True)
    ]
    return pixels.raw + torch.cat(parts, 2)


def _tensors(layer: LastLayer, spectrum: Spectrum, precision: float) -> dict[str, Tensor]:
    """Return the saved tensors of a layer."""
    places = {"weight": layer.weight, "bias": layer.bias}
    return {
        **{f"{kind}.{place.name}": torch.tensor(place[1:]) for kind, place in places.items() if place is not None},
        "precision": torch.tensor(precision, dtype=torch.float64),
        "values": spectrum.values.cpu(),
        "left": spectrum.left.float().cpu(),
        "right": spectrum.right.float().cpu(),
    }


def sampled(
    posterior: Mapping[str, Tensor], trained: Mapping[str, Tensor], key: Callable[..., int]
) -> dict[str, Tensor]:
    """Return a sample of the weights of a network. Only its last layers differ from the trained weights.

    Args:
        posterior: Tensors of `Fit`.
        trained: Trained weights.
        key: Returns a random key for the number of a layer.
    """
    weights, number = dict(trained), 0
    while f"{number}.values" in posterior:
        owner = f"{number}."
        own = {name.removeprefix(owner): each for name, each in posterior.items() if name.startswith(owner)}
        spectrum = Spectrum(own["values"], own["left"].double(), own["right"].double())
        noise = randomness.normal_of(key(number), spectrum.values.shape).double()
        layer = _placed(own)
        change = spectrum.deviations(noise, own["precision"]).view(layer.shape)
        weights, number = layer.write(weights, layer.read(weights) + change), number + 1
    return weights


def _placed(tensors: Mapping[str, Tensor]) -> LastLayer:
    """Return the places of a layer's weights from saved tensors. Without a bias, the layer has one output."""
    places = {}
    for kind in ("weight", "bias"):
        for name in (name.removeprefix(f"{kind}.") for name in tensors if name.startswith(f"{kind}.")):
            places[kind] = Place(name, *tensors[f"{kind}.{name}"].tolist())
    bias = places.get("bias")
    outputs = 1 if bias is None else bias.stop - bias.start
    return LastLayer(places["weight"], bias, (1.0,) * outputs)
