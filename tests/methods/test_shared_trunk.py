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
from small_dense_recipe import small_dense
from small_recipes import small
from torch import Tensor, fx, nn
from torch.utils.flop_counter import FlopCounterMode
from toy_fit import begun, keys_of, make_problem, training_of
from toy_fit import train as train_stacked

from epibench.data.augment import Augment
from epibench.data.batch import Batch
from epibench.errors import InputError
from epibench.likelihoods import categorical, gaussian
from epibench.members.networks import NetworkPool
from epibench.methods import Member, TrainedNetwork
from epibench.methods.ensemble import Ensemble
from epibench.methods.shared_trunk import SharedTrunk
from epibench.networks.deeplabv3 import DeepLabV3
from epibench.networks.depth_completion import DepthCompletion
from epibench.networks.dropout import SeededDropout
from epibench.networks.pruning import prune_channels
from epibench.recipes import Recipe
from epibench.training.network import NetworkKeys, NetworkTraining, train_network
from epibench.training.rules import Adam, poly
from epibench.training.state import TrainingCallbacks
from small_pools import network_pool
from trained_runs import TrainedRun, assert_same_weights, train, train_killed

Weights = dict[str, Tensor]
depth = partial(DepthCompletion, 8, (1, 1, 1, 1), init_std=None)
segmentation = partial(DeepLabV3, 2, depth=18, width=8, head_width=8, rates=(1, 2), stem="single", head_dropout=0.0)
TASKS: dict[str, Callable[..., nn.Module]] = {"depth": depth, "segmentation": segmentation}
LIKELIHOODS = {"depth": gaussian, "segmentation": categorical}
SHARED = {"depth": (0, 1, "encoder.2", "joined.1", -1), "segmentation": (0, "backbone.stem", "backbone.stages.2", -1)}
every_task = pytest.mark.parametrize("task", TASKS)
every_cut = pytest.mark.parametrize(("task", "shared"), [(task, cut) for task, cuts in SHARED.items() for cut in cuts])


def built(task: str, shared: int | str, heads: int = 3, **options: Any) -> Any:
    """A trunk with heads."""
    torch.manual_seed(1)
    return SharedTrunk(num_heads=heads, shared=shared, **options).build(TASKS[task])


def head_weights(weights: Weights, head: int) -> Weights:
    """The weights of a plain network: the trunk and a head."""
    trained = TrainedNetwork(0, lambda snapshot: weights, {}, key=hash, batches=tuple, raw=torch.zeros)
    return dict(SharedTrunk().weights(Member(0, 0, head), trained))


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
    training = NetworkTraining(
        build=TASKS[task],
        loss=LIKELIHOODS[task].image_loss,
        samples=Scenes(task == "segmentation"),
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
    plain = TASKS[task]()
    plain.load_state_dict(weights)
    return plain


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
        joint, plain = built(task, shared), TASKS[task]()
        total = sum(each.numel() for each in plain.parameters())
        trunk = sum(each.numel() for name in joint.trunk for each in plain.get_submodule(name).parameters())
        assert (trunk > 0) == (shared != 0)
        expected = trunk + 3 * (total - trunk)
        assert sum(each.numel() for each in joint.parameters()) == expected
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
        assert_same_weights([found], [trained(task, start=lambda network, start=start: start)])
        assert any(not torch.equal(found[name], start[name]) for name in start)


class TestPool:
    """Members that are evaluated with their trunk in common."""

    @pytest.fixture
    def pool_of(self) -> Callable[..., NetworkPool]:
        def pool(task: str, shared: int | str, **options: Any) -> NetworkPool:
            method = SharedTrunk(num_trunks=2, num_heads=3, shared=shared)
            kept = {trunk: built(task, shared).state_dict() for trunk in range(2)}
            kept[1] = {name: 1.1 * each if each.is_floating_point() else each for name, each in kept[1].items()}
            kind = "gaussian" if task == "depth" else "categorical"
            given = {"kind": kind, "shared_stages": method.shared_stages, **options}
            return network_pool(
                method, TASKS[task], lambda member: head_weights(kept[member.network], member.number), **given
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
        assert_same_weights([dict(found)], [dict(expected)])
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

        def count(pool: NetworkPool, size: int) -> int:
            with FlopCounterMode(display=False) as counter:
                pool.outputs(images(), slice(0, size), range(2))
            return counter.get_total_flops()

        flops = [[count(each, size) for size in (1, 2, 3)] for each in (pool, plain)]
        (one, two, three), (network, _, networks) = flops
        assert one == network
        assert networks == 3 * network
        assert three - two == two - one < one
        own, all_of_it = pool.weight_bytes(range(3)), plain.weight_bytes(range(3))
        first = pool.network(Member(0, 0, 0))
        trunk = built("depth", "encoder.2").trunk
        tensors = [t for name in trunk for t in first.get_submodule(name).parameters()]
        assert all_of_it - own == 2 * sum(each.nbytes for each in tensors)

    @pytest.mark.parametrize("shared", ["encoder.2", -1])
    def test_is_compiled_once_for_the_trunk_and_once_for_heads(self, pool_of: Any, shared: int | str) -> None:
        graphs = list[fx.GraphModule]()

        def backend(graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
            graphs.append(graph)
            return graph.forward

        torch._dynamo.reset()
        plain, pool = pool_of("depth", shared), pool_of("depth", shared, backend=backend)
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

    def test_without_shared_layers_are_those_of_an_ensemble(self, problem: Any) -> None:
        """Bit for bit, given the same initial weights and the same batches."""
        method = SharedTrunk(num_trunks=2, num_heads=3, shared=0, num_epochs=5, decay="poly")
        found, start = train_stacked(method, problem)[:, -1].view(6, -1), begun(method, problem).view(6, -1)
        ensemble = Ensemble(num_members=6, num_epochs=5, decay="poly")
        expected = train_stacked(ensemble, problem, start=start, keys=keys_of(method, together=3))[:, -1]
        assert torch.equal(found, expected)
        assert not torch.equal(found, start)

    @pytest.mark.parametrize("optimiser", ["adam", "adamw", "momentum"])
    @pytest.mark.parametrize("shared", [1, "layers.1"])
    def test_share_their_first_layers_and_no_others(self, problem: Any, shared: int | str, optimiser: Any) -> None:
        method = SharedTrunk(num_trunks=2, num_heads=3, shared=shared, num_epochs=3, optimiser=optimiser)
        parameters = train_stacked(method, problem)[:, -1].contiguous()
        layers = training_of(method, problem).network.layers(parameters)
        number = 1 if shared == 1 else 2
        for layer, same in zip(layers, [True] * number + [False] * (3 - number), strict=True):
            for each in layer:
                members = each.reshape(2, 3, -1)
                assert torch.equal(members[:, 0], members[:, 1]) == same
                assert not torch.equal(members[0], members[1])

    def test_move_their_trunk_by_the_mean_of_the_gradients_of_the_heads(self, problem: Any) -> None:
        """One step with all points: a head moves as it would alone, the trunk by the mean of what heads would."""
        one_step: dict[str, Any] = {"num_epochs": 1, "batch_size": 40, "optimiser": "sgd", "learning_rate": 0.1}
        method, alone = (
            SharedTrunk(num_trunks=1, num_heads=3, shared=2, **one_step),
            Ensemble(num_members=3, **one_step),
        )
        found, start = train_stacked(method, problem)[:, -1].view(3, -1), begun(method, problem).view(3, -1)
        apart = train_stacked(alone, problem, start=start, keys=keys_of(method, together=3))[:, -1]
        for number in range(3):
            own, other = (problem.network.layers(each.contiguous())[number] for each in (found, apart))
            for mine, theirs in zip(own, other, strict=True):
                theirs = theirs.reshape(3, -1)
                expected = theirs.mean(0).expand(3, -1) if number < 2 else theirs
                torch.testing.assert_close(mine.reshape(3, -1), expected, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("optimiser", ["adam", "adamw"])
    def test_keep_a_frozen_trunk_as_it_was_given(self, problem: Any, optimiser: Any) -> None:
        method = SharedTrunk(num_trunks=2, num_heads=3, shared=1, num_epochs=3, frozen=True, optimiser=optimiser)
        network, plain = training_of(method, problem).network, problem.network
        given = plain.initialise(torch.tensor([11, 12]))
        start, fresh = begun(method, problem, given), begun(method, problem)
        heads = network.layers(start)[2]
        assert all(torch.equal(*pair) for pair in zip(heads, network.layers(fresh)[2], strict=True))
        first, _, last = network.layers(train_stacked(method, problem, start=given)[:, -1].contiguous())
        for own, other in zip(first, plain.layers(given)[0], strict=True):
            for head in range(3):
                assert torch.equal(own.reshape(2, 3, -1)[:, head], other.reshape(2, -1))
        assert not any(torch.equal(*pair) for pair in zip(heads, last, strict=True))


def make_recipe(kind: str, folder: Path, *settings: str) -> Recipe:
    given = ['methods=["shared_trunk"]', "members=[1,2]", *settings]
    if kind == "toy":
        return small("toy-regression", "pictures.members=[1,2]", *given)
    return small_dense(folder / "cache", *given)


class TestFrozen:
    """Heads that are trained behind the trunk of a network of an ensemble."""

    FROZEN = ("shared_trunk.frozen=true", "ensemble.num_members=2")

    @pytest.fixture(scope="class")
    def run(self, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
        folder = tmp_path_factory.mktemp("frozen")
        return train(make_recipe("images", folder, *self.FROZEN), folder / "run")

    def test_keep_the_trunk_of_the_source_with_its_statistics(self, run: TrainedRun) -> None:
        start = SharedTrunk(num_heads=3, shared="encoder.4").build(depth)
        modules = tuple(f"{module}." for module in start.trunk)
        heads = run.collected("shared_trunk")
        for network in heads.networks:
            weights = [run.member("shared_trunk", Member(network, 0, head)) for head in range(3)]
            (theirs,) = run.kept("ensemble", network)
            for name, tensor in theirs.items():
                same = [torch.equal(each[name], tensor) for each in weights]
                assert same == [name.startswith(modules)] * 3 or name.endswith("num_batches_tracked")
            assert not torch.equal(weights[0]["mean.weight"], weights[1]["mean.weight"])
        assert heads.seconds > run.collected("ensemble").seconds / 2

    def test_networks_that_have_lost_channels_are_refused(self) -> None:
        joint = built("depth", "encoder.2", frozen=True)
        weights = prune_channels(depth().state_dict(), depth(), share=0.5)
        with pytest.raises(InputError, match=r"have other sizes \(encoder\..*set `of` to"):
            joint.with_trunk(weights)

    def test_train_only_the_heads(self) -> None:
        joint = SharedTrunk(num_heads=3, shared="encoder.4", frozen=True).build(depth).train()
        own = {name for name, each in joint.named_parameters() if each.requires_grad}
        modules = tuple(f"heads.0.{module}." for module in joint.trunk)
        assert own == {name for name, _ in joint.named_parameters() if not name.startswith(modules)}
        before = {name: each.clone() for name, each in joint.named_buffers()}
        joint(images()).sum().backward()
        changed = {name for name, each in joint.named_buffers() if not torch.equal(each, before[name])}
        assert changed
        assert not [name for name in changed if name.startswith(modules)]

    def test_end_after_a_kill_as_if_they_had_not_stopped(self, run: TrainedRun, tmp_path: Path) -> None:
        run.copy_sources("shared_trunk", tmp_path)
        killed = train_killed(run.recipe, tmp_path, "shared_trunk:1", stop_at=4)
        assert_same_weights(killed.kept("shared_trunk", 1), run.kept("shared_trunk", 1))

    def test_work_on_toy_problems(self, tmp_path: Path) -> None:
        run = train(make_recipe("toy", tmp_path, *self.FROZEN), tmp_path / "run")
        (source,), layers = run.kept("ensemble", 1), make_problem("regression").network.layers
        for head in range(4):
            own = layers(run.member("shared_trunk", Member(1, 0, head))["parameters"][None].contiguous())
            theirs = layers(source["parameters"][None].contiguous())
            same = [torch.equal(mine.weight, other.weight) for mine, other in zip(own, theirs, strict=True)]
            assert same == [True, True, False]

    def test_cannot_start_from_networks_that_are_not_plain(self, tmp_path: Path) -> None:
        joint = SharedTrunk(num_heads=2, shared=1, frozen=True)
        with pytest.raises(InputError, match=r"have no image_stem.*they are no plain networks; set `of` to"):
            joint.begin(joint.build(depth).state_dict(), joint.build(depth))


class TestRuns:
    @pytest.fixture(scope="class")
    def run(self, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
        folder = tmp_path_factory.mktemp("run")
        return train(make_recipe("images", folder), folder / "run")

    def test_heads_are_saved_with_one_trunk(self, run: TrainedRun) -> None:
        (names,) = run.kept("shared_trunk", 0)
        assert "heads.0.encoder.4.0.weight" in names
        assert "heads.1.decoder.0.0.weight" in names
        assert "heads.1.encoder.4.0.weight" not in names
        pool = run.pool("shared_trunk")
        assert pool.trunk == 6
        first, second = (pool.network(Member(1, 0, head)) for head in range(2))
        assert first.encoder[4] is second.encoder[4]

    @pytest.mark.parametrize("kind", ["toy", "images"])
    def test_trunks_that_diverge_are_left_out(self, kind: str, tmp_path: Path) -> None:
        settings = ("shared_trunk.learning_rate=1e6", "shared_trunk.optimiser=sgd")
        recipe = make_recipe(kind, tmp_path, *settings)
        if kind == "toy":
            with pytest.raises(
                InputError, match=r"shared_trunk: 2 of 2 networks diverged .* lower shared_trunk.learning"
            ):
                train(recipe, tmp_path / "run")
        else:
            trained = train(recipe, tmp_path / "run", "shared_trunk").collected("shared_trunk")
            assert trained.networks == []
            assert "shared_trunk: network 0: the loss became NaN" in trained.diverged[0]
