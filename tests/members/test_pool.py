"""Pools are evaluated group by group and stretch by stretch; the numbers are those of the whole pool at once."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from epibench.evaluation.loop import Evaluation
from epibench.evaluation.suite import SuiteSettings
from epibench.likelihoods import categorical, gaussian
from epibench.members import stacked
from epibench.members.draws import Draws, make_draws
from epibench.members.pool import parts_of
from epibench.members.stacked import StackedOnPoints, predict
from epibench.plans import Plan

POINTS = 23


def suite_settings(kind: str) -> SuiteSettings:
    uncertainty = {"gaussian": "total", "categorical": "entropy"}[kind]
    return SuiteSettings(kind, "pooled", uncertainty, num_classes=2)


@dataclass(frozen=True)
class GivenPool:
    """Members whose outputs are given; it notes which it is asked for."""

    outputs_of: dict[str, Tensor]
    plan: Plan
    group: tuple[int, ...] | None
    asked: list[tuple[slice, int, int]]

    @property
    def num_members(self) -> int:
        return len(next(iter(self.outputs_of.values())))

    def outputs(self, inputs: Tensor, members: slice, first: int = 0) -> dict[str, Tensor]:
        self.asked.append((members, first, len(inputs)))
        return {name: value[members, first : first + len(inputs)] for name, value in self.outputs_of.items()}


def make_pool(kind: str, plan: Plan = "prefix", grouped: bool = True) -> GivenPool:
    torch.manual_seed(1)
    if kind == "gaussian":
        outputs = {"mean": torch.randn(12, POINTS), "variance": torch.rand(12, POINTS) * 20 + 0.1}
    else:
        outputs = {"probs": torch.softmax(torch.randn(12, POINTS, 2), 2)}
    return GivenPool(outputs, plan, tuple(member // 4 for member in range(12)) if grouped else None, [])


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
@pytest.mark.parametrize(
    ("plan", "grouped"), [("prefix", True), ("spread", True), ("disjoint", True), ("random", False)]
)
@pytest.mark.parametrize("budget", [2**22, 20])
def test_predictions_are_those_of_the_whole_pool(kind, plan, grouped, budget, monkeypatch) -> None:
    monkeypatch.setattr(stacked, "OUTPUTS_AT_ONCE", budget)
    pool = make_pool(kind, plan, grouped)
    draws = make_draws(12, (1, 2, 4), plan=plan, group=pool.group)
    found = predict(pool, draws, kind, torch.zeros(POINTS, 1))
    whole = {"gaussian": gaussian, "categorical": categorical}[kind].combine(pool.outputs_of, draws.weights)
    for name, values in found.items():
        torch.testing.assert_close(values, getattr(whole, name), rtol=1e-12, atol=1e-12)


def test_every_member_is_run_once_for_each_point() -> None:
    pool = make_pool("gaussian")
    draws = make_draws(12, (1, 2, 4), plan="prefix", group=pool.group)
    predict(pool, draws, "gaussian", torch.zeros(POINTS, 1))
    assert pool.asked == [(slice(start, start + 4), 0, POINTS) for start in (0, 4, 8)]


def test_groups_are_taken_apart_only_where_draws_stay_within_them() -> None:
    for plan, count in (("prefix", 3), ("spread", 3), ("disjoint", 1), ("random", 1)):
        pool = make_pool("gaussian", plan)
        draws = make_draws(12, (1, 2), plan=plan, group=pool.group)
        assert len(parts_of(pool, draws)) == count


def test_groups_without_a_draw_are_not_run() -> None:
    pool = make_pool("gaussian")
    draws = make_draws(12, (2,), plan="prefix", group=pool.group, max_draws=2)
    predict(pool, draws, "gaussian", torch.zeros(POINTS, 1))
    assert [members for members, _, _ in pool.asked] == [slice(0, 4), slice(4, 8)]


def test_draws_that_cross_groups_are_not_taken_apart() -> None:
    pool = make_pool("gaussian", "spread")
    draws = make_draws(12, (4,), plan="random", max_draws=5)
    found = predict(pool, draws, "gaussian", torch.zeros(POINTS, 1))
    torch.testing.assert_close(found["mean"], draws.weights @ pool.outputs_of["mean"].double())


def test_the_variance_is_limited_where_asked() -> None:
    pool = make_pool("gaussian")
    draws = make_draws(12, (1,), plan="prefix", group=pool.group)
    limited = predict(pool, draws, "gaussian", torch.zeros(POINTS, 1), 7.0)["aleatoric"]
    free = predict(pool, draws, "gaussian", torch.zeros(POINTS, 1))["aleatoric"]
    assert free.max() > limited.max()
    assert limited.max() == 7.0


def score(
    pool: GivenPool, draws: Draws, kind: str, target: Tensor
) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    evaluation = Evaluation(
        StackedOnPoints(pool, SimpleNamespace(inputs=torch.zeros(POINTS, 1), target=target)),
        draws,
        suite_settings(kind),
    )
    evaluation.run()
    return evaluation.results()


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_scores_do_not_depend_on_parts(kind, monkeypatch) -> None:
    pool = make_pool(kind)
    target = torch.randn(POINTS) if kind == "gaussian" else torch.randint(0, 2, (POINTS,))
    draws = make_draws(12, (1, 2, 4), plan="prefix", group=pool.group)
    values, curves = score(pool, draws, kind, target)
    whole = GivenPool(pool.outputs_of, "disjoint", None, [])  # its plan makes it one part; the draws are the same
    other, other_curves = score(whole, draws, kind, target)
    assert values.keys() == other.keys()
    for name in values:
        torch.testing.assert_close(values[name], other[name], rtol=1e-9, atol=1e-9)
    for family in curves:
        for name in curves[family]:
            torch.testing.assert_close(
                curves[family][name], other_curves[family][name], rtol=1e-9, atol=1e-9, equal_nan=True
            )


def test_progress_hears_of_every_draw() -> None:
    pool, heard = make_pool("gaussian"), []
    draws = make_draws(12, (1, 2), plan="prefix", group=pool.group)
    predict(pool, draws, "gaussian", torch.zeros(POINTS, 1), progress=heard.append)
    assert sum(heard) == len(draws.sets)
