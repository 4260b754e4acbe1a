"""Categorical members → predictive of every draw, against brute force in float64: one draw and one pixel at a time."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from epibench.likelihoods import categorical
from epibench.likelihoods.categorical import combine, entropy, loss, slope
from epibench.members.draws import make_draws

in_any_time = settings(deadline=None, max_examples=25)  # the first example waits for torch's threads
DTYPES = (torch.float16, torch.float32, torch.float64)
PAIR = make_draws(2, [2]).weights


def random_probs(seed: int, members: int, pixels: int, classes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Probabilities (member, pixel, class), some of them exactly 0 or 1."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, 0.3), (members, pixels))
    sure = rng.random((members, pixels)) < 0.2
    probs[sure] = np.eye(classes)[rng.integers(0, classes, sure.sum())]
    return torch.from_numpy(probs).to(dtype)


def entropy_of(probs: list[float]) -> float:
    return -math.fsum(p * math.log(p) for p in probs if p > 0)


def brute_force(probs: Tensor, draws: Any) -> dict[str, Tensor]:
    """What each draw's own members say together; `probs` (draw, pixel, class), the others (draw, pixel)."""
    values = probs.to(torch.float64).tolist()
    pixels, classes = range(probs.shape[1]), range(probs.shape[2])
    found: dict[str, list[list[object]]] = {"probs": [], "entropy": [], "mutual_information": []}
    for members in draws.sets:
        mean = [[math.fsum(values[m][p][c] for m in members) / len(members) for c in classes] for p in pixels]
        total = [entropy_of(mean[p]) for p in pixels]
        own = [math.fsum(entropy_of(values[m][p]) for m in members) / len(members) for p in pixels]
        found["probs"].append(list(mean))
        found["entropy"].append(list(total))
        found["mutual_information"].append([a - b for a, b in zip(total, own, strict=True)])
    return {name: torch.tensor(rows, dtype=torch.float64) for name, rows in found.items()}


@in_any_time
@given(seed=st.integers(0, 2**32), members=st.integers(1, 6), pixels=st.integers(1, 5), classes=st.integers(2, 20))
def test_every_draw_equals_brute_force(seed: int, members: int, pixels: int, classes: int) -> None:
    probs = random_probs(seed, members, pixels, classes)
    draws = make_draws(members, range(1, members + 1), seed=seed, max_draws=3)
    found = combine({"probs": probs}, draws.weights)
    for name, values in brute_force(probs, draws).items():
        torch.testing.assert_close(getattr(found, name), values, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_float_comes_out_as_float64(dtype: torch.dtype) -> None:
    probs, draws = random_probs(1, 4, 9, 19, dtype), make_draws(4)
    found = combine({"probs": probs}, draws.weights)
    torch.testing.assert_close(found.probs, brute_force(probs, draws)["probs"], rtol=1e-12, atol=1e-13)


@in_any_time
@given(seed=st.integers(0, 2**32), pixels=st.integers(1, 70), classes=st.integers(2, 33))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["probs", "logits"])
def test_one_member_has_exactly_no_mutual_information(
    name: str, dtype: torch.dtype, seed: int, pixels: int, classes: int
) -> None:
    probs = random_probs(seed, 3, pixels, classes)
    outputs = {name: (probs if name == "probs" else probs.log().clamp(min=-50)).to(dtype)}
    assert (combine(outputs, torch.eye(3)).mutual_information == 0).all()


@pytest.mark.parametrize("members", [2, 3, 7])
def test_identical_members_have_no_mutual_information(members: int) -> None:
    probs = random_probs(2, 1, 50, 19).expand(members, -1, -1)
    found = combine({"probs": probs}, torch.full((1, members), 1 / members, dtype=torch.float64))
    torch.testing.assert_close(found.mutual_information, torch.zeros_like(found.entropy), rtol=0, atol=1e-14)


@in_any_time
@given(seed=st.integers(0, 2**32), classes=st.integers(2, 20))
def test_the_mutual_information_is_at_least_0_and_at_most_the_entropy(seed: int, classes: int) -> None:
    found = combine({"probs": random_probs(seed, 5, 20, classes)}, make_draws(5).weights)
    assert (found.mutual_information >= 0).all()
    assert (found.mutual_information <= found.entropy + 1e-15).all()


def test_members_that_are_sure_of_different_classes_disagree_by_log_2() -> None:
    found = combine({"probs": torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])}, PAIR)
    assert found.mutual_information.item() == pytest.approx(math.log(2), rel=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
def test_probabilities_0_and_1_have_exactly_no_entropy(dtype: torch.dtype) -> None:
    sure = torch.eye(19, dtype=dtype)[None]  # pixel c is sure of class c
    assert (combine({"probs": sure}, torch.ones((1, 1))).entropy == 0).all()


def test_a_probability_that_rounding_has_lifted_above_1_has_no_negative_entropy() -> None:
    assert entropy(torch.tensor([1 + 2.0**-50, 0.0], dtype=torch.float64)) == 0


@pytest.mark.parametrize("classes", [2, 19, 150])
def test_even_probabilities_have_the_greatest_entropy(classes: int) -> None:
    found = entropy(torch.full((classes,), 1 / classes, dtype=torch.float64))
    assert found.item() == pytest.approx(math.log(classes), rel=1e-14)


@in_any_time
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([1.0, 30.0, 1e3]))
def test_logits_equal_their_own_softmax(seed: int, scale: float) -> None:
    logits = scale * torch.from_numpy(np.random.default_rng(seed).standard_normal((3, 5, 19)))
    draws = make_draws(3)
    from_logits = combine({"logits": logits}, draws.weights)
    from_probs = combine({"probs": torch.softmax(logits, 2)}, draws.weights)
    torch.testing.assert_close(from_logits.probs, from_probs.probs, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(from_logits.mutual_information, from_probs.mutual_information, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_of_ten_thousand_are_certain(dtype: torch.dtype) -> None:
    found = combine({"logits": torch.tensor([[[1e4, -1e4, 0.0]]], dtype=dtype)}, torch.ones((1, 1)))
    assert found.probs.flatten().tolist() == [1, 0, 0]
    assert found.entropy.item() == 0


def test_logits_of_float16_are_not_normalised_in_float16() -> None:
    logits = torch.zeros((1, 1, 3), dtype=torch.float16)
    found = combine({"logits": logits}, torch.ones((1, 1)))
    torch.testing.assert_close(found.probs, torch.full_like(found.probs, 1 / 3), rtol=1e-15, atol=0)


def test_equal_logits_of_ten_thousand_share_evenly() -> None:
    found = combine({"logits": torch.full((1, 1, 4), 1e4)}, torch.ones((1, 1)))
    assert found.probs.flatten().tolist() == [0.25] * 4


@in_any_time
@given(seed=st.integers(0, 2**32), pixels=st.integers(1, 40), data=st.data())
@pytest.mark.parametrize("name", ["probs", "logits"])
def test_pixels_can_be_split_anywhere(name: str, seed: int, pixels: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, pixels), max_size=4)))
    values = torch.from_numpy(np.random.default_rng(seed).standard_normal((4, pixels, 19)) * 4)
    values = torch.softmax(values, 2) if name == "probs" else values
    weights = make_draws(4).weights
    whole = combine({name: values}, weights)
    edges = [0, *cuts, pixels]
    parts = [combine({name: values[:, a:b]}, weights) for a, b in itertools.pairwise(edges)]
    for part in ("probs", "entropy", "mutual_information"):
        joined = torch.cat([getattr(found, part) for found in parts], 1)
        torch.testing.assert_close(joined, getattr(whole, part), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["probs", "logits"])
def test_no_pixels_give_an_empty_predictive(name: str) -> None:
    found = combine({name: torch.zeros((3, 0, 19))}, make_draws(3).weights)
    assert found.mutual_information.shape == (len(make_draws(3).sets), 0)


def test_the_layout_of_the_input_does_not_matter() -> None:
    probs = random_probs(5, 4, 31, 19)
    classes_first = probs.movedim(2, 1).contiguous().movedim(1, 2)
    one, other = (combine({"probs": values}, make_draws(4).weights) for values in (probs, classes_first))
    assert torch.equal(one.mutual_information, other.mutual_information)


def test_the_input_is_left_alone() -> None:
    probs = random_probs(6, 4, 31, 19)
    before = probs.clone()
    _ = combine({"probs": probs}, make_draws(4).weights).mutual_information
    assert torch.equal(probs, before)


@pytest.mark.parametrize("kind", ["entropy", "mutual_information"])
def test_each_uncertainty_is_what_it_names(kind: str) -> None:
    found = combine({"probs": random_probs(7, 4, 9, 5)}, make_draws(4).weights)
    assert torch.equal(found.uncertainty(kind), getattr(found, kind))


def test_confidence_as_an_uncertainty_is_1_minus_the_maximum() -> None:
    found = combine({"probs": torch.tensor([[[0.25, 0.75], [1.0, 0.0]]])}, torch.ones((1, 1)))
    assert found.uncertainty("confidence").tolist() == [[0.25, 0.0]]


def test_an_unknown_uncertainty_is_refused() -> None:
    found = combine({"probs": random_probs(7, 4, 9, 5)}, make_draws(4).weights)
    with pytest.raises(ValueError, match="'total' is unknown; there are entropy, mutual_information, confidence"):
        found.uncertainty("total")


def test_a_probability_just_below_zero_does_not_hide_the_entropy():
    probs = torch.tensor([[[0.5, 0.5001, -1e-4]]], dtype=torch.float64)
    predictive = combine({"probs": probs}, torch.ones(1, 1))
    assert float(predictive.entropy) == pytest.approx(0.6931, abs=1e-3)


def judged_by_brute_force(probs: Tensor, target: list[int], draws: Any) -> dict[str, Tensor]:
    """What `judge` gives, one draw and one pixel at a time."""
    averaged = brute_force(probs, draws)
    found: dict[str, list[list[float]]] = {"confidence": [], "predicted": [], "brier": [], "target_probability": []}
    for rows in averaged["probs"].tolist():
        pairs = list(zip(rows, target, strict=True))
        found["confidence"].append([max(row) for row in rows])
        found["predicted"].append([row.index(max(row)) for row in rows])
        found["brier"].append([math.fsum((p - (c == t)) ** 2 for c, p in enumerate(row)) for row, t in pairs])
        found["target_probability"].append([row[t] for row, t in pairs])
    return {name: torch.tensor(rows, dtype=torch.float64) for name, rows in found.items()} | averaged


JUDGES = {"by class": categorical._judge_by_class, "in order": categorical._judge_in_order}


@in_any_time
@given(
    seed=st.integers(0, 2**32),
    members=st.integers(1, 6),
    pixels=st.integers(1, 70),
    classes=st.sampled_from([1, 2, 5, 19]),
    sharp=st.booleans(),
)
@pytest.mark.parametrize("way", JUDGES)
def test_judging_equals_brute_force(way: str, seed: int, members: int, pixels: int, classes: int, sharp: bool) -> None:
    probs = random_probs(seed, members, pixels, classes)
    probs = probs.round() if sharp else probs  # many equal probabilities, and rows that do not sum to 1
    target = torch.from_numpy(np.random.default_rng(seed).integers(0, classes, pixels))
    draws = make_draws(members, range(1, members + 1), seed=seed, max_draws=3)
    expected = judged_by_brute_force(probs, target.tolist(), draws)
    expected["uncertainty"] = expected["entropy"]
    for name, values in JUDGES[way](probs, draws.weights, target, True)._asdict().items():
        torch.testing.assert_close(values.double(), expected[name], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("uncertainty", ["entropy", "mutual_information", "confidence"])
def test_judging_gives_what_asking_one_by_one_gives(uncertainty: str) -> None:
    target = torch.tensor([3, 0, 4, 4, 1, 2, 0])
    found = combine({"probs": random_probs(8, 4, 7, 5)}, make_draws(4).weights)
    judged = found.judge(target, uncertainty)
    torch.testing.assert_close(judged.uncertainty, found.uncertainty(uncertainty), rtol=1e-12, atol=1e-14)
    own = found.probs.gather(2, target.expand(len(found.weights), -1)[:, :, None])[:, :, 0]
    torch.testing.assert_close(judged.target_probability, own, rtol=1e-14, atol=1e-16)
    assert torch.equal(judged.confidence, found.probs.amax(2))


def test_judging_does_not_hold_the_probabilities_of_all_classes() -> None:
    found = combine({"probs": random_probs(8, 4, 7, 5)}, make_draws(4).weights)
    found.judge(torch.zeros(7, dtype=torch.int64))
    assert "probs" not in vars(found)


@pytest.mark.parametrize("way", JUDGES)
def test_judging_leaves_probabilities_that_were_asked_for_alone(way: str) -> None:
    found = combine({"probs": random_probs(8, 4, 7, 5)}, make_draws(4).weights)
    before = found.probs.clone()
    JUDGES[way](found.member_probs, found.weights, torch.zeros(7, dtype=torch.int64), True)
    assert torch.equal(found.probs, before)


@pytest.mark.parametrize("way", JUDGES)
def test_a_brier_score_near_0_keeps_its_digits(way: str) -> None:
    probs = torch.tensor([[[1 - 2.0**-30, 2.0**-30]]], dtype=torch.float64)
    brier = JUDGES[way](probs, torch.ones((1, 1), dtype=torch.float64), torch.tensor([0]), True)[2]
    assert brier.item() == pytest.approx(2.0**-59, rel=1e-9)


@pytest.mark.parametrize("way", JUDGES)
def test_the_first_of_equal_classes_is_predicted(way: str) -> None:
    probs = torch.tensor([[[0.0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]]], dtype=torch.float64)
    predicted = JUDGES[way](probs, torch.ones((1, 1), dtype=torch.float64), torch.tensor([0, 0]), False)[1]
    assert predicted.tolist() == [[1, 0]]


@pytest.mark.parametrize("way", JUDGES)
def test_more_classes_than_a_byte_can_number(way: str) -> None:
    probs = torch.eye(300, dtype=torch.float64)[None, [299, 255, 256, 0]]
    target = torch.tensor([299, 0, 256, 1])
    judged = JUDGES[way](probs, torch.ones((1, 1), dtype=torch.float64), target, True)
    assert judged.predicted.tolist() == [[299, 255, 256, 0]]
    assert judged.brier[0].tolist() == pytest.approx([0, 2, 0, 2], abs=1e-15)


@pytest.mark.parametrize("fast", [True, False])
def test_both_libraries_give_the_same_logarithms(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(categorical, "FAST_NUMPY", fast)
    logits = torch.linspace(-30, 30, 19, dtype=torch.float64)[None, None]
    found = combine({"logits": logits}, torch.ones((1, 1)))
    expected = torch.softmax(logits, 2)
    torch.testing.assert_close(found.probs, expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(found.entropy, torch.special.entr(expected).sum(2), rtol=1e-13, atol=1e-15)


def test_one_member_among_others_has_exactly_no_mutual_information() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    found = combine({"probs": random_probs(9, 3, 501, 19)}, weights).mutual_information
    assert (found[1] == 0).all()
    assert (found[0] > 0).any()


def random_logits(seed: int, scale: float) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(scale * rng.standard_normal((3, 5, 7))), torch.from_numpy(rng.integers(0, 5, (3, 7)))


@in_any_time
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([0.1, 1.0, 100.0]))
def test_the_loss_is_the_negative_log_likelihood(seed: int, scale: float) -> None:
    logits, target = random_logits(seed, scale)
    expected = -torch.distributions.Categorical(logits=logits.movedim(1, 2)).log_prob(target)
    torch.testing.assert_close(loss(logits, target), expected, rtol=1e-10, atol=1e-12)


@in_any_time
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([0.1, 1.0, 100.0]))
def test_the_slope_is_the_derivative_of_the_loss(seed: int, scale: float) -> None:
    logits, target = random_logits(seed, scale)
    leaf = logits.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf, target).sum(), leaf)
    torch.testing.assert_close(slope(logits, target), expected, rtol=1e-12, atol=1e-13)


def test_the_slope_leaves_its_input_alone() -> None:
    logits, target = random_logits(0, 1.0)
    before = logits.clone()
    slope(logits, target)
    assert torch.equal(logits, before)
