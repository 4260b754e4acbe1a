"""Stacked training: bit for bit the same alone, among others, cut anywhere; and the same as an ordinary loop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from epibench import randomness
from epibench.networks.mlp import StackedMLP
from epibench.training import stacked
from epibench.training.rules import SGD, Adam, Rule, RuleState, Schedule, Step, constant, poly
from epibench.training.stacked import OBJECTIVES, Block, Keys, StackedTraining, part_of, start, train, trained
from epibench.training.state import DivergedError, TrainingCallbacks, TrainingState
from small_pools import method_of
from toy_points import toy_points

in_any_time = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
PROBLEMS = ("regression", "classification")
CPU = torch.device("cpu")
POINTS = 70  # batches of 32, 32 and 6


def make_training(problem: str, **changes: object) -> StackedTraining:
    """Three epochs of Adam on few points."""
    regression = problem == "regression"
    network = StackedMLP(1, 1, heads=2) if regression else StackedMLP(2, 2)
    training = StackedTraining(
        network=network,
        objective=OBJECTIVES["gaussian" if regression else "categorical"],
        data=toy_points("toy-regression" if regression else "toy-classification", POINTS),
        rule=Adam(),
        schedule=constant(1e-2),
        num_epochs=3,
        batch_size=32,
        keep=(3,),
    )
    return replace(training, **changes)


def cyclical(rate: float, num_cycles: int) -> Schedule:
    options = {"num_cycles": num_cycles, "num_epochs": num_cycles, "exploration": 0.4}
    return method_of("cyclical", learning_rate=rate, **options).schedule


def keys_of(members: range) -> Keys:
    return Keys.of(0, "test", members, CPU)


LANGEVIN = method_of("sgld").rule
WARMED = method_of("sgld", num_epochs=4, warm_up_epochs=1, learning_rate=1e-4, preconditioned=True)
VARIANTS: dict[str, dict[str, object]] = {
    "adam": {},
    "momentum": {"rule": SGD(0.9), "schedule": poly(0.01)},
    "dropout": {"dropout": 0.2},
    "langevin": {"rule": LANGEVIN, "schedule": poly(0.01)},
    "hamiltonian": {"rule": method_of("sghmc").rule, "schedule": poly(0.001)},
    "cyclical": {"rule": LANGEVIN, "schedule": cyclical(0.01, 2), "num_epochs": 8, "keep": (8,)},
    "no prior": {"prior_precision": 0.0},
    "warmed up": {"rule": WARMED.rule, "schedule": WARMED.schedule, "num_epochs": 4, "keep": (4,)},
}
every_problem = pytest.mark.parametrize("problem", PROBLEMS)
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def assert_same_alone(training: StackedTraining, first: int, count: int, batch_size: int) -> None:
    """Some of twelve members come out as they do among the twelve."""
    training = replace(training, num_epochs=2, keep=(2,), batch_size=batch_size)
    among, members = trained(training, keys_of(range(12))), range(12)[first : first + count]
    assert torch.equal(trained(training, keys_of(members)), among[members[0] : members[-1] + 1])


class TestAlone:
    @every_problem
    @every_variant
    @in_any_time
    @given(first=st.integers(0, 11), count=st.integers(1, 12), batch_size=st.sampled_from([2, 32, 50, 70, 100]))
    def test_members_are_the_same_alone_as_among_others(
        self, problem: str, variant: str, first: int, count: int, batch_size: int
    ) -> None:
        assert_same_alone(make_training(problem, **VARIANTS[variant]), first, count, batch_size)

    @every_problem
    @in_any_time
    @given(first=st.integers(0, 11), count=st.integers(1, 12), batch_size=st.sampled_from([1, 7, 23, 31, 33, 69]))
    def test_also_in_batches_of_odd_size(self, problem: str, first: int, count: int, batch_size: int) -> None:
        """Where the matrices of neighbours do not begin at like addresses."""
        assert_same_alone(make_training(problem), first, count, batch_size)

    @every_problem
    def test_member_1000_of_1024_is_the_same_alone(self, problem: str) -> None:
        training = make_training(problem, num_epochs=1, keep=(1,))
        alone, among = (trained(training, keys_of(members)) for members in (range(1000, 1001), range(1024)))
        assert torch.equal(alone[0], among[1000])

    @every_problem
    @every_variant
    def test_the_number_of_threads_does_not_matter(
        self, problem: str, variant: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stacked, "BLOCK", 4)
        training, found = make_training(problem, **VARIANTS[variant]), []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(trained(training, keys_of(range(9))))
        torch.set_num_threads(1)
        assert torch.equal(*found)

    def test_members_differ(self) -> None:
        found = trained(make_training("regression"), keys_of(range(8)))[:, 0]
        assert len(torch.unique(found, dim=0)) == 8


class TestOneStart:
    def test_all_members_begin_equal_and_end_different(self) -> None:
        training, keys = make_training("regression"), Keys.of(0, "test", range(8), CPU, one_start=True)
        assert len(torch.unique(start(training, keys).parameters, dim=0)) == 1
        assert len(torch.unique(trained(training, keys)[:, 0], dim=0)) == 8

    def test_member_0_is_that_of_the_plain_ensemble_and_the_others_are_not(self) -> None:
        training = make_training("classification")
        plain, fixed = (trained(training, Keys.of(0, "test", range(4), CPU, one)) for one in (False, True))
        assert [torch.equal(*pair) for pair in zip(plain, fixed, strict=True)] == [True, False, False, False]

    def test_members_without_member_0_start_where_it_starts(self) -> None:
        training = make_training("regression")
        later, all_of_them = (Keys.of(0, "test", members, CPU, one_start=True) for members in (range(3, 5), range(5)))
        assert torch.equal(trained(training, later), trained(training, all_of_them)[3:])

    def test_order_and_dropout_remain_their_own(self) -> None:
        plain, fixed = (Keys.of(0, "test", range(4), CPU, one) for one in (False, True))
        for purpose in ("order", "noise", "dropout"):
            assert torch.equal(getattr(plain, purpose), getattr(fixed, purpose))


def one_epoch_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "next_segment", lambda epochs, seconds: 1)


def states_of(training: StackedTraining, monkeypatch: pytest.MonkeyPatch) -> list[TrainingState]:
    """The state after every epoch, copied: training goes on in the tensors of the one before."""
    states: list[TrainingState] = []

    def copy(state: TrainingState) -> None:
        rule = {name: values.clone() for name, values in state.rule.items()}
        states.append(replace(state, parameters=state.parameters.clone(), rule=rule))

    with monkeypatch.context() as patch:
        one_epoch_segments(patch)
        train(training, keys_of(range(5)), callbacks=TrainingCallbacks(save=copy))
    return states


def kept_after(training: StackedTraining, state: TrainingState) -> dict[int, Tensor]:
    """What is kept of a training that goes on from a state, by epoch."""
    kept: dict[int, Tensor] = {}
    callbacks = TrainingCallbacks(keep=lambda epoch, weights: kept.update({epoch: weights["parameters"]}))
    train(training, keys_of(range(5)), state, callbacks)
    return kept


class TestResume:
    @every_problem
    @every_variant
    def test_from_any_epoch_is_bit_for_bit_the_uninterrupted_run(
        self, problem: str, variant: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        training = make_training(problem, **VARIANTS[variant])
        training = replace(training, num_epochs=8, keep=(2, 5, 8))
        monkeypatch.setattr(stacked, "next_segment", lambda epochs, seconds: 100)
        whole = dict(zip(training.keep, trained(training, keys_of(range(5))).unbind(1), strict=True))
        states = states_of(training, monkeypatch)
        assert [state.step for state in states] == list(range(1, 9))
        assert torch.equal(states[-1].parameters, whole[8])
        for state in states:
            kept = kept_after(training, state)
            assert list(kept) == [epoch for epoch in (2, 5, 8) if epoch > state.step]
            assert all(torch.equal(each, whole[epoch]) for epoch, each in kept.items()), f"from epoch {state.step}"

    @every_variant
    def test_segments_do_not_matter(self, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """How long a segment is depends on the clock; what comes out must not."""
        training, found = replace(make_training("regression", **VARIANTS[variant]), num_epochs=12, keep=(12,)), []
        for epochs in (1, 2, 5, 100):
            monkeypatch.setattr(stacked, "next_segment", lambda *_, epochs=epochs: epochs)
            found.append(trained(training, keys_of(range(3))))
        assert all(torch.equal(found[0], each) for each in found[1:])

    def test_from_the_end_nothing_happens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        training = make_training("regression")
        last, told = states_of(training, monkeypatch)[-1], []
        before = last.parameters.clone()
        callbacks = TrainingCallbacks(
            lambda *progress: told.append(progress), told.append, told.append, lambda *kept: told.append(kept)
        )
        train(training, keys_of(range(5)), last, callbacks)
        assert torch.equal(last.parameters, before)
        assert told == []

    def test_every_segment_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one_epoch_segments(monkeypatch)
        epochs: list[int] = []
        saved: list[int] = []
        callbacks = TrainingCallbacks(
            progress=lambda step, note: epochs.append(step), save=lambda state: saved.append(state.step)
        )
        train(make_training("regression"), keys_of(range(2)), callbacks=callbacks)
        assert epochs == saved == [1, 2, 3]


class TestNextSegment:
    @given(epochs=st.integers(1, 10**5), seconds=st.floats(0, 1e4))
    def test_is_at_least_one_epoch_and_at_most_four_times_as_long(self, epochs: int, seconds: float) -> None:
        assert 1 <= stacked.next_segment(epochs, seconds) <= 4 * epochs

    def test_settles_at_the_intended_time(self) -> None:
        assert stacked.next_segment(100, 2 * stacked.SEGMENT_SECONDS) == 50


class TestKept:
    @every_problem
    def test_kept_epochs_are_the_parameters_at_their_ends(self, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
        training = make_training(problem, num_epochs=6, keep=(1, 4, 6))
        states, kept = states_of(training, monkeypatch), trained(training, keys_of(range(5)))
        assert kept.shape == (5, 3, training.network.num_parameters)
        for position, epoch in enumerate(training.keep):
            assert torch.equal(kept[:, position], states[epoch - 1].parameters)

    def test_training_ends_with_the_last_of_them(self) -> None:
        """The schedule is still that of all epochs."""
        epochs: list[int] = []
        training = make_training("regression", num_epochs=6, keep=(2, 4), schedule=poly(0.01))
        train(training, keys_of(range(2)), callbacks=TrainingCallbacks(progress=lambda step, note: epochs.append(step)))
        assert epochs[-1] == 4
        longer = trained(replace(training, keep=(2, 4, 6)), keys_of(range(2)))
        assert torch.equal(trained(training, keys_of(range(2))), longer[:, :2])


class Plain(nn.Module):
    """One member as anybody would write it: a network for each head, in float64."""

    def __init__(self, network: StackedMLP, flat: Tensor):
        super().__init__()
        sizes = (network.num_inputs, *network.hidden, network.num_outputs)
        self.heads = nn.ModuleList()
        for _ in range(network.heads):
            layers: list[nn.Module] = []
            for before, after in itertools.pairwise(sizes):
                layers += [nn.Linear(before, after), nn.ReLU()]
            self.heads.append(nn.Sequential(*layers[:-1]))
        self.double()
        nn.utils.vector_to_parameters(flat.clone(), self.parameters())

    def forward(self, inputs: Tensor, masks: Tensor | None) -> list[Tensor]:
        if masks is None:
            return [head(inputs) for head in self.heads]
        return [head[2:](head[:2](inputs) * mask.T) for head, mask in zip(self.heads, masks, strict=True)]


def plain_loss(problem: str, outputs: list[Tensor], target: Tensor) -> Tensor:
    """The mean over a batch of the negative log-likelihood without its constant."""
    if problem == "classification":
        return nn.functional.cross_entropy(outputs[0], target)
    mean, log_variance = (output[:, 0] for output in outputs)
    return (0.5 * ((target - mean) ** 2 / log_variance.exp() + log_variance)).mean()


def plain_training(
    problem: str,
    training: StackedTraining,
    initial: Tensor,
    order_key: Tensor,
    masks: Callable[[int, int], Tensor | None],
) -> Tensor:
    """An ordinary loop over epochs and batches with autograd and torch.optim.Adam."""
    model, data = Plain(training.network, initial), training.data
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    number = 0
    for epoch in range(training.num_epochs):
        order = randomness.permutations(order_key, epoch, len(data.target))[0]
        for batch in order.split(training.batch_size):
            loss = plain_loss(problem, model(data.inputs[batch], masks(number, len(batch))), data.target[batch])
            prior = sum((weight**2).sum() for weight in model.parameters()) / 2
            loss = loss + training.prior_precision * prior / len(data.target)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            number += 1
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def in_double(training: StackedTraining, keys: Keys) -> tuple[StackedTraining, TrainingState]:
    inputs, target = training.data.inputs.double(), training.data.target
    data = replace(training.data, inputs=inputs, target=target.double() if target.is_floating_point() else target)
    parameters = training.network.initialise(keys.initial).double()
    return replace(training, data=data), TrainingState(0, parameters, training.rule.start(parameters))


class TestOrdinaryLoop:
    @every_problem
    @pytest.mark.parametrize("prior_precision", [0.0, 1.0, 100.0])
    @pytest.mark.parametrize("dropout", [0.0, 0.2])
    def test_reaches_the_same_weights(self, problem: str, prior_precision: float, dropout: float) -> None:
        keys = keys_of(range(3))
        training = make_training(problem, prior_precision=prior_precision, dropout=dropout)
        training, state = in_double(training, keys)
        initial = state.parameters.clone()
        train(training, keys, state)
        found = state.parameters
        heads = training.network.heads
        for member in range(3):
            block = Block(training, keys, part_of(state, slice(0, 3)), {})
            own = slice(member * heads, (member + 1) * heads)
            expected = plain_training(
                problem,
                training,
                initial[member],
                keys.order[member : member + 1],
                lambda number, points, block=block, own=own: block.dropout(number, points)[own] if dropout else None,
            )
            assert (expected - initial[member]).abs().max() > 0.05
            torch.testing.assert_close(found[member], expected, rtol=1e-9, atol=1e-10)


@dataclass(frozen=True)
class Recorder:
    """A rule that moves nothing and remembers what it was given."""

    steps: list[Step] = field(default_factory=list)
    noisy: bool = True
    decoupled: bool = False

    def start(self, parameters: Tensor) -> RuleState:
        return {}

    def update(self, parameters: Tensor, gradient: Tensor, state: RuleState, step: Step) -> None:
        self.steps.append(step)


def recorded(members: range = range(3), **changes: object) -> list[Step]:
    rule: Rule = Recorder()
    train(make_training("regression", **{"schedule": constant(0.1), **changes, "rule": rule}), keys_of(members))
    return rule.steps


class TestSteps:
    def test_are_numbered_from_1_through_all_epochs(self) -> None:
        assert [step.number for step in recorded()] == list(range(1, 10))

    def test_the_schedule_ends_with_the_last_step(self) -> None:
        rates = [step.pace.rate for step in recorded(schedule=poly(1.0, 1.0))]
        assert rates == pytest.approx([1 - number / 9 for number in range(1, 10)])

    def test_know_the_number_of_points_not_of_the_batch(self) -> None:
        assert {step.num_points for step in recorded()} == {POINTS}

    def test_a_rule_without_noise_gets_none(self) -> None:
        rule = Recorder(noisy=False)
        train(make_training("regression", rule=rule), keys_of(range(2)))
        assert {step.noise for step in rule.steps} == {None}


class TestNoise:
    @pytest.fixture(scope="class")
    def steps(self) -> list[Step]:
        return recorded(range(20), num_epochs=20, keep=(20,))

    @pytest.fixture(scope="class")
    def noise(self, steps: list[Step]) -> Tensor:
        """(step, member, parameter)."""
        return torch.stack([step.noise for step in steps]).double()

    def test_is_standard_normal(self, noise: Tensor) -> None:
        assert abs(float(noise.mean())) < 4.5 / math.sqrt(noise.numel())
        assert abs(float(noise.square().mean()) - 1) < 4.5 * math.sqrt(2 / noise.numel())

    def test_is_different_for_every_step_and_member(self, noise: Tensor) -> None:
        rows = noise.flatten(0, 1)
        assert len(torch.unique(rows, dim=0)) == len(rows)

    def test_is_uncorrelated_between_steps_and_between_parameters(self, noise: Tensor) -> None:
        steps = np.corrcoef(noise.flatten(1))  # 60 steps of 20 · 282 numbers
        assert np.abs(steps[np.triu_indices(60, 1)]).max() < 5 / math.sqrt(20 * 282)
        parameters = np.corrcoef(noise.flatten(0, 1).T)  # 282 parameters of 60 · 20 numbers
        assert np.abs(parameters[np.triu_indices(282, 1)]).max() < 5.5 / math.sqrt(60 * 20)

    def test_a_step_has_the_same_noise_after_steps_without(self, steps: list[Step]) -> None:
        """Exploration asks for none; the numbers that come after it must not depend on that."""
        some = recorded(range(20), num_epochs=20, keep=(20,), schedule=cyclical(0.1, 4))
        assert {step.pace.temperature for step in some} == {0.0, 1.0}
        for step, every in zip(some, steps, strict=True):
            assert (step.noise is None) == (step.pace.temperature == 0)
            assert step.noise is None or torch.equal(step.noise, every.noise), f"step {step.number}"

    def test_of_the_smallest_networks(self) -> None:
        """One weight and one bias make one pair."""
        network = StackedMLP(1, 1, hidden=())
        steps = recorded(network=network, objective=OBJECTIVES["direct"])
        assert all(step.noise.shape == (3, 2) for step in steps)


class TestDropout:
    @pytest.fixture(scope="class")
    def block(self) -> Block:
        training, keys = make_training("regression", dropout=0.3), keys_of(range(40))
        return Block(training, keys, start(training, keys), {})

    @pytest.fixture(scope="class")
    def masks(self, block: Block) -> Tensor:
        """(step, network, unit, point)."""
        return torch.stack([block.dropout(number, 32) for number in range(20)])

    def test_drops_at_its_rate_and_scales_the_rest(self, masks: Tensor) -> None:
        dropped = (masks == 0).double()
        assert abs(float(dropped.mean()) - 0.3) < 4.5 * math.sqrt(0.21 / dropped.numel())
        assert torch.allclose(masks[masks != 0], torch.tensor(1 / 0.7))

    def test_every_step_head_and_member_has_its_own_mask(self, masks: Tensor) -> None:
        rows = masks.flatten(0, 1).flatten(1)
        assert len(torch.unique(rows, dim=0)) == len(rows) == 20 * 80

    def test_a_smaller_batch_sees_the_first_points_of_the_mask(self, block: Block, masks: Tensor) -> None:
        assert torch.equal(block.dropout(3, 6), masks[3, :, :, :6])


class TestDivergence:
    def test_names_the_members_and_the_epoch(self) -> None:
        training, keys = make_training("regression"), keys_of(range(6))
        state = start(training, keys)
        state.parameters[[1, 4]] = 1e30
        with pytest.raises(DivergedError, match="NaN or infinite weights by epoch 1") as caught:
            train(training, keys, state)
        assert caught.value.networks == [1, 4]

    def test_is_found_where_all_diverge(self) -> None:
        with pytest.raises(DivergedError) as caught:
            train(make_training("regression", rule=SGD(), schedule=constant(1e6)), keys_of(range(3)))
        assert caught.value.networks == [0, 1, 2]

    def test_others_go_on_where_networks_that_diverge_are_dropped(self) -> None:
        training, keys = make_training("regression", drop_diverged=True), keys_of(range(6))
        state = start(training, keys)
        state.parameters[[1, 4]] = 1e30
        train(training, keys, state)
        expected = trained(training, keys)[:, 0]
        assert torch.isfinite(state.parameters).all(1).tolist() == [True, False, True, True, False, True]
        assert torch.equal(state.parameters[[0, 2, 3, 5]], expected[[0, 2, 3, 5]])

    def test_is_an_error_where_none_is_left_to_go_on(self) -> None:
        training = make_training("regression", rule=SGD(), schedule=constant(1e6), drop_diverged=True)
        with pytest.raises(DivergedError):
            train(training, keys_of(range(3)))


class TestBlocks:
    @given(num_members=st.integers(1, 2000), heads=st.integers(1, 300))
    def test_every_member_is_in_exactly_one_block(self, num_members: int, heads: int) -> None:
        slices = stacked.block_slices(num_members, heads, CPU)
        assert [member for part in slices for member in range(num_members)[part]] == list(range(num_members))

    def test_a_gpu_takes_all_at_once(self) -> None:
        assert stacked.block_slices(1024, 2, torch.device("cuda")) == [slice(0, 1024)]
