"""What every metric has in common, driven through the whole table."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from epibench import metrics

from .cases import CASES, NUM_DRAWS, PATTERNS, assert_close, assert_within_bound, of_draw, take, updated

FEW = settings(max_examples=12, deadline=None, derandomize=True)
every_case = pytest.mark.parametrize("case", CASES, ids=str)
before_update = pytest.mark.filterwarnings("ignore:The ``compute`` method of metric:UserWarning")

shapes = {
    "seed": st.integers(0, 2**32 - 1),
    "size": st.one_of(st.integers(1, 30), st.integers(100, 400)),
    "pattern": st.sampled_from(PATTERNS),
}


def split(rng, size, parts):
    """Pixel numbers in some order, cut anywhere; some parts may be empty."""
    cuts = np.sort(rng.integers(0, size + 1, parts - 1))
    return np.split(np.arange(size), cuts)


def as_arrays(values):
    return {key: np.asarray(value) for key, value in values.items()}


def assert_same(actual, expected):
    """Equal up to the rounding of sums; of bounds, which are roots of differences of sums, up to the root of it."""
    rough = [key for key in expected if key.endswith(("_bound", "_standard_error"))]
    assert_close(actual, {key: np.asarray(value) for key, value in expected.items() if key not in rough})
    assert_close(actual, {key: np.asarray(expected[key]) for key in rough}, rtol=1e-6, atol=1e-6)


def pickled(metric):
    return pickle.loads(pickle.dumps(metric))  # noqa: S301


def test_every_exported_metric_is_in_the_table():
    exported = {
        value
        for value in (getattr(metrics, name) for name in metrics.__all__)
        if isinstance(value, type) and issubclass(value, metrics.StreamingMetric)
    }
    assert {type(case.make()) for case in CASES} == exported - {metrics.StreamingMetric}


@every_case
@FEW
@given(**shapes)
def test_equals_brute_force(case, seed, size, pattern):
    pixels = of_draw(case.pixels(np.random.default_rng(seed), size, pattern))
    actual = updated(case.make(), pixels).compute()
    assert_within_bound(case, actual, case.expected(**pixels))


@every_case
@FEW
@given(**shapes, parts=st.integers(2, 6))
def test_batches_do_not_matter(case, seed, size, pattern, parts):
    rng = np.random.default_rng(seed)
    pixels = case.pixels(rng, size, pattern)
    whole = updated(case.make(NUM_DRAWS), pixels).compute()
    streamed = updated(case.make(NUM_DRAWS), *(take(pixels, index) for index in split(rng, size, parts))).compute()
    assert_same(streamed, whole)


@every_case
@FEW
@given(**shapes, parts=st.integers(2, 6))
def test_merging_in_any_order_gives_the_whole(case, seed, size, pattern, parts):
    rng = np.random.default_rng(seed)
    pixels = case.pixels(rng, size, pattern)
    shards = [updated(case.make(NUM_DRAWS), take(pixels, index)) for index in split(rng, size, parts)]
    merged = case.make(NUM_DRAWS)
    for shard in rng.permutation(parts):
        merged.merge(shards[shard])
    assert_same(merged.compute(), updated(case.make(NUM_DRAWS), pixels).compute())


@every_case
@FEW
@given(**shapes)
def test_draws_together_equal_draws_one_by_one(case, seed, size, pattern):
    pixels = case.pixels(np.random.default_rng(seed), size, pattern)
    together = updated(case.make(NUM_DRAWS), pixels).compute()
    for draw in range(NUM_DRAWS):
        alone = case.make()
        if "member_mean" in pixels:
            alone = type(alone)(case.make(NUM_DRAWS).weights[draw : draw + 1])
        values = updated(alone, of_draw(pixels, draw)).compute()
        assert_same({key: value[draw] for key, value in together.items()}, {k: v.squeeze() for k, v in values.items()})


@every_case
@pytest.mark.parametrize("num_draws", [None, NUM_DRAWS])
def test_results_have_one_entry_per_draw(case, num_draws):
    pixels = case.pixels(np.random.default_rng(0), 50, "continuous")
    values = updated(case.make(num_draws), pixels if num_draws else of_draw(pixels)).compute()
    leading = () if num_draws is None else (num_draws,)
    assert all(tuple(value.shape)[: len(leading)] == leading for value in values.values())
    name = next(iter(values))
    assert values[name].ndim == len(leading) + name.endswith("_per_class")


@every_case
@pytest.mark.parametrize("num_draws", [None, NUM_DRAWS])
@before_update
def test_nothing_seen_is_nan(case, num_draws):
    value = next(iter(case.make(num_draws).compute().values()))
    assert bool(value.isnan().all())


@every_case
def test_no_pixels_are_nan(case):
    nothing = of_draw(take(case.pixels(np.random.default_rng(0), 10, "continuous"), slice(0, 0)))
    value = next(iter(updated(case.make(), nothing).compute().values()))
    assert bool(value.isnan().all())


@every_case
def test_an_empty_batch_changes_nothing(case):
    pixels = of_draw(case.pixels(np.random.default_rng(0), 150, "continuous"))
    nothing = of_draw(take(case.pixels(np.random.default_rng(0), 10, "continuous"), slice(0, 0)))
    assert_close(
        as_arrays(updated(case.make(), nothing, pixels, nothing).compute()),
        as_arrays(updated(case.make(), pixels).compute()),
        rtol=0,
        atol=0,
    )


@every_case
def test_reset_forgets(case):
    rng = np.random.default_rng(0)
    first, second = (of_draw(case.pixels(rng, 150, "continuous")) for _ in range(2))
    metric = updated(case.make(), first)
    metric.compute()
    metric.reset()
    assert_close(
        as_arrays(updated(metric, second).compute()), as_arrays(updated(case.make(), second).compute()), rtol=0, atol=0
    )


@every_case
def test_an_update_after_compute_counts(case):
    rng = np.random.default_rng(0)
    first, second = (of_draw(case.pixels(rng, 150, "continuous")) for _ in range(2))
    metric = updated(case.make(), first)
    metric.compute()
    assert_close(as_arrays(updated(metric, second).compute()), as_arrays(updated(case.make(), first, second).compute()))


@every_case
def test_merging_leaves_the_other_alone(case):
    rng = np.random.default_rng(0)
    first, second = (updated(case.make(), of_draw(case.pixels(rng, 150, "continuous"))) for _ in range(2))
    before = as_arrays(second.compute())
    first.merge(second)
    updated(first, of_draw(case.pixels(rng, 150, "continuous")))
    second.forget_result()
    assert_close(as_arrays(second.compute()), before, rtol=0, atol=0)


@every_case
def test_merging_into_a_computed_metric_counts(case):
    rng = np.random.default_rng(0)
    first, second = (of_draw(case.pixels(rng, 150, "continuous")) for _ in range(2))
    metric = updated(case.make(), first)
    metric.compute()
    metric.merge(updated(case.make(), second))
    assert_close(as_arrays(metric.compute()), as_arrays(updated(case.make(), first, second).compute()))


@pytest.mark.parametrize("case", [case for case in CASES if case.exact_states], ids=str)
def test_state_size_does_not_depend_on_the_number_of_pixels(case):
    def size(num_pixels):
        pixels = of_draw(case.pixels(np.random.default_rng(0), num_pixels, "continuous"))
        metric = updated(case.make(), pixels, pixels)
        return sum(state.nbytes for state in metric.metric_state.values())

    assert size(1) == size(5000)


@pytest.mark.parametrize("case", [case for case in CASES if case.exact_states], ids=str)
def test_state_is_at_most_4_mib_per_draw(case):
    assert sum(state.nbytes for state in case.make().metric_state.values()) <= 4 * 2**20


@every_case
def test_counts_are_int64_and_sums_float64(case):
    metric = updated(case.make(), of_draw(case.pixels(np.random.default_rng(0), 20, "continuous")))
    tensors = [t for state in metric.metric_state.values() for t in (state if isinstance(state, list) else [state])]
    assert {tensor.dtype for tensor in tensors} <= {torch.int64, torch.float64}


@every_case
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_any_floating_point_type_is_computed_in_float64(case, dtype):
    pixels = of_draw(case.pixels(np.random.default_rng(0), 120, "continuous"))
    narrow = {k: v.astype(dtype) if v.dtype == np.float64 else v for k, v in pixels.items()}
    wide = {k: v.astype(np.float64) if v.dtype == dtype else v for k, v in narrow.items()}
    actual = updated(case.make(), narrow).compute()
    assert_within_bound(case, actual, case.expected(**wide))


@every_case
def test_numpy_and_torch_give_the_same(case):
    pixels = of_draw(case.pixels(np.random.default_rng(0), 120, "continuous"))
    tensors = {key: torch.from_numpy(value.copy()) for key, value in pixels.items()}
    assert_close(
        as_arrays(updated(case.make(), tensors).compute()),
        as_arrays(updated(case.make(), pixels).compute()),
        rtol=0,
        atol=0,
    )


@every_case
def test_images_are_flattened(case):
    pixels = of_draw(case.pixels(np.random.default_rng(0), 120, "continuous"))
    images = {}
    for key, value in pixels.items():
        lead, tail = (value.shape[:1], ()) if key.startswith("member") else ((), value.shape[1:])
        images[key] = value.reshape(*lead, 2, 6, 10, *tail)
    assert_close(
        as_arrays(updated(case.make(), images).compute()),
        as_arrays(updated(case.make(), pixels).compute()),
        rtol=0,
        atol=0,
    )


@every_case
@pytest.mark.usefixtures("two_threads")
def test_more_pixels_than_one_piece(case):
    pixels = case.pixels(np.random.default_rng(0), 50_000, "continuous")
    batches = (take(pixels, slice(start, start + 10_000)) for start in range(0, 50_000, 10_000))
    assert_same(updated(case.make(NUM_DRAWS), pixels).compute(), updated(case.make(NUM_DRAWS), *batches).compute())


@every_case
@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled, lambda metric: metric.clone()])
def test_a_copy_goes_on_by_itself(case, duplicate):
    rng = np.random.default_rng(0)
    first, second = (of_draw(case.pixels(rng, 150, "continuous")) for _ in range(2))
    metric = updated(case.make(), first)
    twin = updated(duplicate(metric), second)
    assert_close(as_arrays(metric.compute()), as_arrays(updated(case.make(), first).compute()), rtol=0, atol=0)
    assert_close(as_arrays(twin.compute()), as_arrays(updated(case.make(), first, second).compute()), rtol=0, atol=0)


@pytest.mark.parametrize("case", [case for case in CASES if case.exact_states], ids=str)
def test_state_dict_round_trip(case):
    pixels = of_draw(case.pixels(np.random.default_rng(0), 150, "continuous"))
    metric = updated(case.make(), pixels)
    metric.persistent(True)
    restored = case.make()
    restored.persistent(True)
    restored.load_state_dict(metric.state_dict())
    restored.mark_updated()
    assert_close(as_arrays(restored.compute()), as_arrays(metric.compute()), rtol=0, atol=0)


@every_case
def test_moving_keeps_the_state(case):
    pixels = of_draw(case.pixels(np.random.default_rng(0), 150, "continuous"))
    metric = updated(case.make(), pixels).to("cpu").float()
    assert_close(as_arrays(metric.compute()), as_arrays(updated(case.make(), pixels).compute()), rtol=0, atol=0)


@every_case
def test_forward_gives_the_batch_and_accumulates(case):
    rng = np.random.default_rng(0)
    first, second = (of_draw(case.pixels(rng, 150, "continuous")) for _ in range(2))
    metric = case.make()
    metric(**first)
    batch = metric(**second)
    assert_close(as_arrays(batch), as_arrays(updated(case.make(), second).compute()))
    assert_close(as_arrays(metric.compute()), as_arrays(updated(case.make(), first, second).compute()))


@every_case
def test_predictions_may_require_gradients(case):
    pixels = of_draw(case.pixels(np.random.default_rng(0), 150, "continuous"))
    tensors = {
        key: torch.from_numpy(value).requires_grad_(value.dtype == np.float64 and key != "target")
        for key, value in pixels.items()
    }
    metric = case.make()
    metric(**tensors)
    metric(**tensors)
    states = metric.metric_state.values()
    assert not any(t.requires_grad for state in states for t in (state if isinstance(state, list) else [state]))


@every_case
def test_wrong_number_of_draws_is_refused(case):
    pixels = case.pixels(np.random.default_rng(0), 10, "continuous")
    wrong = {key: value[:2] if value.ndim > 1 else value for key, value in pixels.items()}
    with pytest.raises(ValueError, match=r"first axis|members differ"):
        case.make(NUM_DRAWS).update(**wrong)


@every_case
def test_different_numbers_of_pixels_are_refused(case):
    pixels = of_draw(case.pixels(np.random.default_rng(0), 10, "continuous"))
    last = list(pixels)[-1]
    with pytest.raises(ValueError, match="numbers of pixels differ"):
        case.make().update(**{**pixels, last: pixels[last][:-1]})


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (case, name)
        for case in CASES
        for name in case.pixels(np.random.default_rng(0), 1, "continuous")
        if name in ("uncertainty", "loss", "std", "variance", "member_variance")
    ],
    ids=str,
)
def test_a_batch_refused_for_its_last_pixel_leaves_no_trace(case, name):
    rng = np.random.default_rng(0)
    good = of_draw(case.pixels(rng, 150, "continuous"))
    bad = of_draw(case.pixels(rng, 50_000, "continuous"))
    bad[name][..., -1] = -1
    metric = updated(case.make(), good)
    with pytest.raises(ValueError, match=name):
        metric.update(**bad)
    assert_close(as_arrays(metric.compute()), as_arrays(updated(case.make(), good).compute()), rtol=0, atol=0)


@pytest.mark.parametrize("num_draws", [0, -1])
@pytest.mark.parametrize("kind", [metrics.RootMeanSquaredError, metrics.Sparsification, metrics.BrierScore])
def test_a_metric_needs_a_draw(kind, num_draws):
    with pytest.raises(ValueError, match="num_draws"):
        kind(num_draws=num_draws)


@every_case
def test_merging_another_kind_is_refused(case):
    other = metrics.BrierScore() if case.name != "BrierScore" else metrics.MeanAbsoluteError()
    with pytest.raises(ValueError, match="cannot merge"):
        case.make().merge(other)


@every_case
def test_merging_another_number_of_draws_is_refused(case):
    with pytest.raises(ValueError, match="cannot merge"):
        case.make(2).merge(case.make(3))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (metrics.Sparsification, {"error": "rmse"}, {"error": "mae"}),
        (metrics.Sparsification, {"bits": 12}, {"bits": 14}),
        (metrics.Sparsification, {"convention": "pooled"}, {"convention": "gustafsson2020"}),
        (metrics.Sparsification, {"exact": True}, {"exact": False}),
        (metrics.Sparsification, {"exact": True, "error": "rmse"}, {"exact": True, "error": "brier"}),
        (metrics.ConfidenceCalibration, {"bins": 10}, {"bins": 15}),
        (metrics.ConfidenceCalibration, {"convention": "pooled"}, {"convention": "gustafsson2020"}),
        (metrics.AdaptiveConfidenceCalibration, {"bins": 10}, {"bins": 15}),
        (metrics.AdaptiveConfidenceCalibration, {"bits": 10}, {"bits": 12}),
        (metrics.NormalisedCalibration, {"bins": 10}, {"bins": 15}),
        (metrics.MeanIoU, {"num_classes": 3}, {"num_classes": 4}),
        (
            metrics.MeanIoU,
            {"num_classes": 3, "convention": "pooled"},
            {"num_classes": 3, "convention": "gustafsson2020"},
        ),
        (metrics.ClassScores, {"num_classes": 3}, {"num_classes": 4}),
        (metrics.ConfidenceCalibration, {"num_classes": 3}, {"num_classes": 4}),
        (metrics.ClassSparsification, {"num_classes": 3}, {"num_classes": 4}),
        (
            metrics.ClassSparsification,
            {"num_classes": 3, "error": "brier"},
            {"num_classes": 3, "error": "rmse"},
        ),
        (metrics.GroupedRootMeanSquaredError, {"num_images": 4}, {"num_images": 8}),
        (metrics.MixtureNLL, {"weights": [[0.5, 0.5]]}, {"weights": [[1.0, 0.0]]}),
        (metrics.MixtureCRPS, {"weights": None}, {"weights": [[0.5, 0.5]]}),
    ],
)
def test_merging_other_settings_is_refused(kind, one, other):
    with pytest.raises(ValueError, match="cannot merge"):
        kind(**one).merge(kind(**other))
