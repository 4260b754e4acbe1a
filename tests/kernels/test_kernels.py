"""Kernels against plain operations: on a GPU compiled, elsewhere by Triton's interpreter on a CPU.

Compiled, every value equals that of the plain way to the last bit; interpreted, `exp`, `log` and `fma` round otherwise.
"""

# ruff: noqa: E402  # Triton may be missing

import pytest
import torch

CUDA = torch.cuda.is_available()

pytest.importorskip("triton", reason="Triton is not installed: it comes with PyTorch for CUDA")

from epibench import kernels
from epibench.data.batch import Batch
from epibench.evaluation.fused import FusedUpdates, layout_of
from epibench.evaluation.loop import evaluate
from epibench.evaluation.suite import Suite, SuiteSettings, make_suite
from epibench.kernels import categorical as categorical_kernels
from epibench.kernels import gaussian as gaussian_kernels
from epibench.kernels import histograms
from epibench.kernels.drawn import DrawnMembers, drawn_members
from epibench.likelihoods import LIKELIHOODS, categorical, gaussian
from epibench.likelihoods.categorical import CategoricalPredictive, combine
from epibench.members.draws import make_draws
from epibench.members.maps import GroupedMaps, WindowMaps, whole, windows_over
from epibench.members.on_images import piece_of
from epibench.members.pool import Pixels
from epibench.metrics import pixel_scores, ranking

DEVICE = "cuda" if CUDA else "cpu"
MEMBERS, CLASSES = 5, 7
# Interpreted kernels divide by zero and take the logarithm of zero aloud.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(params=[None, 1], ids=["one launch", "several launches"])
def _launches(request, monkeypatch) -> None:
    """A launch takes so many blocks of pixels that one suffices, or one block alone."""
    if request.param:
        monkeypatch.setattr(kernels, "MOST_PROGRAMS", request.param)


def draws() -> torch.Tensor:
    return make_draws(MEMBERS, (1, 2, 3, 5), max_draws=3).weights.to(DEVICE)


def nasty_logits(pixels: int = 200, classes: int = CLASSES) -> torch.Tensor:
    """Logits (member, class, pixel) with ties, p = 0 and p = 1."""
    logits = 4 * torch.randn((MEMBERS, classes, pixels), generator=torch.Generator().manual_seed(0))
    logits[:, :, :5] = 0
    logits[:, 0, 5:9] = 900
    logits[1:, -1, 9:12] = 900
    return logits.to(DEVICE)


def targets(pixels: int = 200, classes: int = CLASSES) -> torch.Tensor:
    return torch.randint(0, classes, (pixels,), generator=torch.Generator().manual_seed(1)).to(DEVICE)


def assert_agree(found: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-12, atol: float = 1e-14) -> None:
    if CUDA or not expected.is_floating_point():
        assert torch.equal(found.to(expected.dtype), expected)
    else:
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)


def assert_same_states(found: Suite, expected: Suite) -> None:
    states = found.state()
    for name, value in expected.state().items():
        assert states[name].dtype == value.dtype, name
        rtol = 0 if value.dtype == torch.int64 else 1e-9
        torch.testing.assert_close(
            states[name], value, rtol=rtol, atol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


def plain_predictive(
    monkeypatch: pytest.MonkeyPatch, logits: torch.Tensor, weights: torch.Tensor
) -> CategoricalPredictive:
    with monkeypatch.context() as patch:
        patch.setenv(kernels.CHOICE, "plain")
        return combine({"logits": logits.movedim(1, 2)}, weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_softmax_equals_the_plain_one(monkeypatch, dtype: torch.dtype) -> None:
    logits = nasty_logits().to(dtype)
    expected = plain_predictive(monkeypatch, logits, draws()).member_probs.movedim(2, 1)
    assert_agree(categorical_kernels.softmax(logits), expected)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("grid", [(3, 5), (1, 4), (6, 1)])
def test_refined_softmax_equals_that_of_refined_logits(monkeypatch, align_corners: bool, grid: tuple[int, int]) -> None:
    size, rows = (12, 20), slice(2, 9)
    coarse = torch.randn((MEMBERS, 1, 1, CLASSES, *grid), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    maps = WindowMaps(size, whole(size), {"logits": coarse}, align_corners)
    kept = (torch.arange(7 * 20, device=DEVICE) % 3 > 0).nonzero().squeeze(1)
    for chosen in (None, kept):
        monkeypatch.setenv(kernels.CHOICE, "plain")
        logits = maps.pixels(0, rows, chosen)["logits"].movedim(2, 1)
        expected = plain_predictive(monkeypatch, logits, draws()).member_probs
        monkeypatch.setattr(kernels, "usable", lambda where: True)
        found = maps.pixels(0, rows, chosen)["softmax"]
        monkeypatch.undo()
        assert_agree(found, expected, rtol=1e-5, atol=1e-7)  # on a CPU logits are interpolated in another order


@pytest.mark.usefixtures("_launches")
@pytest.mark.parametrize("with_entropy", [True, False])
@pytest.mark.parametrize("classes", [1, 2, CLASSES])
def test_judging_equals_the_plain_way(with_entropy: bool, classes: int) -> None:
    probs, weights = categorical_kernels.softmax(nasty_logits(classes=classes)), draws()
    target = targets(classes=classes)
    expected = categorical._judge_in_order(probs.movedim(1, 2), weights, target, with_entropy)
    found = categorical_kernels.judge(probs, drawn_members(weights), len(weights), target, with_entropy)
    for values, wanted in zip(found, expected, strict=True):
        assert_agree(values, wanted)


@pytest.mark.usefixtures("_launches")
@pytest.mark.parametrize("classes", [1, CLASSES])
@pytest.mark.parametrize("of_logits", [True, False])
def test_choosing_in_float32_equals_the_plain_way(monkeypatch, classes: int, of_logits: bool) -> None:
    probs = categorical_kernels.softmax(nasty_logits(classes=classes)).movedim(1, 2)
    predictive = CategoricalPredictive(probs, draws(), of_logits)
    monkeypatch.setenv(kernels.CHOICE, "plain")
    expected = predictive.choose_in_float32()
    monkeypatch.setattr(kernels, "usable", lambda where: True)
    for found, wanted in zip(predictive.choose_in_float32(), expected, strict=True):
        assert torch.equal(found.to(wanted.dtype), wanted)


@pytest.mark.parametrize("together", [1, 4, 8])
def test_groups_of_draws_have_every_weight_once(together: int) -> None:
    weights = draws()
    drawn = DrawnMembers.of(weights, together)
    again = torch.zeros_like(weights)
    for group, rows in enumerate(drawn.rows.tolist()):
        for position, row in enumerate(rows):
            for number in range(int(drawn.sizes[group])) if row >= 0 else ():
                again[row, drawn.members[group, number]] += drawn.weights[group, number, position]
    assert torch.equal(again, weights)


@pytest.mark.parametrize("bits", [9, 12, 16])
def test_bins_equal_the_plain_ones(bits: int) -> None:
    keys = torch.rand((3, 3000), dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 9
    keys[0, :4] = torch.tensor([0.0, -0.0, 1e-60, torch.inf])
    for dtype in (torch.float64, torch.float32):
        expected = ranking.bin_index(keys.to(dtype), bits)
        assert torch.equal(histograms.bin_index(keys.to(DEVICE, dtype), bits).cpu(), expected)


@pytest.mark.usefixtures("_launches")
@pytest.mark.parametrize("copies", [1, 3])
def test_tables_equal_those_of_scattering(copies: int) -> None:
    random = torch.Generator().manual_seed(0)
    index, values = torch.randint(0, 50, (4, 2500), generator=random), torch.rand((4, 2500), generator=random).double()
    expected = [torch.zeros((4, 50), dtype=dtype) for dtype in (torch.int64, torch.float64, torch.float64)]
    ranking.accumulate(index, (expected[0], None), (expected[1], values), (expected[2], values[:1].expand(4, -1)))
    tables = [torch.zeros((4, copies * 50), dtype=table.dtype, device=DEVICE) for table in expected]
    there = values.to(DEVICE)
    histograms.accumulate(index.to(DEVICE), copies, (tables[0], None), (tables[1], there), (tables[2], there[:1]))
    for table, wanted in zip(tables, expected, strict=True):
        found = table.view(4, copies, 50).sum(1).cpu()
        torch.testing.assert_close(found, wanted, rtol=0 if wanted.dtype == torch.int64 else 1e-12, atol=0)


def suites(
    weights: torch.Tensor, uncertainty: str, classes: int = CLASSES, published: bool = False
) -> tuple[Suite, Suite]:
    settings = SuiteSettings("categorical", "pooled", uncertainty, None, classes, published)
    both = make_suite(weights, settings), make_suite(weights, settings)
    for suite in both:
        suite.metrics.to(DEVICE)
    return both


@pytest.mark.usefixtures("_launches")
@pytest.mark.parametrize("uncertainty", ["entropy", "confidence"])
@pytest.mark.parametrize("pixels", [200, 0])
@pytest.mark.parametrize("classes", [1, CLASSES])
def test_one_kernel_leaves_the_states_of_the_metrics_own_updates(
    monkeypatch, uncertainty: str, pixels: int, classes: int
) -> None:
    weights, target = draws(), targets(classes=classes)[:pixels]
    predictive = CategoricalPredictive(
        categorical_kernels.softmax(nasty_logits(classes=classes))[:, :, :pixels].movedim(1, 2), weights
    )
    found, expected = suites(weights, uncertainty, classes)
    updates = FusedUpdates(found, layout_of(dict(found.metrics.items())))
    monkeypatch.setenv(kernels.CHOICE, "plain")
    # What judges pixels is compared by itself: here the same scores are counted in two ways.
    judge = categorical_kernels.judge
    monkeypatch.setattr(
        CategoricalPredictive,
        "judge",
        lambda self, target, uncertainty: categorical.Judgement(
            *judge(
                self.member_probs.movedim(2, 1), drawn_members(weights), len(weights), target, uncertainty == "entropy"
            )
        ),
    )
    for _ in range(2):  # states go on from what they have
        assert updates.update(predictive, target)
        expected.update(expected.inputs_of(predictive, target, None))
    assert_same_states(found, expected)
    values = found.compute()
    for name, value in expected.compute().items():
        torch.testing.assert_close(values[name], value, rtol=1e-9, atol=1e-12, equal_nan=True)


def test_pixels_that_are_not_numbers_are_not_counted_but_refused_in_words(monkeypatch) -> None:
    logits, weights = nasty_logits(), draws()
    logits[0, 0, 17] = torch.nan
    suite, _ = suites(weights, "entropy")
    updates = FusedUpdates(suite, layout_of(dict(suite.metrics.items())))
    assert not updates.update(
        CategoricalPredictive(categorical_kernels.softmax(logits).movedim(1, 2), weights), targets()
    )
    assert all(not bool(state.any()) for state in suite.state().values())
    monkeypatch.setattr(FusedUpdates, "of", lambda suite, weights: updates)
    block = Pixels({"logits": logits.movedim(1, 2)}, targets(), None, 200)
    with pytest.raises(ValueError, match="values of 'brier' are NaN"):
        evaluate([block], LIKELIHOODS["categorical"], weights, suite)


def test_a_target_that_is_no_class_is_refused_before_it_is_counted() -> None:
    weights = draws()
    suite, _ = suites(weights, "entropy")
    updates = FusedUpdates(suite, layout_of(dict(suite.metrics.items())))
    target = targets()
    target[3] = 255
    with pytest.raises(ValueError, match="'target' holds 0 … 255, but only 0 … 6 are possible"):
        updates.update(
            CategoricalPredictive(categorical_kernels.softmax(nasty_logits()).movedim(1, 2), weights), target
        )


@pytest.mark.parametrize("form", ["windows", "groups", "full", "nothing valid"])
def test_an_evaluation_has_the_states_of_the_plain_way(monkeypatch, form: str) -> None:
    size, weights = (10, 16), draws()
    windows = windows_over(size, (8, 9), 0.2) if form == "windows" else whole(size)
    grid = (8, 9) if form == "windows" else size
    random = torch.Generator().manual_seed(3)
    logits = 2 * torch.randn((MEMBERS, 1, len(windows), CLASSES, *grid), generator=random).to(DEVICE)
    maps = WindowMaps(size, windows, {"logits": logits})
    grouped = GroupedMaps(maps, [[0, 1], [2], [3, 4, 5]]) if form == "groups" else maps
    classes = 3 if form == "groups" else CLASSES
    target = torch.randint(0, classes, (1, *size), generator=random).to(DEVICE)
    valid = (torch.rand((1, *size), generator=random) < (0 if form == "nothing valid" else 0.8)).to(DEVICE)
    found, expected = suites(weights, "entropy", classes)
    for suite, way in ((found, "kernels"), (expected, "plain")):
        monkeypatch.setattr(
            kernels, "usable", lambda where, way=way: way == "kernels" and isinstance(where, torch.Tensor)
        )
        block = piece_of(Batch({}, target, valid), grouped, 0, slice(0, size[0]), 0)
        evaluate([block], LIKELIHOODS["categorical"], weights, suite)
    assert_same_states(found, expected)
    assert int(found.state()["brier.brier_count"][0]) == int(valid.sum())


def test_beside_the_one_kernel_published_metrics_have_the_states_of_the_plain_way(monkeypatch) -> None:
    weights, block = draws(), Pixels({"logits": 3 * nasty_logits().movedim(1, 2)}, targets(), None, 200)
    both = suites(weights, "entropy", published=True)
    for suite, way in zip(both, ("kernels", "plain"), strict=True):
        monkeypatch.setattr(
            kernels, "usable", lambda where, way=way: way == "kernels" and isinstance(where, torch.Tensor)
        )
        assert (FusedUpdates.of(suite, weights) is not None) == (way == "kernels")
        evaluate([block], LIKELIHOODS["categorical"], weights, suite)
    found, expected = (suite.state() for suite in both)
    names = [name for name in found if "_published." in name]
    assert len(names) == 4
    for name in names:
        assert torch.equal(found[name], expected[name]), name
    assert int(found["reliability_published.bin_counts"][:, -1].sum()) > 50  # a confidence of exactly 1


@pytest.mark.parametrize(
    "change",
    [
        {"uncertainty": "mutual_information"},
        {"num_classes": 65},
        {"convention": "gustafsson2020"},
    ],
)
def test_what_a_kernel_does_not_cover_is_left_to_the_metrics(monkeypatch, change: dict[str, object]) -> None:
    monkeypatch.setattr(kernels, "usable", lambda where: True)
    usual = {"kind": "categorical", "convention": "pooled", "uncertainty": "entropy", "num_classes": 7}
    assert FusedUpdates.of(make_suite(draws(), SuiteSettings(**usual)), draws()) is not None
    assert FusedUpdates.of(make_suite(draws(), SuiteSettings(**usual | change)), draws()) is None


def members() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    mean = 60 + 0.005 * torch.randn((MEMBERS, 300), dtype=torch.float64, generator=random)
    variance = torch.rand((MEMBERS, 300), dtype=torch.float64, generator=random) ** 4
    variance[:, :3] = 0
    mean[:, 0] = 60
    return mean.to(DEVICE), variance.to(DEVICE), mean[0].to(DEVICE).clone()


@pytest.mark.usefixtures("_launches")
def test_moments_of_draws_equal_the_plain_ones() -> None:
    (mean, variance, _), weights = members(), draws()
    found = gaussian_kernels.moments(mean, variance, drawn_members(weights), len(weights))
    drawn = weights @ mean
    expected = (drawn, weights @ variance, gaussian.variance_of_means(mean, drawn, weights))
    for values, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(values, wanted, rtol=1e-9, atol=1e-18)
    assert not bool(found[2][weights.count_nonzero(1) == 1].any())  # one member has no spread at all


@pytest.mark.usefixtures("_launches")
def test_crps_of_mixtures_equals_the_plain_one(monkeypatch) -> None:
    (mean, variance, target), weights = members(), draws()
    monkeypatch.setenv(kernels.CHOICE, "plain")
    expected = pixel_scores.mixture_crps(mean, variance, weights, target)
    monkeypatch.setattr(gaussian_kernels, "DISTANCES", 2000)  # several pieces of pixels
    found = gaussian_kernels.mixture_crps(mean, variance, weights, target)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-14)
