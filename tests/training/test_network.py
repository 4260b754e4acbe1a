"""Training of a large network: it goes on from any saved state as if it had not stopped; its keys alone decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from epibench.data.augment import Augment
from epibench.data.batch import Batch
from epibench.errors import InputError
from epibench.likelihoods import categorical, gaussian
from epibench.networks.depth_completion import DepthCompletion
from epibench.training import network
from epibench.training.network import (
    NetworkKeys,
    NetworkTraining,
    build_network,
    mean_loss,
    train_network,
    upsampled,
)
from epibench.training.rules import SGD, Adam, constant, poly
from epibench.training.state import DivergedError, LogRow, TrainingCallbacks, TrainingState
from small_pools import method_of

Weights = dict[str, Tensor]
KEYS = NetworkKeys.of(0, "ensemble", 3)


@dataclass(frozen=True)
class Depths:
    """Made-up depth images; every third pixel has no target and holds `hole` instead."""

    length: int = 5
    hole: float = 0.0
    scale: float = 1.0
    empty: bool = False

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Batch:
        generator = torch.Generator().manual_seed(index)
        image = torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8, generator=generator)
        depth = self.scale * (1 + 9 * torch.rand(16, 16, generator=generator))
        sparse = torch.where(torch.rand(depth.shape, generator=generator) < 0.2, depth, 0.0)[None]
        valid = (torch.arange(256) % 3 > 0).view(16, 16) & (not self.empty)
        return Batch({"image": image, "sparse_depth": sparse}, depth.masked_fill(~valid, self.hole), valid)


@dataclass(frozen=True)
class Classes:
    """Made-up images with two classes; 'no label' where there is none."""

    hole: int = 255

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Batch:
        sample = Depths()[index]
        target = (sample.target > 5).long().masked_fill(~sample.valid, self.hole)
        return Batch({"image": sample.inputs["image"]}, target, sample.valid)


class Plain(nn.Module):
    """A network without batch norm, with dropout of its own."""

    def __init__(self, outputs: int = 2):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, outputs, 1)
        self.dropout = nn.Dropout(0.5)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return self.last(self.dropout(torch.relu(self.first(inputs["image"].float() / 255))))


def make_training(**changes: Any) -> NetworkTraining:
    """Three epochs of three steps; 5 images in batches of 2, so that rounds end within batches and epochs."""
    training = NetworkTraining(
        build=partial(DepthCompletion, 8, (1, 1, 1, 1), init_std=None),
        loss=gaussian.image_loss,
        samples=Depths(),
        augment=Augment(crop=(16, 16)),
        rule=Adam(),
        schedule=poly(1e-3),
        num_epochs=3,
        epoch_steps=3,
        batch_size=2,
        keep=(3,),
        weight_decay=1e-3,
    )
    return replace(training, **changes)


class Followed:
    """A training, with copies of all that it saved and kept."""

    def __init__(
        self,
        training: NetworkTraining,
        keys: NetworkKeys = KEYS,
        state: TrainingState | None = None,
        workers: int = 0,
    ):
        self.states: list[TrainingState] = []
        self.kept: dict[int, Weights] = {}
        self.progress: list[tuple[int, str]] = []
        self.rows: list[LogRow] = []
        callbacks = TrainingCallbacks(
            lambda *progress: self.progress.append(progress), self.rows.append, self._save, self._keep
        )
        self.log = train_network(training, keys, torch.device("cpu"), state, callbacks, workers)

    def _save(self, state: TrainingState) -> None:
        rule = {name: each.clone() for name, each in state.rule.items()}
        buffers = {name: each.clone() for name, each in state.buffers.items()}
        self.states.append(replace(state, parameters=state.parameters.clone(), rule=rule, buffers=buffers))

    def _keep(self, epoch: int, weights: Mapping[str, Tensor]) -> None:
        self.kept[epoch] = {name: each.clone() for name, each in weights.items()}

    @property
    def weights(self) -> Weights:
        return self.kept[max(self.kept)]


def assert_same(one: Weights, other: Weights) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.fixture
def saves_often(monkeypatch) -> None:
    monkeypatch.setattr(network, "LOG_EVERY", 2)
    monkeypatch.setattr(network.Pacer, "due", lambda pacer: True)


LANGEVIN = method_of("sgld").rule
CYCLES = method_of("cyclical", learning_rate=1e-4, num_cycles=2, num_epochs=3, exploration=0.5).schedule
WARMED = method_of("sghmc", num_epochs=3, warm_up_epochs=2, learning_rate=1e-4, preconditioned=True)
# How a training may differ in what it remembers, or draws at random.
TRAININGS = {
    "adam": {},
    "dropout": {"dropout": 0.3},
    "langevin": {"rule": LANGEVIN, "schedule": poly(1e-4)},
    "cycles": {"rule": LANGEVIN, "schedule": CYCLES, "dropout": 0.3},
    "momentum": {"rule": SGD(0.9), "schedule": poly(1e-4), "clip": 1.0},
    "whole batches": {"whole_batches": True, "augment": Augment(crop=(16, 16), scale=(1.0, 1.5), thin=(0.5, 1.0))},
    # Saved at steps 2, 4, 6 and 8: in the warm-up of six steps, where it ends, and after it.
    "warmed up": {"rule": WARMED.rule, "schedule": WARMED.schedule, "decay_all": True},
}


@pytest.mark.parametrize("name", TRAININGS)
def test_training_from_any_saved_state_ends_as_if_it_had_not_stopped(name: str, saves_often) -> None:
    training = make_training(**TRAININGS[name])
    whole = Followed(training)
    assert [state.step for state in whole.states] == [2, 4, 6, 8]
    for state in whole.states:
        rest = Followed(training, state=state)
        assert_same(rest.weights, whole.weights)
        assert rest.log == whole.log


def test_states_that_are_saved_later_are_the_same_too(saves_often) -> None:
    whole = Followed(make_training())
    rest = Followed(make_training(), state=whole.states[1])
    for ours, theirs in zip(rest.states, whole.states[2:], strict=True):
        assert ours.step == theirs.step
        assert torch.equal(ours.parameters, theirs.parameters)
        assert_same(ours.rule, theirs.rule)
        assert_same(dict(ours.buffers), dict(theirs.buffers))
        assert ours.log == theirs.log


def test_the_number_of_workers_changes_nothing() -> None:
    alone, helped = (Followed(make_training(dropout=0.3), workers=workers) for workers in (0, 2))
    assert_same(alone.weights, helped.weights)
    assert alone.log == helped.log


def test_the_global_generator_changes_nothing() -> None:
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(Followed(make_training(dropout=0.3, rule=LANGEVIN, schedule=poly(1e-4))).weights)
    assert_same(*found)


def test_building_a_network_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    build_network(Plain, 5)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("purpose", ["initial", "order", "change", "dropout", "noise"])
def test_every_key_matters(purpose: str) -> None:
    training = make_training(rule=LANGEVIN, schedule=constant(1e-4), dropout=0.3, num_epochs=1, keep=(1,))
    other = replace(KEYS, **{purpose: 99})
    assert not torch.equal(Followed(training).weights["mean.weight"], Followed(training, other).weights["mean.weight"])


def test_networks_of_a_method_have_keys_of_their_own() -> None:
    keys = [NetworkKeys.of(0, method, number) for method in ("ensemble", "map") for number in range(3)]
    values = [value for each in keys for value in vars(each).values()]
    assert len(set(values)) == len(values)


def test_networks_with_one_start_share_the_initial_weights_of_network_0_and_nothing_else() -> None:
    plain, fixed = ([NetworkKeys.of(0, "ensemble", number, one) for number in range(3)] for one in (False, True))
    assert fixed == [replace(keys, initial=plain[0].initial) for keys in plain]


def test_networks_with_one_start_end_different() -> None:
    first, second = (Followed(make_training(), NetworkKeys.of(0, "ensemble", n, one_start=True)) for n in (0, 1))
    assert not torch.equal(first.weights["mean.weight"], second.weights["mean.weight"])


def test_the_network_itself_decides_where_dropout_goes_without_places(saves_often) -> None:
    training = make_training(build=Plain)
    with_rate, without = (Followed(replace(training, dropout=rate)).weights for rate in (0.9, 0.0))
    assert not torch.equal(with_rate["first.weight"], without["first.weight"])


@pytest.mark.parametrize("epochs", [(1, 3), (2,), (1, 2, 3)])
def test_networks_are_kept_at_the_ends_of_their_epochs(epochs: tuple[int, ...]) -> None:
    assert tuple(Followed(make_training(keep=epochs)).kept) == epochs


def test_what_is_kept_is_the_network_at_that_epoch() -> None:
    long = Followed(make_training(keep=(1, 3), schedule=constant(1e-3)))
    short = Followed(make_training(num_epochs=1, keep=(1,), schedule=constant(1e-3)))
    assert_same(long.kept[1], short.weights)


def test_kept_weights_load_into_a_network() -> None:
    fresh, kept = DepthCompletion(8, (1, 1, 1, 1)), Followed(make_training()).weights
    fresh.load_state_dict(kept)
    assert_same(fresh.state_dict(), kept)


def test_the_loss_falls() -> None:
    training = make_training(num_epochs=20, keep=(20,), schedule=constant(1e-2))
    log = Followed(training).log
    assert log[-1].loss < log[0].loss - 0.5


def test_the_log_has_a_row_at_every_epoch_and_every_so_many_steps(monkeypatch) -> None:
    monkeypatch.setattr(network, "LOG_EVERY", 2)
    assert [row.step for row in Followed(make_training()).log] == [2, 3, 4, 6, 8, 9]


def test_whoever_follows_hears_of_every_row_and_step(monkeypatch) -> None:
    monkeypatch.setattr(network, "LOG_EVERY", 2)
    followed = Followed(make_training())
    assert tuple(followed.rows) == followed.log
    notes = [(row.step, f"loss {row.loss:.3g}, rate {row.rate:.2g}") for row in followed.log]
    assert followed.progress == notes


def test_the_log_holds_the_rate_of_the_schedule() -> None:
    schedule = poly(1e-3)
    log = Followed(make_training(schedule=schedule)).log
    assert [row.rate for row in log] == [schedule(row.step, 9).rate for row in log]


def test_a_row_is_the_mean_loss_since_the_row_before(monkeypatch) -> None:
    monkeypatch.setattr(network, "LOG_EVERY", 1)
    each = {row.step: row.loss for row in Followed(make_training()).log}
    monkeypatch.setattr(network, "LOG_EVERY", 100)
    (first, *_) = Followed(make_training()).log
    assert first.loss == pytest.approx(sum(each[step] for step in (1, 2, 3)) / 3, rel=1e-6)


def test_states_are_saved_no_more_often_than_the_pacer_says(monkeypatch) -> None:
    monkeypatch.setattr(network, "LOG_EVERY", 1)
    assert Followed(make_training()).states == []


@pytest.mark.parametrize("rule", [Adam(), SGD(), LANGEVIN])
def test_a_loss_that_is_not_finite_is_an_error_with_its_step(rule) -> None:
    with pytest.raises(DivergedError, match="NaN or infinite by step 3") as complaint:
        Followed(make_training(rule=rule, schedule=constant(1e30)))
    assert complaint.value.networks == [0]


def test_weights_that_are_not_finite_are_not_kept() -> None:
    # Only the last step breaks them, when the loss has been taken already.
    def schedule(step: int, total: int):
        return constant(1e-4 if step < total else 3e38)(step, total)

    training = make_training(rule=SGD(), schedule=schedule, num_epochs=1, keep=(1,))
    with pytest.raises(DivergedError, match=r"the weights '[\w.]+' became NaN or infinite by step 3"):
        Followed(training)


@pytest.mark.parametrize("hole", [float("nan"), float("inf"), 255.0])
def test_what_a_depth_target_holds_where_it_is_not_valid_does_not_matter(hole: float) -> None:
    clean, dirty = (Followed(make_training(samples=Depths(hole=each))) for each in (0.0, hole))
    assert_same(clean.weights, dirty.weights)
    assert clean.log == dirty.log


def test_a_label_that_is_no_class_does_not_matter_where_it_is_not_valid() -> None:
    training = make_training(build=Plain, loss=categorical.image_loss)
    clean, dirty = (Followed(replace(training, samples=Classes(hole))) for hole in (0, 255))
    assert_same(clean.weights, dirty.weights)


def test_training_without_any_target_is_refused() -> None:
    with pytest.raises(InputError, match="no pixel counted in the training up to step"):
        Followed(make_training(samples=Depths(empty=True)))


def test_a_batch_without_any_target_has_no_loss() -> None:
    assert float(mean_loss(torch.tensor([[1.0, torch.nan]]), torch.zeros(1, 2, dtype=torch.bool))) == 0.0


def test_the_mean_loss_counts_valid_pixels_only() -> None:
    valid = torch.tensor([[True, False], [True, True]])
    assert float(mean_loss(torch.tensor([[1.0, 100.0], [2.0, 6.0]]), valid)) == 3.0


def test_the_mean_loss_is_weighted() -> None:
    weights = torch.tensor([[1.0, 0.0], [3.0, 4.0]])
    assert float(mean_loss(torch.tensor([[1.0, torch.inf], [2.0, 6.0]]), weights)) == (1 + 6 + 24) / 8


def test_the_loss_of_equal_parts_is_the_mean_of_their_means() -> None:
    raw, target = torch.randn(8, 3, 5, 6), torch.randint(0, 3, (8, 5, 6))
    class_weights = torch.tensor([0.5, 1.0, 4.0])
    ignored = torch.where(torch.rand(8, 5, 6) < 0.3, 255, target)
    halves = zip(raw.split(4), ignored.split(4), strict=True)
    expected = [nn.functional.cross_entropy(*half, class_weights, ignore_index=255) for half in halves]
    weights = class_weights[target].masked_fill(ignored == 255, 0)
    found = mean_loss(nn.functional.cross_entropy(raw, target, reduction="none"), weights, 2)
    torch.testing.assert_close(found, sum(expected) / 2)


def test_one_part_is_the_whole_batch_bit_for_bit() -> None:
    losses, weights = torch.randn(8, 5, 6), torch.rand(8, 5, 6)
    assert torch.equal(mean_loss(losses, weights), (losses * weights).sum() / weights.sum())


def test_a_part_without_any_target_has_no_loss() -> None:
    weights = torch.tensor([[True, True], [False, False]])
    assert float(mean_loss(torch.tensor([[1.0, 3.0], [torch.nan, 5.0]]), weights, 2)) == 1.0


def test_training_follows_the_loss_of_equal_parts() -> None:
    seen = []

    def loss(raw: Tensor, target: Tensor) -> Tensor:
        seen.append((raw.detach(), target))
        return categorical.image_loss(raw, target)

    class_weights, augment = (0.1, 3.0), Augment(crop=(16, 16), flip=False)
    shape = {"batch_size": 4, "epoch_steps": 1, "num_epochs": 1, "keep": (1,), "loss_parts": 2}
    changes = {"build": Plain, "samples": Classes(), "augment": augment, "class_weights": class_weights, **shape}
    (row,) = Followed(make_training(loss=loss, **changes)).log
    ((raw, target),) = seen
    ignored = torch.where(Classes()[0].valid, target, 255)
    halves = zip(raw.split(2), ignored.split(2), strict=True)
    means = [nn.functional.cross_entropy(*half, torch.tensor(class_weights), ignore_index=255) for half in halves]
    assert row.loss == pytest.approx(float(sum(means)) / 2, rel=1e-6)


def test_a_class_of_weight_0_is_learnt_as_if_it_had_no_label() -> None:
    class OneClass(Classes):
        def __getitem__(self, index: int) -> Batch:
            sample = super().__getitem__(index)
            return replace(sample, valid=sample.target == 1)

    training = make_training(build=Plain, loss=categorical.image_loss)
    weighted = Followed(replace(training, samples=Classes(), class_weights=(0.0, 2.0)))
    masked = Followed(replace(training, samples=OneClass()))
    assert [row.loss for row in weighted.log] == pytest.approx([row.loss for row in masked.log], rel=1e-6)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("coarse", [(1, 1), (2, 4), (5, 7), (9, 3)])
def test_coarse_outputs_are_interpolated_as_torch_does_it(coarse: tuple[int, int], align_corners: bool) -> None:
    raw = torch.randn(2, 3, *coarse, generator=torch.Generator().manual_seed(0))
    expected = nn.functional.interpolate(raw, (9, 14), mode="bilinear", align_corners=align_corners)
    torch.testing.assert_close(upsampled(raw, (9, 14), align_corners), expected, rtol=1e-5, atol=1e-6)


def test_outputs_of_the_image_s_size_are_left_as_they_are() -> None:
    raw = torch.randn(2, 3, 4, 5)
    assert upsampled(raw, (4, 5)) is raw


def test_the_mean_loss_ignores_what_is_not_finite_where_it_is_not_valid() -> None:
    losses = torch.tensor([1.0, float("nan"), float("inf")], requires_grad=True)
    loss = mean_loss(losses, torch.tensor([True, False, False]))
    loss.backward()
    assert float(loss.detach()) == 1.0
    assert losses.grad.tolist() == [1.0, 0.0, 0.0]


def test_the_mean_loss_of_no_valid_pixel_is_zero() -> None:
    losses = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = mean_loss(losses, torch.tensor([False, False]))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert losses.grad.tolist() == [0.0, 0.0]


def step_length(**changes: Any) -> float:
    """How far one step of gradient descent with rate 1 moves: the norm of its gradient."""
    options = {"rule": SGD(), "schedule": constant(1.0), "num_epochs": 1, "epoch_steps": 1, "keep": (1,)}
    training = make_training(**options, build=Plain, weight_decay=0.0, **changes)
    before, after = build_network(Plain, KEYS.initial).state_dict(), Followed(training).weights
    return float(sum((after[name] - before[name]).square().sum() for name in after).sqrt())


def test_a_gradient_is_clipped_to_its_largest_norm() -> None:
    assert step_length() > 0.2
    assert step_length(clip=0.1) == pytest.approx(0.1, rel=1e-4)


def test_a_gradient_below_the_largest_norm_is_left_alone() -> None:
    assert step_length(clip=1e3) == step_length()


def test_a_crop_that_does_not_fit_is_one_line() -> None:
    with pytest.raises(
        InputError, match=r"^a crop of 64×64 does not fit into an image of 16×16; lower training\.crop, or"
    ):
        Followed(make_training(augment=Augment(crop=(64, 64))), workers=1)


def test_whole_batches_train_the_network_that_samples_augmented_one_by_one_train() -> None:
    # Crops and flips alone: nothing is rounded.
    training = make_training(augment=Augment(crop=(8, 16)))
    one_by_one, at_once = (Followed(replace(training, whole_batches=whole)) for whole in (False, True))
    assert_same(one_by_one.weights, at_once.weights)


def test_classes_that_are_kept_in_two_bytes_train_as_others_do() -> None:
    def trained(samples: Any) -> Followed:
        return Followed(make_training(build=Plain, loss=categorical.image_loss, samples=samples))

    class Narrow(Classes):
        def __getitem__(self, index: int) -> Batch:
            sample = super().__getitem__(index)
            return replace(sample, target=sample.target.to(torch.int16))

    assert_same(trained(Narrow()).kept[3], trained(Classes()).kept[3])
