"""AUSE: exactly, streamed to its bound, with an honest standard error."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from epibench.metrics import Sparsification, ause, sparsification_curves
from epibench.metrics.ranking import bin_edges, bin_index, num_bins, order_key
from metrics.cases import CONVENTIONS

ERRORS = ("rmse", "mae", "brier")
FEW = settings(max_examples=40, deadline=None, derandomize=True)

odd_keys = st.sampled_from([0.0, -0.0, 5e-324, 1e-310, 1e-45, 3e-41, 1.0, 1.0 + 2**-40, 1e30, 1e38, 1e100, np.inf])
# Sums of losses below 1e-307 have no digits left to average in float64: denormal in float32 is small enough.
odd_losses = st.sampled_from([0.0, -0.0, 1e-290, 1e-45, 3e-41, 1.0, 1.0 + 2**-40, 1e30, 1e38, 1e100])


@st.composite
def rankings(draw, max_size=40):
    size = draw(st.integers(1, max_size))
    return tuple(
        np.array(draw(st.lists(st.one_of(st.just(0.0) | st.floats(1e-290, 10), odd), min_size=size, max_size=size)))
        for odd in (odd_keys, odd_losses)
    )


def streamed(uncertainty, loss, error="mae", **options):
    metric = Sparsification(error, **options)
    metric.update(uncertainty, loss)
    return {
        key.removeprefix("ause").lstrip("_").removeprefix("mae").lstrip("_"): float(value)
        for key, value in metric.compute().items()
    }


def assert_bounded(uncertainty, loss, error="mae", **options):
    convention = options.get("convention", "pooled")
    result = streamed(uncertainty, loss, error, **options)
    distance = abs(result[""] - oracles.ause(uncertainty, loss, error, convention))
    assert distance <= result["bound"] + 1e-12


# The exact value


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("error", ERRORS)
@FEW
@given(rankings())
def test_curves_equal_brute_force(error, convention, ranking):
    actual = sparsification_curves(*ranking, error, convention=convention)
    expected = oracles.sparsification_curves(*ranking, error, convention)
    np.testing.assert_allclose(np.stack(actual), np.stack(expected), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("size", [100, 101, 199, 250, 1000])
def test_cuts_equal_brute_force_at_any_number_of_pixels(size, convention):
    uncertainty, loss = np.random.default_rng(size).gamma(2, 1, (2, size))
    expected = oracles.ause(uncertainty, loss, "rmse", convention)
    assert float(ause(uncertainty, loss, convention=convention)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kept", [{"bits": 16}, {"exact": True}])
def test_metric_curves_equal_brute_force(kept):
    uncertainty, loss = np.random.default_rng(0).integers(1, 9, (2, 300)).astype(float)  # alone in their bins
    metric = Sparsification("rmse", **kept)
    metric.update(uncertainty, loss)
    curves = metric.curves()
    expected = oracles.sparsification_curves(uncertainty, loss, "rmse")
    np.testing.assert_allclose(np.stack([curves["curve"], curves["oracle"]]), np.stack(expected), rtol=1e-12)
    np.testing.assert_allclose(curves["error"], expected[0] - expected[1], atol=1e-12)


@pytest.mark.parametrize("error", ERRORS)
def test_perfect_order_has_no_area(error):
    loss = np.random.default_rng(0).gamma(1, 1, 500)
    assert float(ause(3 * loss, loss, error)) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("options", [{}, {"bits": 9}, {"exact": True}])
def test_no_loss_anywhere_is_zero(options):
    assert streamed(np.random.default_rng(0).random(150), np.zeros(150), **options)[""] == 0


@pytest.mark.parametrize("function", [ause, lambda *pair: ause(*pair, convention="gustafsson2020")])
def test_no_pixel_is_nan(function):
    assert bool(function([], []).isnan())


def test_one_pixel_is_zero():
    assert float(ause([0.3], [2.0])) == 0


def test_negative_zero_is_tied_with_zero():
    uncertainty, loss = np.where(np.arange(200) % 2, 0.0, -0.0), np.arange(200.0)
    assert streamed(uncertainty, loss, "mae")[""] == pytest.approx(oracles.ause(np.zeros(200), loss, "mae"), abs=1e-3)


def test_ties_count_with_their_mean():
    loss = np.random.default_rng(0).gamma(1, 1, 400)
    shuffled = [
        float(
            ause(
                np.arange(400) // 100,
                np.concatenate([np.random.default_rng(seed).permutation(part) for part in np.split(loss, 4)]),
            )
        )
        for seed in range(3)
    ]
    np.testing.assert_allclose(shuffled, shuffled[0], rtol=1e-12)


def test_infinite_uncertainty_is_the_most_uncertain():
    uncertainty, loss = np.random.default_rng(0).gamma(1, 1, (2, 200))
    uncertainty[:5] = np.inf
    largest = np.where(np.isinf(uncertainty), 1e6, uncertainty)
    assert float(ause(uncertainty, loss)) == pytest.approx(oracles.ause(largest, loss), abs=1e-12)


# The bound: try to break it


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("bits", [9, 10, 16])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(rankings(max_size=130))
def test_bound_holds_for_nasty_values(bits, convention, ranking):
    if convention == "pooled" or len(ranking[0]) >= 100:  # below, the last cut keeps no pixel: NaN
        assert_bounded(*ranking, bits=bits, convention=convention)


def within_one_bin(size, rng):
    return 1 + np.sort(rng.random(size)) * 1e-4


def known_order(loss):
    """Uncertainties in the order of the losses, each alone in its bin: only the oracle is in doubt."""
    return 2.0 ** (loss.argsort().argsort() - 125), loss


ADVERSARIES = {
    "losses rise within a bin": lambda r, n: (within_one_bin(n, r), np.sort(r.gamma(1, 1, n))),
    "losses fall within a bin": lambda r, n: (within_one_bin(n, r), -np.sort(-r.gamma(1, 1, n))),
    "20 orders of magnitude, rising": lambda r, n: (within_one_bin(n, r), np.sort(10.0 ** r.uniform(-10, 10, n))),
    "20 orders of magnitude, falling": lambda r, n: (within_one_bin(n, r), -np.sort(-(10.0 ** r.uniform(-10, 10, n)))),
    "one outlier last": lambda r, n: (within_one_bin(n, r), np.append(np.full(n - 1, 1e-6), 1.0)),
    "one outlier first": lambda r, n: (within_one_bin(n, r), np.append(1.0, np.full(n - 1, 1e-6))),
    "discrete uncertainty": lambda r, n: (r.integers(0, 3, n) / 2.0, r.gamma(0.1, 1, n)),
    "zero uncertainty in falling order": lambda r, n: (np.zeros(n), -np.sort(-r.gamma(1, 1, n))),
    "half of the losses zero": lambda r, n: (within_one_bin(n, r), np.arange(n) * 2.0 // n),
    "losses whose squares underflow": lambda r, n: (within_one_bin(n, r), 2.0**-600 * (np.arange(n) * 2 // n + 1)),
    "one loss whose square underflows": lambda r, n: (within_one_bin(n, r), np.append(np.zeros(n - 1), 1e-187)),
    "losses whose squares overflow": lambda r, n: (within_one_bin(n, r), 2.0**600 * (np.arange(n) * 2 // n + 1)),
    "denormal losses off the float32 grid": lambda r, n: known_order(
        np.where(np.arange(n) % 2, 2.0**-134 + 0.4 * 2.0**-149, 2.0**-134 - 0.4 * 2.0**-149)
    ),
    "losses on both sides of an edge": lambda r, n: known_order(
        np.where(r.random(n) < 0.5, 1 + 2.0**-25, 1 - 2.0**-25)
    ),
    "losses within a bin": lambda r, n: (r.random(n), 1 + r.random(n) * 0.01),
}


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("bits", [9, 10, 16])
@pytest.mark.parametrize("error", ["rmse", "mae"])
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_bound_holds_against_adversaries(adversary, error, bits, convention):
    uncertainty, loss = ADVERSARIES[adversary](np.random.default_rng(0), 250)
    assert_bounded(uncertainty, loss, error, bits=bits, convention=convention)


def test_bound_allows_for_the_rounding_of_long_sums():
    """Sums of two million squares cannot tell two losses this close apart; they are in different bins, but adjacent."""
    size = 2**21
    loss = 1.84375 * np.repeat([1, 1 + 1.850990407102519e-05], size // 2)
    uncertainty = 1 + np.arange(size) * 1e-10
    result = streamed(uncertainty, loss, "mae")
    assert abs(result[""] - float(ause(uncertainty, loss, "mae"))) <= result["bound"] + 1e-12


def test_bound_is_not_vacuous():
    uncertainty, loss = np.random.default_rng(0).gamma(2, 1, (2, 100_000))
    assert streamed(uncertainty, loss, "rmse")["bound"] < 0.01


# The standard error


@pytest.mark.parametrize("error", ["rmse", "mae"])
def test_standard_error_is_the_spread_of_the_streamed_value(error):
    """The std of streamed − exact over 200 data sets, where the bins are coarse but the oracle's are not.

    200 data sets estimate a std to 1/√400 = 5 %, its mean square's own spread included 10 %: within a factor of 1.3.
    """
    rng = np.random.default_rng(1)
    distances, reported = [], []
    for _ in range(200):
        uncertainty = 1 + rng.random(3000)  # two bins with 9 bits
        loss = 2.0 ** rng.integers(0, 5, 3000)  # alone in their bins: the oracle has no error
        result = streamed(uncertainty, loss, error, bits=9)
        distances.append(result[""] - float(ause(uncertainty, loss, error)))
        reported.append(result["standard_error"])
    ratio = np.std(distances) / np.sqrt(np.mean(np.square(reported)))
    assert 1 / 1.3 < ratio < 1.3


def test_exact_mode_has_neither_bound_nor_standard_error():
    result = streamed(*np.random.default_rng(0).gamma(2, 1, (2, 200)), exact=True)
    assert (result["bound"], result["standard_error"]) == (0, 0)


def test_ten_million_gamma_pixels_are_within_1e_5():
    generator = torch.Generator().manual_seed(0)
    size = 10**7
    # Gamma(2, 1) as the sum of two exponentials; the loss is a squared error whose variance is the uncertainty.
    uncertainty = -(torch.rand(2, size, generator=generator).log()).sum(0)
    loss = uncertainty * torch.randn(size, generator=generator).square()
    assert abs(streamed(uncertainty, loss, "rmse")[""] - float(ause(uncertainty, loss))) <= 1e-5


# The state


def states(metric):
    return {name: state.numpy() for name, state in metric.metric_state.items()}


def assert_same_bits(one, other):
    for name, state in states(one).items():
        np.testing.assert_array_equal(state, states(other)[name], err_msg=name)


@pytest.mark.parametrize("batch", [1000, 65_537, 131_072])
@pytest.mark.usefixtures("two_threads")
def test_states_are_the_same_bit_for_bit_in_any_batches(batch):
    uncertainty, loss = np.random.default_rng(0).gamma(2, 1, (2, 2, 300_000))
    whole, batched = Sparsification(num_draws=2), Sparsification(num_draws=2)
    whole.update(uncertainty, loss)
    for start in range(0, 300_000, batch):
        batched.update(uncertainty[:, start : start + batch], loss[:, start : start + batch])
    assert_same_bits(whole, batched)


@pytest.mark.parametrize("num_draws", [None, 4])
def test_states_do_not_depend_on_the_number_of_threads(num_draws):
    uncertainty, loss = np.random.default_rng(0).gamma(2, 1, (2, num_draws or 1, 300_000))
    before = torch.get_num_threads()
    made = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            made.append(Sparsification(num_draws=num_draws))
            made[-1].update(uncertainty, loss)
    finally:
        torch.set_num_threads(before)
    assert_same_bits(*made)


def test_exact_mode_does_not_keep_the_caller_s_array():
    uncertainty, loss = torch.rand(200), torch.rand(200)
    metric = Sparsification(exact=True)
    metric.update(uncertainty, loss)
    expected = float(ause(uncertainty, loss))
    uncertainty.zero_()
    loss.zero_()
    assert float(metric.compute()["ause"]) == expected


# Bins


@FEW
@given(st.lists(st.floats(0, allow_infinity=True), min_size=1, max_size=40), st.integers(9, 20))
def test_bins_keep_the_order(keys, bits):
    keys = np.sort(np.array(keys))
    assert bool((bin_index(torch.from_numpy(keys), bits).diff() >= 0).all())


@FEW
@given(st.lists(st.floats(0, width=32), min_size=1, max_size=40), st.integers(9, 20))
def test_a_float32_key_lies_between_the_edges_of_its_bin(keys, bits):
    keys = torch.tensor(keys, dtype=torch.float32)
    edges, index = bin_edges(bits, keys.device), bin_index(keys, bits)
    below = torch.where(index > 0, edges[(index - 1).clamp(min=0)], -1.0)
    assert bool(((below < keys) & (keys <= edges[index])).all())


@pytest.mark.parametrize("bits", [9, 16, 20])
def test_only_zero_is_in_the_first_bin(bits):
    keys = torch.tensor([0.0, -0.0, 5e-324, 1e-50, 1e-45], dtype=torch.float64)
    assert (bin_index(keys, bits) == 0).tolist() == [True, True, False, False, False]


def test_infinity_is_in_the_last_bin():
    assert int(bin_index(torch.tensor([torch.inf]), 16)) == num_bins(16) - 1


@pytest.mark.parametrize("bits", [8, 21])
def test_impossible_bits_are_refused(bits):
    with pytest.raises(ValueError, match="bits must lie in"):
        Sparsification(bits=bits)


# Errors


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [("uncertainty", torch.nan), ("uncertainty", -1.0), ("loss", torch.nan), ("loss", -1.0), ("loss", torch.inf)],
)
def test_bad_values_are_refused_by_name(name, value, exact, dtype):
    pixels = {"uncertainty": torch.rand(20).to(dtype), "loss": torch.rand(20).to(dtype)}
    pixels[name][7] = value
    with pytest.raises(ValueError, match=f"1 of 20 values of '{name}'"):
        Sparsification(exact=exact).update(**pixels)


@pytest.mark.parametrize("function", [ause, sparsification_curves])
@pytest.mark.parametrize("pair", [([1.0, np.nan], [1.0, 1.0]), ([1.0, 1.0], [1.0, -1.0]), ([1.0, 1.0], [1.0, np.inf])])
def test_functions_refuse_bad_values(function, pair):
    with pytest.raises(ValueError, match="1 of 2 values"):
        function(*pair)


def test_functions_refuse_other_numbers_of_pixels():
    with pytest.raises(ValueError, match="numbers of pixels differ"):
        ause([1.0, 2.0], [1.0])


@pytest.mark.parametrize("make", [Sparsification, lambda **options: ause([1.0], [1.0], **options)])
def test_an_unknown_error_is_refused(make):
    with pytest.raises(ValueError, match="error 'mse' is unknown"):
        make(error="mse")


@pytest.mark.parametrize("make", [Sparsification, lambda **options: ause([1.0], [1.0], **options)])
def test_an_unknown_convention_is_refused(make):
    with pytest.raises(ValueError, match="convention 'paper' is unknown"):
        make(convention="paper")


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("error", ["rmse", "brier"])
def test_the_inverted_area_is_that_of_the_reversed_order(error, exact):
    rng = np.random.default_rng(0)
    uncertainty, loss = rng.integers(0, 40, 5000) / 8, rng.gamma(1.0, 1.0, 5000)
    metric = Sparsification(error, exact=exact, inverted=True)
    metric.update(uncertainty, loss)
    values = {name: float(value) for name, value in metric.compute().items()}
    expected = oracles.ause(5 - uncertainty, loss, error)
    assert values["ause"] == pytest.approx(oracles.ause(uncertainty, loss, error), abs=values["ause_bound"] + 1e-12)
    assert values["ause_inverted"] == pytest.approx(expected, abs=values["ause_inverted_bound"] + 1e-12)
    assert exact == (values["ause_inverted_bound"] == 0)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("error", ["rmse", "brier"])
def test_the_noise_is_the_std_of_areas_by_random_order(error, exact):
    rng = np.random.default_rng(0)
    loss = rng.gamma(0.5, 1.0, 2000)
    areas = [oracles.ause(rng.random(2000), loss, error) for _ in range(200)]
    metric = Sparsification(error, exact=exact, inverted=True)
    metric.update(rng.random(2000), loss)
    assert float(metric.compute()["ause_inverted_noise"]) == pytest.approx(np.std(areas), rel=0.15)


def test_keys_of_any_sign_keep_their_order():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(size=500) * 10.0 ** rng.uniform(-30, 30, 500), [0.0, -0.0, 1e-45, -1e-45]])
    values = torch.from_numpy(np.sort(values))
    keys = order_key(values)
    assert bool((keys > 0).all())
    assert bool((keys.diff() >= 0).all())
    assert bool((keys.diff() > 0).sum() >= 498)
    assert bool((bin_index(keys, 16).diff() >= 0).all())
