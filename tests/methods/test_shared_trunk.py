"""Members that share the first stages of a network, on stacked small networks and on tiny ones for images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from silent_reporter import Silent
from small_dense_recipe import small_dense
from small_recipes import small
from torch import Tensor, fx, nn
from toy_fit import make_problem, training_of

from epibench.data.augment import Augment
from epibench.data.batch import Batch
from epibench.errors import InputError
from epibench.evaluation.cost import count_flops
from epibench.likelihoods import LIKELIHOODS
from epibench.members.compiled import Speed
from epibench.members.networks import NetworkPool
from epibench.methods.contract import Member
from epibench.methods.ensemble import Ensemble
from epibench.methods.shared_trunk import SharedTrunk
from epibench.networks.deeplabv3 import DeepLabV3
from epibench.networks.depth_completion import DepthCompletion
from epibench.networks.dropout import SeededDropout
from epibench.networks.pruning import prune_channels
from epibench.networks.stages import first_modules
from epibench.networks.trunk import TrunkWithHeads, head_weights
from epibench.recipes import Recipe, apply_settings
from epibench.runs.folder import RunFolder
from epibench.runs.image_experiment import ImageExperiment
from epibench.runs.machine import Machine, Run
from epibench.runs.train import Trained, collect_trained, train_networks
from epibench.runs.train_job import TrainJob
from epibench.runs.trainers import train_job
from epibench.training import network as network_training
from epibench.training import stacked
from epibench.training.network import FlatParameters, NetworkKeys, NetworkTraining, train_network
from epibench.training.rules import SGD, Adam, constant, poly
from epibench.training.stacked import Keys
from epibench.training.state import Pacer, TrainingCallbacks

Weights = dict[str, Tensor]
depth = partial(DepthCompletion, 8, (1, 1, 1, 1), init_std=None)
segmentation = partial(DeepLabV3, 2, depth=18, width=8, head_width=8, rates=(1, 2), stem="single", head_dropout=0.0)
TASKS: dict[str, tuple[Callable[..., nn.Module], str]] = {
    "depth": (depth, "gaussian"),
    "segmentation": (segmentation, "categorical"),
}
SHARED = {"depth": (0, 1, "encoder.2", "joined.1", -1), "segmentation": (0, "backbone.stem", "backbone.stages.2", -1)}
every_task = pytest.mark.parametrize("task", TASKS)
every_cut = pytest.mark.parametrize(("task", "shared"), [(task, cut) for task, cuts in SHARED.items() for cut in cuts])


def built(task: str, shared: int | str, heads: int = 3, **options: Any) -> TrunkWithHeads:
    torch.manual_seed(1)
    method = SharedTrunk(num_heads=heads, shared=shared, **options)
    network = method.build(TASKS[task][0])
    assert isinstance(network, TrunkWithHeads)
    return network


@dataclass(frozen=True)
class Scenes:
    """Made-up images with depth or two classes; every third pixel has no target."""

    classes: bool

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Batch:
        generator = torch.Generator().manual_seed(index)
        image = torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8, generator=generator)
        depth = 1 + 9 * torch.rand(16, 16, generator=generator)
        sparse = torch.where(torch.rand(depth.shape, generator=generator) < 0.2, depth, 0.0)[None]
        valid = (torch.arange(256) % 3 > 0).view(16, 16)
        target = (depth > 5).long() if self.classes else depth
        return Batch({"image": image, "sparse_depth": sparse}, target, valid)


def trained(task: str, **changes: Any) -> Weights:
    """The weights of a network after nine steps with Adam and weight decay."""
    make, kind = TASKS[task]
    training = NetworkTraining(
        build=make,
        loss=LIKELIHOODS[kind].image_loss,
        samples=Scenes(kind == "categorical"),
        augment=Augment(crop=(16, 16)),
        rule=Adam(),
        schedule=poly(1e-3),
        num_epochs=3,
        epoch_steps=3,
        batch_size=2,
        keep=(3,),
        weight_decay=1e-3,
    )
    kept = dict[int, Weights]()
    callbacks = TrainingCallbacks(
        keep=lambda epoch, weights: kept.update({epoch: {n: each.clone() for n, each in weights.items()}})
    )
    keys = NetworkKeys.of(0, "ensemble", 3)
    train_network(replace(training, **changes), keys, torch.device("cpu"), callbacks=callbacks)
    return kept[3]


def images(size: tuple[int, int] = (32, 48)) -> Weights:
    generator = torch.Generator().manual_seed(3)
    image = torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8, generator=generator)
    return {"image": image, "sparse_depth": 20 * torch.rand(2, 1, *size, generator=generator)}


def plain_network(task: str, weights: Weights) -> nn.Module:
    plain = TASKS[task][0]()
    plain.load_state_dict(weights)
    return plain


def assert_same(one: Weights, other: Weights) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


class TestStages:
    NAMES = ("a.0", "a.1", "b", "c")

    @pytest.mark.parametrize(
        ("shared", "expected"), [(0, 0), (2, 2), (3, 3), (-1, 3), (-4, 0), ("a", 2), ("a.0", 1), ("b", 3)]
    )
    def test_are_given_by_number_or_by_the_module_with_which_they_end(self, shared: int | str, expected: int) -> None:
        assert SharedTrunk(shared=shared).shared_stages(self.NAMES) == expected

    @pytest.mark.parametrize("shared", [4, -5, "c", "elsewhere", "a.0.conv"])
    def test_that_are_not_there_or_all_of_them_are_refused(self, shared: int | str) -> None:
        with pytest.raises(InputError, match=r"^shared: .* give 0 to 3 \(-1 is 3\), or one of .* a.0, a.1, b,"):
            SharedTrunk(shared=shared).shared_stages(self.NAMES)

    def test_none_can_be_frozen_where_none_is_shared(self) -> None:
        with pytest.raises(ValidationError, match="there is no trunk to freeze"):
            SharedTrunk(shared=0, frozen=True)
        with pytest.raises(InputError, match="there is no trunk to freeze"):
            SharedTrunk(shared=-4, frozen=True).shared_stages(self.NAMES)

    def test_a_network_without_them_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"shared_trunk: Conv2d has no stages\(\)"):
            SharedTrunk(num_heads=2).build(lambda: nn.Conv2d(3, 2, 1))

    def test_a_weight_of_no_stage_is_refused(self) -> None:
        class Unnamed(DepthCompletion):
            stage_modules = {}  # noqa: RUF012

        with pytest.raises(InputError, match=r"Unnamed: no stage has .*image_stem.* let its `stage_modules` name"):
            SharedTrunk(num_heads=2, shared=1).build(partial(Unnamed, 8, (1, 1, 1, 1)))


class TestNetwork:
    @every_cut
    def test_gives_the_outputs_of_plain_networks_head_by_head(self, task: str, shared: int | str) -> None:
        joint = built(task, shared).eval()
        weights = joint.state_dict()
        found = joint(images()).detach().chunk(3)
        for head, outputs in enumerate(found):
            plain = plain_network(task, head_weights(weights, head)).eval()
            assert torch.equal(outputs, plain(images()))
        assert not torch.equal(found[0], found[1])

    @every_cut
    def test_has_its_trunk_once(self, task: str, shared: int | str) -> None:
        joint, plain = built(task, shared), TASKS[task][0]()
        total = sum(each.numel() for each in plain.parameters())
        trunk = sum(each.numel() for name in joint.trunk for each in plain.get_submodule(name).parameters())
        assert (trunk > 0) == (shared != 0)
        expected = trunk + 3 * (total - trunk)
        assert sum(each.numel() for each in joint.parameters()) == expected
        assert sum(each.numel() for each in FlatParameters(joint).parameters) == expected
        stored = {each.data_ptr() for each in joint.state_dict().values()}
        assert len(stored) == len(joint.state_dict())

    @every_cut
    def test_gives_a_head_its_own_gradient_and_the_trunk_the_mean(self, task: str, shared: int | str) -> None:
        joint = built(task, shared).train()
        plain = [plain_network(task, head_weights(joint.state_dict(), head)).train() for head in range(3)]
        losses = [each.square().mean() for each in joint(images()).chunk(3)]
        sum(losses).backward()
        for each in plain:
            each(images()).square().mean().backward()
        for head, other in enumerate(plain):
            own = dict(joint.heads[head].named_parameters())
            for name, parameter in other.named_parameters():
                if not any(name.startswith(f"{module}.") for module in joint.trunk):
                    assert torch.equal(own[name].grad, parameter.grad)
        for module in joint.trunk:
            gradients = [[each.grad for each in network.get_submodule(module).parameters()] for network in plain]
            found = [each.grad for each in joint.heads[0].get_submodule(module).parameters()]
            for own, *others in zip(found, *gradients, strict=True):
                expected = torch.stack(others).mean(0)
                assert float((own - expected).norm()) <= 1e-4 * float(torch.stack(others).norm())

    def test_heads_drop_different_parts(self) -> None:
        torch.manual_seed(1)
        method = SharedTrunk(num_heads=2, shared="backbone")
        joint = method.build(partial(segmentation, head_dropout=0.5)).train()
        joint.heads[1].pyramid.load_state_dict(joint.heads[0].pyramid.state_dict())
        joint.heads[1].logits.load_state_dict(joint.heads[0].logits.state_dict())
        with SeededDropout(torch.tensor([5, 6])) as dropout:
            first, second = joint(images()).chunk(2)
        assert dropout.calls == 2
        assert not torch.equal(first, second)
        assert torch.equal(*joint.eval()(images()).chunk(2))


@every_task
def test_without_shared_stages_heads_are_networks_trained_alone(task: str) -> None:
    """Bit for bit, given the same initial weights and the same batches."""
    joint, together = built(task, 0), trained(task, build=partial(built, task, 0))
    for head in range(3):
        start = head_weights(joint.state_dict(), head)
        found = head_weights(together, head)
        assert_same(found, trained(task, start=lambda network, start=start: start))
        assert any(not torch.equal(found[name], start[name]) for name in start)


class TestPool:
    """Members that are evaluated with their trunk in common."""

    @pytest.fixture
    def pool_of(self) -> Callable[..., NetworkPool]:
        def pool(task: str, shared: int | str, **options: Any) -> NetworkPool:
            method = SharedTrunk(num_trunks=2, num_heads=3, shared=shared)
            kept = {trunk: built(task, shared).state_dict() for trunk in range(2)}
            kept[1] = {name: 1.1 * each if each.is_floating_point() else each for name, each in kept[1].items()}
            given = {"shared_stages": method.shared_stages, **options}
            return NetworkPool(
                TASKS[task][1],
                method.members(range(2)),
                TASKS[task][0],
                lambda member: head_weights(kept[member.network], member.number),
                method.name,
                **given,
            )

        return pool

    @pytest.mark.parametrize(
        "options",
        [{}, {"precision": torch.bfloat16}, {"window": (16, 32), "overlap": 0.25}],
        ids=["", "bf16", "windows"],
    )
    @every_cut
    def test_predicts_what_plain_networks_do(self, pool_of: Any, task: str, shared: int | str, options: Any) -> None:
        """Bit for bit: with the weights of its members, an ensemble has the same outputs."""
        pool, plain = pool_of(task, shared, **options), pool_of(task, shared, shared_stages=lambda names: 0, **options)
        found, expected = (each.outputs(images(), slice(0, 6), range(2)).values for each in (pool, plain))
        assert_same(dict(found), dict(expected))
        values = next(iter(found.values()))
        assert len({tuple(member.flatten().tolist()) for member in values}) == 6

    @pytest.mark.parametrize("members", [slice(0, 3), slice(1, 3), slice(2, 5)])
    def test_predicts_the_same_with_any_others(self, pool_of: Any, members: slice, two_threads: None) -> None:
        pool = pool_of("depth", "encoder.2")
        whole = pool.outputs(images(), slice(0, 6), range(2)).values["mean"]
        part = pool_of("depth", "encoder.2").outputs(images(), members, range(2)).values["mean"]
        assert torch.equal(part, whole[members])

    def test_networks_that_come_and_go_predict_as_those_that_stay(self, pool_of: Any) -> None:
        stay, go = pool_of("depth", "encoder.2"), pool_of("depth", "encoder.2", resident=2)
        expected = stay.outputs(images(), slice(0, 6), range(2)).values["mean"]
        for _ in range(2):
            parts = [go.outputs(images(), part, range(2)).values["mean"] for part in go.resident_slices(slice(0, 6))]
            assert torch.equal(torch.cat(parts), expected)

    def test_loads_and_computes_the_trunk_once(self, pool_of: Any) -> None:
        pool, seen = pool_of("segmentation", "backbone.stages.2"), list[str]()
        pool.load_all(pool.table.members)
        networks = [pool.network(Member(trunk, 0, head)) for trunk in range(2) for head in range(3)]
        assert len({id(network.backbone.stem) for network in networks}) == 2
        assert len({id(network.backbone.stages[2][1]) for network in networks}) == 2
        assert len({id(network.backbone.stages[3][0]) for network in networks}) == 6
        for network in (networks[0], networks[3]):
            network.backbone.stem.register_forward_hook(lambda *_: seen.append("trunk"))
        for network in networks:
            network.backbone.stages[3].get_submodule("0").register_forward_hook(lambda *_: seen.append("head"))
        pool.outputs(images(), slice(0, 6), range(2))
        assert (seen.count("trunk"), seen.count("head")) == (2, 6)

    def test_counts_the_trunk_once_in_what_it_costs(self, pool_of: Any) -> None:
        pool, plain = pool_of("depth", "encoder.2"), pool_of("depth", "encoder.2", shared_stages=lambda names: 0)
        flops = [[count_flops(each, images(), (32, 48), range(size)) for size in (1, 2, 3)] for each in (pool, plain)]
        (one, two, three), (network, _, networks) = flops
        assert one == network
        assert networks == 3 * network
        assert three - two == two - one < one
        own, all_of_it = pool.weight_bytes(range(3)), plain.weight_bytes(range(3))
        first = pool.network(Member(0, 0, 0))
        tensors = [t for name in first_modules(first, 4) for t in first.get_submodule(name).parameters()]
        assert all_of_it - own == 2 * sum(each.nbytes for each in tensors)

    @pytest.mark.parametrize("shared", ["encoder.2", -1])
    def test_is_compiled_once_for_the_trunk_and_once_for_heads(self, pool_of: Any, shared: int | str) -> None:
        graphs = list[fx.GraphModule]()

        def backend(graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
            graphs.append(graph)
            return graph.forward

        torch._dynamo.reset()
        plain, pool = pool_of("depth", shared), pool_of("depth", shared, speed=Speed(backend))
        expected, found = (each.outputs(images(), slice(0, 6), range(2)).values["mean"] for each in (plain, pool))
        torch._dynamo.reset()
        assert len(graphs) == 2
        assert float((found - expected).norm()) <= 1e-6 * float(expected.norm())
        assert len({tuple(member.flatten().tolist()) for member in found}) == 6


class TestStackedNetworks:
    """On toy problems members of a trunk have their first layers tied."""

    @pytest.fixture(params=["regression", "classification"])
    def problem(self, request: pytest.FixtureRequest) -> Any:
        return make_problem(request.param)

    def keys(self, rows: int = 2) -> Keys:
        return Keys.of(0, "shared_trunk", range(rows), torch.device("cpu"))

    def test_without_shared_layers_are_those_of_an_ensemble(self, problem: Any) -> None:
        """Bit for bit, given the same initial weights and the same batches."""
        method = SharedTrunk(num_trunks=2, num_heads=3, shared=0, num_epochs=5, decay="poly")
        training, keys = training_of(method, problem), self.keys()
        found = stacked.trained(training, keys)[:, -1].view(6, -1)
        ensemble = training_of(Ensemble(num_members=6, num_epochs=5, decay="poly"), problem)
        begun = stacked.start(training, keys).parameters.view(6, -1)
        same_batches = replace(keys, order=keys.order.repeat_interleave(3))
        kept = dict[int, Tensor]()
        callbacks = TrainingCallbacks(keep=lambda epoch, weights: kept.update({epoch: weights["parameters"]}))
        stacked.train(ensemble, same_batches, stacked.start(ensemble, same_batches, begun.clone()), callbacks)
        assert torch.equal(found, kept[5])
        assert not torch.equal(found, begun)

    @pytest.mark.parametrize("optimiser", ["adam", "adamw", "momentum"])
    @pytest.mark.parametrize("shared", [1, "layers.1"])
    def test_share_their_first_layers_and_no_others(self, problem: Any, shared: int | str, optimiser: Any) -> None:
        method = SharedTrunk(num_trunks=2, num_heads=3, shared=shared, num_epochs=3, optimiser=optimiser)
        training = training_of(method, problem)
        parameters = stacked.trained(training, self.keys())[:, -1].contiguous()
        layers = training.network.layers(parameters)
        number = 1 if shared == 1 else 2
        for layer, same in zip(layers, [True] * number + [False] * (3 - number), strict=True):
            for each in layer:
                members = each.reshape(2, 3, -1)
                assert torch.equal(members[:, 0], members[:, 1]) == same
                assert not torch.equal(members[0], members[1])

    def test_move_their_trunk_by_the_mean_of_the_gradients_of_the_heads(self, problem: Any) -> None:
        """One step with all points: a head moves as it would alone, the trunk by the mean of what heads would."""
        method = SharedTrunk(num_trunks=1, num_heads=3, shared=2, num_epochs=1, batch_size=40)
        training = replace(training_of(method, problem), rule=SGD(), schedule=constant(0.1))
        keys = self.keys(1)
        begun = stacked.start(training, keys).parameters.view(3, -1)
        found = stacked.trained(training, keys)[:, -1].view(3, -1)
        alone = replace(training, network=problem.network, tied=stacked.Tied())
        same = replace(keys, order=keys.order.expand(3))
        kept = list[Tensor]()
        callbacks = TrainingCallbacks(keep=lambda epoch, weights: kept.append(weights["parameters"]))
        stacked.train(alone, same, stacked.start(alone, same, begun.clone()), callbacks)
        for number in range(3):
            own, other = (problem.network.layers(each.contiguous())[number] for each in (found, kept[0]))
            for mine, theirs in zip(own, other, strict=True):
                theirs = theirs.reshape(3, -1)
                expected = theirs.mean(0).expand(3, -1) if number < 2 else theirs
                torch.testing.assert_close(mine.reshape(3, -1), expected, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("optimiser", ["adam", "adamw"])
    def test_keep_a_frozen_trunk_as_it_was_given(self, problem: Any, optimiser: Any) -> None:
        method = SharedTrunk(num_trunks=2, num_heads=3, shared=1, num_epochs=3, frozen=True, optimiser=optimiser)
        training, plain = training_of(method, problem), problem.network
        given = plain.initialise(torch.tensor([11, 12]))
        begun = stacked.start(training, self.keys(), given)
        fresh = stacked.start(training, self.keys()).parameters
        kept = list[Tensor]()
        callbacks = TrainingCallbacks(keep=lambda epoch, weights: kept.append(weights["parameters"].clone()))
        heads = [each.clone() for each in training.network.layers(begun.parameters)[2]]
        assert all(torch.equal(*pair) for pair in zip(heads, training.network.layers(fresh)[2], strict=True))
        stacked.train(training, self.keys(), begun, callbacks)
        first, _, last = training.network.layers(kept[0])
        for own, other in zip(first, plain.layers(given)[0], strict=True):
            for head in range(3):
                assert torch.equal(own.reshape(2, 3, -1)[:, head], other.reshape(2, -1))
        assert not any(torch.equal(*pair) for pair in zip(heads, last, strict=True))


def make_recipe(kind: str, folder: Path, *settings: str) -> Recipe:
    given = ['methods=["shared_trunk"]', "members=[1,2]", *settings]
    return apply_settings(small("toy-regression") if kind == "toy" else small_dense(folder / "cache"), given)


def carry_out(recipe: Recipe, folder: Path) -> tuple[Run, Trained]:
    run = Run(recipe, RunFolder(folder / "run"), Machine(torch.device("cpu"), jobs=1, workers=0), Silent())
    train_networks(run, {"shared_trunk": None}, failed := {})
    assert failed == {}
    return run, collect_trained(run, "shared_trunk")


class TestFrozen:
    """Heads that are trained behind the trunk of a network of an ensemble."""

    FROZEN = ("shared_trunk.frozen=true", "ensemble.num_members=2")

    @pytest.fixture(scope="class")
    def trained(self, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Trained]:
        folder = tmp_path_factory.mktemp("frozen")
        return carry_out(make_recipe("images", folder, *self.FROZEN), folder)

    def test_keep_the_trunk_of_the_source_with_its_statistics(self, trained: tuple[Run, Trained]) -> None:
        run, heads = trained
        source = collect_trained(run, "ensemble")
        start = SharedTrunk(num_heads=3, shared="encoder.4").build(depth)
        modules = tuple(f"{module}." for module in start.trunk)
        for network in heads.networks:
            weights = [heads.weights(Member(network, 0, head)) for head in range(3)]
            theirs = source.jobs[network].files.load_weights(0)
            for name, tensor in theirs.items():
                same = [torch.equal(each[name], tensor) for each in weights]
                assert same == [name.startswith(modules)] * 3 or name.endswith("num_batches_tracked")
            assert not torch.equal(weights[0]["mean.weight"], weights[1]["mean.weight"])
        assert heads.seconds > source.seconds / 2

    def test_networks_that_have_lost_channels_are_refused(self) -> None:
        joint = built("depth", "encoder.2", frozen=True)
        weights = prune_channels(depth().state_dict(), depth(), share=0.5)
        with pytest.raises(InputError, match=r"have other sizes \(encoder\..*set `of` to"):
            joint.with_trunk(weights)

    def test_train_only_the_heads(self, trained: tuple[Run, Trained]) -> None:
        joint = SharedTrunk(num_heads=3, shared="encoder.4", frozen=True).build(depth).train()
        own = {name for name, each in joint.named_parameters() if each.requires_grad}
        modules = tuple(f"heads.0.{module}." for module in joint.trunk)
        assert own == {name for name, _ in joint.named_parameters() if not name.startswith(modules)}
        before = {name: each.clone() for name, each in joint.named_buffers()}
        joint(images()).sum().backward()
        changed = {name for name, each in joint.named_buffers() if not torch.equal(each, before[name])}
        assert changed
        assert not [name for name in changed if name.startswith(modules)]

    def test_end_after_a_kill_as_if_they_had_not_stopped(
        self, trained: tuple[Run, Trained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(network_training, "LOG_EVERY", 2)
        monkeypatch.setattr(Pacer, "due", lambda pacer: True)
        run, heads = trained
        (tmp_path / "ensemble").symlink_to(run.folder.members / "ensemble")
        job = replace(heads.jobs[1], members=tmp_path)

        def kill(message: Any) -> None:
            if message[0] >= 4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train_job(job, kill)
        assert 0 < job.files.step() < 6
        train_job(job, lambda message: None)
        assert_same(job.files.load_weights(0), heads.jobs[1].files.load_weights(0))

    def test_work_on_toy_problems(self, tmp_path: Path) -> None:
        run, heads = carry_out(make_recipe("toy", tmp_path, *self.FROZEN), tmp_path)
        toy = small("toy-regression")
        layers = training_of(SharedTrunk(num_heads=1), make_problem("regression")).network.layers
        assert toy.hidden == (10, 10)
        source = collect_trained(run, "ensemble").jobs[1].files.load_weights(0)["parameters"]
        for head in range(4):
            own = layers(heads.weights(Member(1, 0, head))["parameters"][None].contiguous())
            theirs = layers(source[1:2].contiguous())
            assert [torch.equal(mine.weight, other.weight) for mine, other in zip(own, theirs, strict=True)] == [
                True,
                True,
                False,
            ]

    def test_cannot_start_from_networks_that_are_not_plain(self, tmp_path: Path) -> None:
        joint = SharedTrunk(num_heads=2, shared=1, frozen=True)
        with pytest.raises(InputError, match=r"have no image_stem.*they are no plain networks; set `of` to"):
            joint.begin(joint.build(depth).state_dict(), joint.build(depth))


class TestRuns:
    def test_heads_are_saved_with_one_trunk(self, tmp_path: Path) -> None:
        run, trained = carry_out(make_recipe("images", tmp_path), tmp_path)
        names = list(trained.jobs[0].files.load_weights(0))
        assert "heads.0.encoder.4.0.weight" in names
        assert "heads.1.decoder.0.0.weight" in names
        assert "heads.1.encoder.4.0.weight" not in names
        pool = ImageExperiment(run).drawn("shared_trunk", trained).pool
        assert pool.trunk == 6
        first, second = (pool.network(Member(1, 0, head)) for head in range(2))
        assert first.encoder[4] is second.encoder[4]

    def test_files_are_read_once_for_all_heads(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run, trained = carry_out(make_recipe("images", tmp_path), tmp_path)
        files, reads = type(trained.jobs[0].files), list[Any]()
        load = files.load_weights
        monkeypatch.setattr(files, "load_weights", lambda self, snapshot: reads.append(self) or load(self, snapshot))
        pool = ImageExperiment(run).drawn("shared_trunk", trained).pool
        pool.load_all(pool.table.members)
        assert len(reads) <= 2

    @pytest.mark.parametrize("kind", ["toy", "images"])
    def test_trunks_that_diverge_are_left_out(self, kind: str, tmp_path: Path) -> None:
        settings = ("shared_trunk.learning_rate=1e6", "shared_trunk.optimiser=sgd")
        recipe = make_recipe(kind, tmp_path, *settings)
        if kind == "toy":
            job = TrainJob(recipe, "shared_trunk", (0, 1), tmp_path, "cpu")
            with pytest.raises(
                InputError, match=r"shared_trunk: 2 of 2 networks diverged .* lower shared_trunk.learning"
            ):
                train_job(job, lambda message: None)
        else:
            _, trained = carry_out(recipe, tmp_path)
            assert trained.networks == []
            assert "shared_trunk: network 0: the loss became NaN" in trained.diverged[0]
