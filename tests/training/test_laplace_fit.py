"""The Gaussian around a last layer: against exact posteriors, brute-force Hessians and searches, and in its memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from epibench import randomness
from epibench.errors import InputError
from epibench.networks.last_layer import LastLayer, LastLayers, Place, Seen
from epibench.training import laplace
from epibench.training.laplace import Curvature, Fit, TrainingPixels, marginal_precision, sampled, values_at
from epibench.training.network import upsampled

Batch = tuple[Tensor, Tensor, Tensor]
CHANNELS = 3


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Softmax:
    """Softmax regression on features, (image, channel, row, column), with logits that are scaled."""

    def __init__(self, num_classes: int = 4, bias: bool = True, scale: float = 1.0, align_corners: bool = True):
        self.scale = (scale,) * num_classes
        self.align_corners = align_corners
        self.weights = {"head.weight": rand(num_classes, CHANNELS, 1, 1, seed=1)}
        if bias:
            self.weights["head.bias"] = rand(num_classes, seed=2)

    def raw(self, features: Tensor, theta: Tensor) -> Tensor:
        weight, bias = theta[:, :CHANNELS], theta[:, CHANNELS:].sum(1)
        logits = torch.einsum("kc,nchw->nkhw", weight, features) + bias[:, None, None]
        return torch.tensor(self.scale).double().view(-1, 1, 1) * logits

    @property
    def layer(self) -> LastLayer:
        number = len(self.scale)
        bias = Place("head.bias", 0, number) if "head.bias" in self.weights else None
        return LastLayer(Place("head.weight", 0, number * CHANNELS), bias, self.scale)

    @property
    def theta(self) -> Tensor:
        return self.layer.read(self.weights)

    def last_layers(self) -> LastLayers:
        def see(features: Tensor) -> Seen:
            return Seen((features,), self.raw(features, self.theta))

        return LastLayers((self.layer,), see, self.align_corners)


def images(number: int = 4, size: tuple[int, int] = (6, 7), coarse: tuple[int, int] = (6, 7)) -> list[Batch]:
    """Two batches with classes and pixels that do not count, of which the class is none."""
    features, classes = rand(number, CHANNELS, *coarse), torch.randint(4, (number, *size))
    valid = rand(number, *size, seed=3) > -0.5
    target = torch.where(valid, classes, 255)
    return list(zip(features.split(3), target.split(3), valid.split(3), strict=True))


def pixels_of(network: LastLayers, batches: Sequence[Batch], **options: Any) -> TrainingPixels:
    return TrainingPixels(network, lambda: batches, 0, **options)


def matrix_of(curvature: Curvature) -> Tensor:
    """H, put together from its eigenvectors."""
    spectrum = curvature.spectrum()
    vectors = torch.kron(spectrum.left.contiguous(), spectrum.right.contiguous())
    return vectors @ torch.diag(spectrum.values.flatten()) @ vectors.T


def fitted_matrices(fit: Fit, pixels: TrainingPixels) -> list[Tensor]:
    return [matrix_of(one + two) for one, two in zip(*fit.curvatures(pixels), strict=True)]


def brute_force_hessian(network: Softmax, batches: Sequence[Batch], class_weights: Sequence[float] | None) -> Tensor:
    """Of the sum over images of the mean loss over valid pixels, by differentiating twice."""

    def loss(flat: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for features, target, valid in batches:
            raw = upsampled(network.raw(features, flat.view_as(network.theta)), target.shape[1:], network.align_corners)
            for logits, labels, here in zip(raw, target, valid, strict=True):
                weights = torch.ones(4) if class_weights is None else torch.tensor(class_weights)
                losses = torch.nn.functional.cross_entropy(logits[:, here].T, labels[here], reduction="none")
                weight = weights.double()[labels[here]]
                total = total + (weight * losses).sum() / weight.sum()
        return total

    return torch.autograd.functional.hessian(loss, network.theta.flatten())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("class_weights", [None, (0.5, 1.0, 2.0, 4.0)])
@pytest.mark.parametrize("coarse", [(6, 7), (3, 4), (1, 2)])
@pytest.mark.parametrize("align_corners", [True, False])
def test_curvature_of_classes_is_the_hessian(
    bias: bool, scale: float, class_weights: Any, coarse: tuple[int, int], align_corners: bool
) -> None:
    network, batches = Softmax(4, bias, scale, align_corners), images(coarse=coarse)
    pixels = pixels_of(network.last_layers(), batches, class_weights=class_weights)
    (found,) = fitted_matrices(Fit("categorical"), pixels)
    torch.testing.assert_close(found, brute_force_hessian(network, batches, class_weights), rtol=1e-9, atol=1e-9)


def test_it_does_not_depend_on_how_many_pixels_are_taken_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = pixels_of(Softmax().last_layers(), images())
    (whole,) = fitted_matrices(Fit("categorical"), pixels)
    monkeypatch.setattr(laplace, "ENTRIES", 100)
    assert pixels.at_once < 10
    (parts,) = fitted_matrices(Fit("categorical"), pixels)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)


def test_two_factors_are_exact_where_all_pixels_have_the_same_probabilities() -> None:
    network = Softmax()
    network.weights = {name: torch.zeros_like(each) for name, each in network.weights.items()}
    pixels = pixels_of(network.last_layers(), images())
    (whole,), (factors,) = (fitted_matrices(Fit("categorical", form), pixels) for form in ("full", "kronecker"))
    torch.testing.assert_close(factors, whole, rtol=1e-10, atol=1e-10)


def test_two_factors_have_the_mean_of_each_part() -> None:
    pixels = pixels_of(Softmax().last_layers(), images())
    (rest,), (held_out,) = Fit("categorical", "kronecker").curvatures(pixels)
    outer, inner, total = (rest + held_out).sums
    (whole,) = fitted_matrices(Fit("categorical", "full"), pixels)
    assert float(total) == pytest.approx(4)
    features = CHANNELS + 1
    of_bias = whole.view(4, features, 4, features)[:, -1, :, -1]  # of a feature that is always 1: Λ itself
    torch.testing.assert_close(outer, of_bias)
    read = list(pixels)
    seen, weight = torch.cat([each.features[0] for each in read]), torch.cat([each.weight for each in read])
    torch.testing.assert_close(inner, sum(w * torch.outer(row, row) for w, row in zip(weight, seen, strict=True)))
    assert not torch.allclose(torch.kron(outer, inner) / total, whole, rtol=0.01)


@pytest.mark.parametrize(("num_classes", "kronecker"), [(4, False), (1000, True)])
def test_a_large_layer_has_two_factors_unless_the_whole_matrix_is_asked_for(num_classes: int, kronecker: bool) -> None:
    layer = LastLayer(Place("weight", 0, 3 * num_classes), None, (1.0,) * num_classes)
    cpu = torch.device("cpu")
    assert (len(Fit("categorical")._empty(layer, cpu).sums) == 3) == kronecker
    assert len(Fit("categorical", "kronecker")._empty(layer, cpu).sums) == 3
    assert len(Fit("categorical", "full")._empty(layer, cpu).sums) == 1


# Regression: a mean and a log variance, each linear in features of its own


class Linear:
    """Bayesian linear regression on points, with noise of known variance: log variances are given, whatever is seen."""

    def __init__(self, scale: float = 1.0):
        self.weights = {"parameters": torch.zeros(2 * (CHANNELS + 1), dtype=torch.float64)}
        self.scale = scale

    def layers(self) -> tuple[LastLayer, LastLayer]:
        size = CHANNELS + 1
        places = [(Place("parameters", start, start + CHANNELS), start + CHANNELS) for start in (0, size)]
        mean, log_variance = ((weight, Place("parameters", bias, bias + 1)) for weight, bias in places)
        return LastLayer(*mean, (self.scale,)), LastLayer(*log_variance, (1.0,))

    def last_layers(self) -> LastLayers:
        mean, log_variance = self.layers()

        def see(features: Tensor) -> Seen:
            ones = torch.cat((features, torch.ones_like(features[:, :1])), 1)
            raw = [self.scale * ones @ mean.read(self.weights).T, ones @ log_variance.read(self.weights).T]
            maps = features[..., None, None]
            return Seen((maps, maps), torch.cat(raw, 1)[..., None, None])

        return LastLayers((mean, log_variance), see)


def regression(number: int = 200) -> tuple[Linear, Tensor, Tensor]:
    """A model with its log variance, and points."""
    model = Linear(scale=10.0)
    model.weights["parameters"][CHANNELS + 1 :] = torch.tensor([0.3, -0.2, 0.1, -1.0])
    features = rand(number, CHANNELS)
    target = 4 * features[:, 0] + 1 + rand(number, seed=5)
    return model, features, target


def exact_posterior(model: Linear, features: Tensor, target: Tensor, precision: float) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the weights of the mean, in closed form."""
    raw = model.last_layers().see(features).raw[:, :, 0, 0]
    design = model.scale * torch.cat((features, torch.ones_like(features[:, :1])), 1)
    weighted = design / raw[:, 1:].exp()
    inverse = torch.linalg.inv(weighted.T @ design + precision * torch.eye(CHANNELS + 1, dtype=torch.float64))
    return inverse @ weighted.T @ target, inverse


def points(features: Tensor, target: Tensor, size: int = 64) -> list[Batch]:
    valid = torch.ones(len(target), dtype=torch.bool)
    return list(zip(features.split(size), target.split(size), valid.split(size), strict=True))


def covariance_of(posterior: dict[str, Tensor], number: int) -> Tensor:
    values, right = posterior[f"{number}.values"].double(), posterior[f"{number}.right"].double()
    return right @ torch.diag(1 / (values[0] + posterior[f"{number}.precision"])) @ right.T


def test_linear_regression_has_its_exact_posterior() -> None:
    model, features, target = regression()
    mean, covariance = exact_posterior(model, features, target, precision=2.0)
    model.weights["parameters"][: CHANNELS + 1] = mean
    posterior = Fit("gaussian", precision=2.0)(pixels_of(model.last_layers(), points(features, target)), model.weights)
    torch.testing.assert_close(covariance_of(posterior, 0), covariance, rtol=1e-4, atol=1e-4 * float(covariance.max()))
    draws = [sampled(posterior, model.weights, lambda layer, n=n: randomness.key(n, layer)) for n in range(4000)]
    drawn = torch.stack([each["parameters"] for each in draws])[:, : CHANNELS + 1]
    errors = covariance.diagonal().sqrt()
    assert float(((drawn.mean(0) - mean) / errors).abs().max()) < 4.5 / math.sqrt(4000)
    whitened = (
        torch.linalg.inv(torch.linalg.cholesky(covariance))
        @ drawn.T.cov()
        @ torch.linalg.inv(torch.linalg.cholesky(covariance)).T
    )
    assert float((whitened - torch.eye(CHANNELS + 1)).abs().max()) < 4.5 * math.sqrt(2 / 4000)


def test_curvature_of_a_log_variance_is_the_expected_hessian() -> None:
    """At targets one standard deviation above and below the mean, which have their expected squared error."""
    model, features, _ = regression(30)
    model.weights["parameters"][: CHANNELS + 1] = rand(CHANNELS + 1, seed=8)
    raw = model.last_layers().see(features).raw[:, :, 0, 0]
    deviation = (raw[:, 1] / 2).exp()
    features, target = features.repeat(2, 1), torch.cat((raw[:, 0] + deviation, raw[:, 0] - deviation))
    found = fitted_matrices(Fit("gaussian"), pixels_of(model.last_layers(), points(features, target)))

    def loss(parameters: Tensor) -> Tensor:
        moved = Linear(model.scale)
        moved.weights = {"parameters": parameters}
        raw = moved.last_layers().see(features).raw[:, :, 0, 0]
        return (0.5 * ((target - raw[:, 0]) ** 2 / raw[:, 1].exp() + raw[:, 1])).sum()

    hessian = torch.autograd.functional.hessian(loss, model.weights["parameters"])
    torch.testing.assert_close(torch.block_diag(*found), hessian, rtol=1e-9, atol=1e-9)


def test_outputs_of_one_layer_can_be_taken_apart() -> None:
    weights = {"head.weight": rand(2, 3, 1, 1), "head.bias": rand(2, seed=1)}
    layer = LastLayer(Place("head.weight", 0, 6), Place("head.bias", 0, 2), (100.0, 1.0))
    features, raw = rand(5, 3, 1, 1), rand(5, 2, 1, 1)
    apart = LastLayers((layer,), lambda inputs: Seen((features,), raw)).apart()
    assert [each.scale for each in apart.layers] == [(100.0,), (1.0,)]
    torch.testing.assert_close(torch.cat([each.read(weights) for each in apart.layers]), layer.read(weights))
    assert [each is features for each in apart.see(None).features] == [True, True]


# The precision of the prior


def log_marginal(values: Tensor, squared: float, precision: float) -> float:
    size = values.numel()
    return 0.5 * (size * math.log(precision) - float(torch.log(values + precision).sum()) - precision * squared)


@pytest.mark.parametrize("seed", range(5))
def test_the_marginal_likelihood_is_largest_at_the_precision_that_is_found(seed: int) -> None:
    values, squared = rand(30, seed=seed).exp().square() * 10 ** (seed - 2), float(rand(1, seed=seed + 9).exp())
    found = marginal_precision(values, squared)
    grid = np.exp(np.linspace(math.log(found) - 12, math.log(found) + 12, 24_001))
    best = grid[int(np.argmax([log_marginal(values, squared, each) for each in grid]))]
    assert found == pytest.approx(best, rel=2e-3)


def test_it_is_that_of_a_linear_model_by_brute_force() -> None:
    """−log p(Y | δ) of linear regression in closed form; at its maximum, weights are those of the posterior."""
    model, features, target = regression()
    raw = model.last_layers().see(features).raw[:, :, 0, 0]
    design = model.scale * torch.cat((features, torch.ones_like(features[:, :1])), 1)

    def log_evidence(log_precision: float) -> float:
        covariance = torch.diag(raw[:, 1].exp()) + design @ design.T / math.exp(log_precision)
        return float(
            torch.distributions.MultivariateNormal(torch.zeros(len(target)).double(), covariance).log_prob(target)
        )

    best = math.exp(max(np.arange(-5, 10, 0.01), key=log_evidence))
    model.weights["parameters"][: CHANNELS + 1], _ = exact_posterior(model, features, target, best)
    posterior = Fit("gaussian")(pixels_of(model.last_layers(), points(features, target)), model.weights)
    assert float(posterior["0.precision"]) == pytest.approx(best, rel=0.01)


def test_weights_of_zero_have_the_narrowest_prior() -> None:
    assert marginal_precision(torch.ones(3), 0.0) == pytest.approx(math.exp(laplace.WIDEST))


class TestValidation:
    def chosen(self, off: float, observations: float) -> float:
        """The factor of the marginal precision, for weights that are off by so many posterior standard deviations."""
        model, features, target = regression(400)
        mean, covariance = exact_posterior(model, features, target, 1.0)
        model.weights["parameters"][: CHANNELS + 1] = mean + off * covariance.diagonal().sqrt()
        fits = [Fit("gaussian", precision=each, observations=observations) for each in ("validation", "marginal")]
        data = pixels_of(model.last_layers(), points(features, target))
        validated, marginal = (float(fit(data, model.weights)["0.precision"]) for fit in fits)
        return validated / marginal

    def test_a_posterior_that_is_too_wide_is_narrowed_and_less_so_around_weights_that_are_far_off(self) -> None:
        near, far = (self.chosen(off, observations=1e-3) for off in (0.0, 20.0))
        assert 1 < far < near

    def test_the_factor_is_one_of_those_that_are_tried(self) -> None:
        found = self.chosen(off=5.0, observations=0.1)
        assert min(abs(math.log(found / factor)) for factor in laplace.FACTORS) < 1e-6

    def test_too_few_images_are_refused(self) -> None:
        model, features, target = regression(4)
        with pytest.raises(InputError, match="one of 5 images"):
            Fit("gaussian", precision="validation")(
                pixels_of(model.last_layers(), points(features, target)), model.weights
            )

    def test_it_takes_held_out_images_alone(self) -> None:
        """Other targets there change the choice, other targets elsewhere do not."""
        model, features, target = regression(50)
        model.weights["parameters"][: CHANNELS + 1], _ = exact_posterior(model, features, target, 1.0)
        held_out = torch.arange(50) % 5 == 4
        fit = Fit("gaussian", precision="validation", observations=1e-3)

        def found(where: Tensor) -> float:
            data = pixels_of(model.last_layers(), points(features, torch.where(where, target + 30, target)))
            return float(fit(data, model.weights)["0.precision"])

        nowhere = found(torch.zeros_like(held_out))
        assert found(~held_out) == nowhere
        assert found(held_out) < nowhere


# What is read of the training data


def test_values_between_grid_points_are_those_of_the_interpolated_map() -> None:
    maps = rand(2, 3, 4, 5)
    for align in (True, False):
        whole = upsampled(maps, (9, 23), align)
        found = values_at(maps, torch.arange(2 * 9 * 23), (9, 23), align)
        torch.testing.assert_close(found, whole.movedim(1, 3).flatten(0, 2))


class TestSomePixels:
    def read(self, batches: Sequence[Batch], num_pixels: int | None) -> list[laplace.Pixels]:
        return list(pixels_of(Softmax().last_layers(), batches, num_pixels=num_pixels))

    def joined(self, read: list[laplace.Pixels]) -> Tensor:
        return torch.cat([torch.cat((each.raw, each.weight[:, None]), 1) for each in read])

    def test_the_same_are_drawn_whatever_the_batches(self) -> None:
        (features, target, valid), *_ = images(3, (40, 50), (40, 50))
        together = [(features, target, valid)]
        alone = list(zip(features.split(1), target.split(1), valid.split(1), strict=True))
        assert torch.equal(self.joined(self.read(together, 100)), self.joined(self.read(alone, 100)))

    def test_there_are_about_as_many_as_asked_for(self) -> None:
        count = len(self.joined(self.read(images(3, (100, 100), (100, 100)), 400)))
        assert abs(count - 1200) < 4.5 * math.sqrt(1200)

    def test_an_image_weighs_one_on_average(self) -> None:
        batches = images(40, (30, 30), (30, 30))
        weights = torch.cat([each.weight for each in self.read(batches, 100)])
        assert abs(float(weights.sum()) - 40) < 4.5 * math.sqrt(40 / 100)

    @pytest.mark.parametrize("num_pixels", [None, 42, 10_000])
    def test_all_are_read_where_there_are_no_more(self, num_pixels: int | None) -> None:
        batches = images()
        read = self.joined(self.read(batches, num_pixels))
        assert len(read) == sum(int(valid.sum()) for _, _, valid in batches)
        assert float(read[:, -1].sum()) == pytest.approx(4)

    def test_an_image_without_valid_pixels_does_not_count(self) -> None:
        features, target, valid = images()[0]
        valid[1] = False
        assert float(self.joined(self.read([(features, target, valid)], None))[:, -1].sum()) == pytest.approx(2)

    def test_training_data_without_any_is_refused(self) -> None:
        features, target, valid = images()[0]
        data = pixels_of(Softmax().last_layers(), [(features, target, torch.zeros_like(valid))])
        with pytest.raises(InputError, match="no pixel of the training data counts"):
            Fit("categorical")(data, Softmax().weights)


class LargestTensor(TorchDispatchMode):
    """Notes the largest storage that any operation makes, in bytes; what was given is none of that."""

    def __init__(self, *given: Tensor) -> None:
        super().__init__()
        self.given = {each.untyped_storage().data_ptr() for each in given}
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple | list) else [found]:
            if isinstance(each, Tensor) and each.untyped_storage().data_ptr() not in self.given:
                self.bytes = max(self.bytes, each.untyped_storage().nbytes())
        return found


@pytest.mark.parametrize("precision", ["marginal", "validation"])
@pytest.mark.parametrize("form", ["full", "kronecker"])
def test_the_largest_tensor_does_not_grow_with_the_number_of_pixels(
    form: Any, precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit over four times as many pixels, of images whose features are as coarse as before."""
    monkeypatch.setattr(laplace, "ENTRIES", 2**11)
    monkeypatch.setattr(laplace, "FACTORS", (1.0, 10.0))
    network = Softmax()

    def largest(size: int) -> int:
        features, target = rand(5, CHANNELS, 4, 4), torch.zeros(5, size, size, dtype=torch.int64)
        valid = torch.ones(5, size, size, dtype=torch.bool)
        data = pixels_of(network.last_layers(), [(features, target, valid)])
        with LargestTensor(features, target, valid) as mode:
            Fit("categorical", form, precision)(data, network.weights)
        return mode.bytes

    assert largest(24) == largest(48) < 5 * 48 * 48 * 8


def test_several_layers_of_logits_are_refused() -> None:
    network = LastLayers((Softmax().layer, Softmax().layer), Softmax().last_layers().see)
    with pytest.raises(InputError, match="2 last layers"):
        Fit("categorical")(pixels_of(network, images()), {})


# Samples


def samples_of(network: Softmax, posterior: dict[str, Tensor], number: int) -> Iterator[dict[str, Tensor]]:
    for each in range(number):
        yield sampled(posterior, network.weights, lambda layer, each=each: randomness.key(7, each, layer))


@pytest.mark.parametrize("form", ["full", "kronecker"])
@pytest.mark.parametrize("bias", [True, False])
def test_samples_have_the_fitted_covariance(form: Any, bias: bool) -> None:
    network = Softmax(bias=bias)
    network.weights["trunk"] = rand(3)
    pixels = pixels_of(network.last_layers(), images())
    fit = Fit("categorical", form, precision=0.5, observations=20.0)
    posterior = fit(pixels, network.weights)
    (matrix,) = fitted_matrices(fit, pixels)
    precision = 20 * matrix + 0.5 * torch.eye(len(matrix))
    drawn = list(samples_of(network, posterior, 3000))
    assert all(torch.equal(each["trunk"], network.weights["trunk"]) for each in drawn)
    change = torch.stack([(network.layer.read(each) - network.theta).flatten() for each in drawn])
    root = torch.linalg.cholesky(precision)
    assert float(((change @ root).T.cov() - torch.eye(len(matrix))).abs().max()) < 4.5 * math.sqrt(2 / 3000)


def test_a_sample_is_a_function_of_its_key() -> None:
    network = Softmax()
    posterior = Fit("categorical", precision=1.0)(pixels_of(network.last_layers(), images()), network.weights)
    (one, two), (again, _) = (list(samples_of(network, posterior, 2)) for _ in range(2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["head.bias"], two["head.bias"])
