"""One contract for every method: each goes through all of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import torch
from pydantic import ValidationError
from small_recipes import small
from torch import Tensor
from toy_fit import fit, grid_of, make_problem, pool_of, train, training_of

from epibench.errors import InputError
from epibench.likelihoods import categorical, gaussian
from epibench.members.draws import make_draws
from epibench.methods import AFTER_TRAINING, METHODS, Method
from epibench.methods.mc_dropout import MCDropout
from epibench.methods.optimised import Optimised
from epibench.networks.mlp import StackedMLP
from trained_runs import train as train_run

SMALL: dict[str, dict[str, object]] = {
    "map": {"num_restarts": 3},
    "ml": {"num_restarts": 3},
    "ensemble": {"num_members": 5},
    "mc_dropout": {"num_networks": 3, "num_passes": 4, "repeats": 2},
    "sgld": {"num_chains": 3, "num_snapshots": 4},
    "sghmc": {"num_chains": 3, "num_snapshots": 4},
    "cyclical": {"num_chains": 3, "num_snapshots": 4, "num_cycles": 2},
    "snapshot": {"num_networks": 3, "num_cycles": 4},
    "swa": {"num_networks": 3, "num_snapshots": 3},
    "pruned": {"num_members": 5},
    "shared_trunk": {"num_trunks": 3, "num_heads": 4},
    "swag": {"num_networks": 3, "num_samples": 4, "num_snapshots": 3},
    "multi_swag": {"num_networks": 3, "num_samples": 4, "num_snapshots": 3},
    "batch_ensemble": {"num_networks": 3, "num_members": 4},
    "tta": {"num_epochs": 0, "num_networks": 3},
    "laplace": {"num_networks": 3, "num_samples": 4},
}
# For each method the members of each group; their number where the pool has no groups.
GROUPS: dict[str, list[int] | int] = {
    "map": [1, 1, 1],
    "ml": [1, 1, 1],
    "ensemble": 5,
    "mc_dropout": [4] * 6,
    "sgld": [4, 4, 4],
    "sghmc": [4, 4, 4],
    "cyclical": [4, 4, 4],
    "snapshot": [4, 4, 4],
    "swa": [1, 1, 1],
    "pruned": 5,
    "shared_trunk": [4, 4, 4],
    "swag": [4, 4, 4],
    "multi_swag": 12,
    "batch_ensemble": [4, 4, 4],
    "tta": [2, 2, 2],
    "laplace": [4, 4, 4],
}
PROBLEMS = ("regression", "classification")
ON_POINTS = [name for name, method in METHODS.items() if method.only_images is None]
CASES = [(name, problem) for name in ON_POINTS for problem in PROBLEMS]
every_method = pytest.mark.parametrize("name", METHODS)


def make_method(name: str, **options: object) -> Method:
    return METHODS[name](**{"num_epochs": 16, **SMALL[name], **options})


def outputs_of(pool: Any, inputs: Tensor, **options: float) -> dict[str, Tensor]:
    """What all members predict."""
    return pool.outputs(inputs, slice(0, pool.num_members), **options)


def same_outputs(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


def test_every_method_is_tried() -> None:
    assert set(SMALL) == set(GROUPS) == set(METHODS)


@every_method
def test_a_method_is_listed_under_its_own_name(name: str) -> None:
    assert METHODS[name].name == name
    assert METHODS[name].label


@pytest.mark.parametrize(("name", "problem"), CASES)
class TestContract:
    @pytest.fixture(scope="class")
    def pools(self) -> dict[tuple[str, str], Any]:
        """Every method is fitted once."""
        return {case: fit(make_method(case[0]), make_problem(case[1])) for case in CASES}

    @pytest.fixture
    def pool(self, pools: dict[tuple[str, str], Any], name: str, problem: str) -> Iterator[Any]:
        return pools[name, problem]

    def test_train_makes_one_row_per_network(self, name: str, problem: str) -> None:
        method, task = make_method(name), make_problem(problem)
        parameters = train(method, task)
        number = training_of(method, task).network.num_parameters
        assert parameters.shape == (method.num_trained, len(method.keep), number)
        assert torch.isfinite(parameters).all()

    def test_the_pool_has_its_members_in_groups(self, name: str, problem: str, pool: Any) -> None:
        sizes = GROUPS[name]
        if isinstance(sizes, int):
            assert (pool.group, pool.num_members) == (None, sizes)
        else:
            assert pool.group == tuple(group for group, size in enumerate(sizes) for _ in range(size))
            assert pool.num_members == sum(sizes)

    def test_draws_can_be_made_as_the_pool_suggests(self, name: str, problem: str, pool: Any) -> None:
        draws = make_draws(pool.num_members, plan=pool.plan, group=pool.group)
        outputs = outputs_of(pool, grid_of(problem))
        predictive = {"regression": gaussian, "classification": categorical}[problem].combine(outputs, draws.weights)
        assert torch.isfinite(predictive.uncertainty()).all()

    def test_the_largest_draw_is_what_the_method_says(self, name: str, problem: str, pool: Any) -> None:
        largest = make_method(name).largest_draw
        make_draws(pool.num_members, [largest], plan=pool.plan, group=pool.group)
        with pytest.raises(InputError, match=f"M = {largest + 1} is impossible"):
            make_draws(pool.num_members, [largest + 1], plan=pool.plan, group=pool.group)

    def test_no_draw_mixes_groups(self, name: str, problem: str, pool: Any) -> None:
        draws = make_draws(pool.num_members, plan=pool.plan, group=pool.group)
        groups = pool.group or (0,) * pool.num_members
        assert all(len({groups[member] for member in members}) == 1 for members in draws.sets)

    def test_outputs_have_the_shapes_of_their_kind(self, name: str, problem: str, pool: Any) -> None:
        shapes = {key: tuple(values.shape) for key, values in outputs_of(pool, grid_of(problem)).items()}
        members = pool.num_members
        if problem == "regression":
            assert shapes == {"mean": (members, 30), "variance": (members, 30)}
        else:
            assert shapes == {"probs": (members, 30, 2)}

    def test_outputs_are_finite_and_proper(self, name: str, problem: str, pool: Any) -> None:
        outputs = outputs_of(pool, grid_of(problem))
        assert all(torch.isfinite(values).all() for values in outputs.values())
        if problem == "regression":
            assert (outputs["variance"] > 0).all()
        else:
            assert (outputs["probs"] >= 0).all()
            torch.testing.assert_close(outputs["probs"].sum(-1), torch.ones(pool.num_members, 30).double())

    def test_members_of_a_pool_differ(self, name: str, problem: str, pool: Any) -> None:
        outputs = next(iter(outputs_of(pool, grid_of(problem)).values())).flatten(1)
        assert len(torch.unique(outputs, dim=0)) == pool.num_members

    @pytest.mark.parametrize("size", [1, 7, 16])
    def test_outputs_do_not_depend_on_batches(self, name: str, problem: str, pool: Any, size: int) -> None:
        inputs = grid_of(problem)
        whole = outputs_of(pool, inputs)
        parts = [outputs_of(pool, inputs[first : first + size], first=first) for first in range(0, 30, size)]
        joined = {key: torch.cat([part[key] for part in parts], 1) for key in whole}
        for key in whole:
            torch.testing.assert_close(joined[key], whole[key], rtol=2e-5, atol=1e-6)

    @pytest.mark.parametrize("size", [1, 2, 3])
    def test_outputs_do_not_depend_on_which_members_are_asked(
        self, name: str, problem: str, pool: Any, size: int
    ) -> None:
        inputs, number = grid_of(problem), pool.num_members
        parts = [pool.outputs(inputs, slice(start, min(start + size, number))) for start in range(0, number, size)]
        joined = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
        assert same_outputs(joined, outputs_of(pool, inputs))

    def test_outputs_are_the_same_when_asked_again(self, name: str, problem: str, pool: Any) -> None:
        inputs = grid_of(problem)
        assert same_outputs(outputs_of(pool, inputs), outputs_of(pool, inputs))

    def test_the_pool_of_saved_parameters_is_the_fitted_one(self, name: str, problem: str, pool: Any) -> None:
        method, task = make_method(name), make_problem(problem)
        again = pool_of(method, task, train(method, task).clone())
        assert same_outputs(outputs_of(again, grid_of(problem)), outputs_of(pool, grid_of(problem)))

    def test_another_seed_is_another_pool(self, name: str, problem: str, pool: Any) -> None:
        other = fit(make_method(name), make_problem(problem), 1)
        assert not same_outputs(outputs_of(other, grid_of(problem)), outputs_of(pool, grid_of(problem)))

    def test_a_network_is_the_same_whatever_the_number_of_networks(self, name: str, problem: str) -> None:
        number = next(option for option in SMALL[name] if option.startswith("num_"))
        fewer = train(make_method(name, **{number: 2}), make_problem(problem))
        assert torch.equal(train(make_method(name), make_problem(problem))[:2], fewer)

    def test_members_of_a_network_are_the_same_whatever_the_number_of_networks(
        self, name: str, problem: str, pool: Any
    ) -> None:
        number = next(option for option in SMALL[name] if option.startswith("num_"))
        fewer = fit(make_method(name, **{number: 2}), make_problem(problem))
        inputs = grid_of(problem)
        found = {key: values[: fewer.num_members] for key, values in outputs_of(pool, inputs).items()}
        assert pool.table.members[: fewer.num_members] == fewer.table.members
        assert same_outputs(outputs_of(fewer, inputs), found)


@every_method
class TestOptions:
    def test_an_unknown_one_is_refused(self, name: str) -> None:
        with pytest.raises(ValidationError, match="num_epoch\n"):
            METHODS[name](num_epoch=3)

    @pytest.mark.parametrize("option", ["num_epochs", "batch_size"])
    @pytest.mark.parametrize("value", [0, -1, 1.5, "many"])
    def test_counts_must_be_whole_and_positive(self, name: str, option: str, value: object) -> None:
        if (option, value) == ("num_epochs", 0) and make_method(name).source is not None:
            assert METHODS[name](num_epochs=0).keep == (0,)  # its networks are trained already
            return
        with pytest.raises(ValidationError, match=option):
            METHODS[name](**{option: value})

    @pytest.mark.parametrize("value", [0, -0.1, float("nan"), float("inf")])
    def test_the_learning_rate_must_be_positive_and_finite(self, name: str, value: float) -> None:
        with pytest.raises(ValidationError, match="learning_rate"):
            METHODS[name](learning_rate=value)

    def test_every_number_of_networks_must_be_positive(self, name: str) -> None:
        for option in SMALL[name].keys() - {"num_epochs"}:
            with pytest.raises(ValidationError, match=option):
                METHODS[name](**{option: 0})

    def test_they_cannot_be_changed_afterwards(self, name: str) -> None:
        method = make_method(name)
        with pytest.raises(ValidationError, match="frozen"):
            method.num_epochs = 3

    def test_they_survive_json(self, name: str) -> None:
        method = make_method(name)
        assert METHODS[name].model_validate_json(method.model_dump_json()) == method


@every_method
class TestMembers:
    """What a method says of its members before anything is trained."""

    def test_the_table_has_as_many_to_draw_from_as_the_largest_draw(self, name: str) -> None:
        method = make_method(name)
        table = method.members(range(method.num_trained))
        make_draws(len(table.members), [method.largest_draw], plan=table.plan, group=table.group)
        with pytest.raises(InputError, match=f"M = {method.largest_draw + 1} is impossible"):
            make_draws(len(table.members), [method.largest_draw + 1], plan=table.plan, group=table.group)

    def test_every_member_is_there_once_and_of_a_network_and_snapshot_that_there_is(self, name: str) -> None:
        method = make_method(name)
        members = method.members(range(method.num_trained)).members
        assert len(set(members)) == len(members)
        assert {member.network for member in members} == set(range(method.num_trained))
        assert {member.snapshot for member in members} <= set(range(len(method.keep)))

    def test_members_of_a_group_lie_together_and_are_of_one_network(self, name: str) -> None:
        table = make_method(name).members(range(3))
        if table.group is not None:
            groups = [list(each) for _, each in itertools.groupby(zip(table.group, table.members, strict=True), first)]
            assert len(groups) == len(set(table.group))
            assert all(len({member.network for _, member in group}) == 1 for group in groups)

    def test_networks_that_are_left_out_leave_the_others_as_they_were(self, name: str) -> None:
        """Where network 1 has diverged, say."""
        method = make_method(name)
        every, left = method.members((0, 1, 2)), method.members((0, 2))
        numbers = [number for number, member in enumerate(every.members) if member.network != 1]
        assert left.members == tuple(every.members[number] for number in numbers)
        if every.group is not None:
            assert left.group == tuple(every.group[number] for number in numbers)


def first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {*ON_POINTS}))
def test_what_is_for_images_alone_is_refused_on_points(name: str) -> None:
    with pytest.raises(InputError, match=rf"methods: {name} is for images alone \(.+\); leave it out"):
        small("toy-regression", f'methods=["{name}"]', "members=[1]")


class Repeating(Optimised):
    """A user's method with an option that has the name of one of ours, and decides about the training."""

    name: ClassVar[str] = "repeating"
    label: ClassVar[str] = "Repeating"

    repeats: int = 1
    num_samples: Annotated[int, AFTER_TRAINING] = 8

    @property
    def num_trained(self) -> int:
        return 1


class TestTrainingOptions:
    """What decides whether networks that are there can be used."""

    MARKED: ClassVar[dict[str, set[str]]] = {
        "map": {"num_restarts"},
        "ml": {"num_restarts"},
        "ensemble": {"num_members", "sets", "num_sets"},
        "mc_dropout": {"num_networks", "num_passes", "repeats"},
        "sgld": {"num_chains", "refresh_batches"},
        "sghmc": {"num_chains", "refresh_batches"},
        "cyclical": {"num_chains", "refresh_batches"},
        "snapshot": {"num_networks"},
        "swa": {"num_networks", "refresh_batches"},
        "swag": {"num_networks", "num_samples", "scale", "refresh_batches"},
        "multi_swag": {"num_networks", "num_samples", "scale", "refresh_batches"},
        "pruned": {"num_members", "sets", "num_sets"},
        "shared_trunk": {"num_trunks"},
        "batch_ensemble": {"num_networks", "refresh_batches"},
        "tta": {"num_networks", "views"},
        "laplace": {"num_networks", "num_samples", "mixed", "curvature", "precision", "observations", "num_pixels"},
    }

    @every_method
    def test_leave_out_exactly_what_is_marked(self, name: str) -> None:
        method = make_method(name)
        left_out = set(type(method).model_fields) - set(method.training_options)
        assert left_out == {"diverged"} | self.MARKED[name]

    @every_method
    def test_what_is_left_out_changes_no_training(self, name: str) -> None:
        method = make_method(name)
        marked = dict.fromkeys(self.MARKED[name] - {"sets", "num_sets", "views", "mixed", "curvature"}, 5)
        other = make_method(name, **marked, diverged="drop")
        assert other.training_options == method.training_options
        ours, theirs = method.training, other.training
        assert (ours.rule, ours.num_epochs, ours.batch_size) == (theirs.rule, theirs.num_epochs, theirs.batch_size)
        assert (ours.keep, ours.dropout) == (theirs.keep, theirs.dropout)
        steps = range(1, 17)
        assert [ours.schedule(step, 16) for step in steps] == [theirs.schedule(step, 16) for step in steps]

    def test_are_all_that_a_user_has_not_marked_whatever_its_name(self) -> None:
        one, two, more = Repeating(), Repeating(repeats=2), Repeating(num_samples=9)
        assert one.training_options != two.training_options
        assert one.training_options == more.training_options
        assert one.training_options["repeats"] == 1

    def test_are_plain_data(self) -> None:
        assert make_method("ensemble", num_epochs=3).training_options == {
            "num_epochs": 3,
            "batch_size": 32,
            "optimiser": "adam",
            "learning_rate": 1e-3,
            "decay": "none",
            "same_start": False,
        }


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("map", {"optimiser": "lion"}),
        ("map", {"decay": "cosine"}),
        ("mc_dropout", {"rate": 0}),
        ("mc_dropout", {"rate": 1}),
        ("mc_dropout", {"rate": float("nan")}),
        ("sgld", {"burn_in": 1}),
        ("sgld", {"burn_in": -0.1}),
        ("sgld", {"burn_in": float("nan")}),
        ("sgld", {"power": -1}),
        ("sghmc", {"friction": 0}),
        ("sghmc", {"friction": 1.1}),
        ("cyclical", {"exploration": 1}),
        ("cyclical", {"exploration": -0.1}),
        ("cyclical", {"sampler": "hmc"}),
        ("snapshot", {"num_cycles": 151}),
        ("snapshot", {"num_cycles": 3, "num_epochs": 2}),
        ("snapshot", {"decay": "poly"}),
        ("swa", {"num_epochs": 1}),
        ("swa", {"collect": 0}),
        ("swa", {"collect": 1.1}),
        ("swa", {"swa_rate": 0}),
        ("swag", {"num_snapshots": 1}),
        ("swag", {"scale": -1}),
        ("multi_swag", {"refresh_batches": -1}),
        ("batch_ensemble", {"batch_size": 6}),
        ("batch_ensemble", {"vectors": "zeros"}),
        ("batch_ensemble", {"deviation": -0.1}),
        ("tta", {"views": ["rotate"]}),
        ("tta", {"views": ["flip", "flip"]}),
        ("tta", {"num_epochs": 1}),
    ],
)
def test_bad_values_are_refused(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        METHODS[name](**options)


@pytest.mark.parametrize("name", ["map", "ensemble", "sgld", "sghmc"])
def test_divergence_is_an_error_that_says_what_to_do(name: str, tmp_path: Path) -> None:
    options = [f"{name}.optimiser=sgd"] if name in ("map", "ensemble") else []
    recipe = small("toy-regression", f'methods=["{name}"]', f"{name}.learning_rate=1e6", *options)
    number = recipe.method(name).num_trained
    with pytest.raises(InputError, match=rf"{name}: \d of {number} networks diverged .* lower {name}.learning_rate"):
        train_run(recipe, tmp_path)


class TestPaper:
    """What facts.md fixes."""

    def test_ensembling(self) -> None:
        method = METHODS["ensemble"]()
        options = (method.num_members, method.num_epochs, method.batch_size, method.optimiser, method.learning_rate)
        assert options == (1024, 150, 32, "adam", 1e-3)

    def test_mc_dropout(self) -> None:
        method = METHODS["mc_dropout"]()
        assert (method.num_networks, method.num_epochs, method.rate) == (10, 300, 0.2)

    @pytest.mark.parametrize(("name", "rate"), [("sgld", 0.01), ("sghmc", 0.001)])
    def test_samplers(self, name: str, rate: float) -> None:
        method = METHODS[name]()
        assert (method.num_chains, method.num_epochs, method.batch_size) == (6, 256 * 150, 32)
        assert (method.learning_rate, method.power) == (rate, 0.9)

    def test_friction(self) -> None:
        assert METHODS["sghmc"]().friction == 0.1


class TestDropoutPool:
    def pool(self, **options: object) -> Any:
        return fit(make_method("mc_dropout", **options), make_problem("regression"))

    def test_more_passes_change_no_earlier_one(self) -> None:
        inputs = grid_of("regression")
        few, many = (outputs_of(self.pool(num_passes=passes, repeats=1), inputs)["mean"] for passes in (3, 5))
        assert torch.equal(few.view(3, 3, 30), many.view(3, 5, 30)[:, :3])

    def test_more_repeats_change_no_earlier_one(self) -> None:
        inputs = grid_of("regression")
        one, two = (outputs_of(self.pool(repeats=repeats), inputs)["mean"] for repeats in (1, 2))
        assert torch.equal(one.view(3, 4, 30), two.view(3, 8, 30)[:, :4])

    def test_every_point_has_a_mask_of_its_own(self) -> None:
        """A pass predicts differently at one and the same input, seen twice."""
        outputs = outputs_of(self.pool(), torch.ones(50, 1))["mean"]
        assert all(len(torch.unique(row)) > 1 for row in outputs)

    def test_a_mask_belongs_to_the_number_of_its_point(self) -> None:
        inputs = grid_of("regression")
        pool = self.pool()
        alone = outputs_of(pool, inputs[13:14], first=13)["mean"]
        torch.testing.assert_close(alone, outputs_of(pool, inputs)["mean"][:, 13:14])
        assert not torch.allclose(alone, outputs_of(pool, inputs[13:14], first=0)["mean"])

    def test_the_average_of_many_passes_of_a_linear_unit_is_the_network_without_dropout(self) -> None:
        """With one hidden layer the output is linear in the mask, whose mean is 1."""
        problem = replace(make_problem("regression"), network=StackedMLP(1, 1, heads=2, hidden=(10,)))
        method = MCDropout(num_networks=1, num_passes=20_000, num_epochs=2)
        parameters = train(method, problem)
        inputs = torch.tensor([[-1.0], [2.0]])
        passes = outputs_of(pool_of(method, problem, parameters), inputs)["mean"].double()
        exact = outputs_of(pool_of(METHODS["map"](), problem, parameters), inputs)["mean"][0].double()
        error = (passes.mean(0) - exact) / (passes.std(0) / 20_000**0.5)
        assert float(error.abs().max()) < 4.5


class TestSnapshots:
    @pytest.mark.parametrize("name", ["sgld", "sghmc"])
    def test_are_evenly_spread_over_the_last_quarter(self, name: str) -> None:
        assert METHODS[name](num_epochs=100, num_snapshots=6).keep == (75, 80, 85, 90, 95, 100)

    def test_of_the_paper_begin_at_three_quarters_and_end_with_the_last_epoch(self) -> None:
        snapshots = METHODS["sgld"]().keep
        gaps = {after - before for before, after in itertools.pairwise(snapshots)}
        assert (len(snapshots), snapshots[0], snapshots[-1]) == (256, 28_800, 38_400)
        assert gaps <= {37, 38}

    @pytest.mark.parametrize("size", [8, 16, 32, 64, 128, 256])
    def test_draws_of_any_size_are_spread_over_all_of_them(self, size: int) -> None:
        snapshots = METHODS["sgld"]().keep
        (chosen,) = make_draws(256, [size], plan="spread").sets
        epochs = [snapshots[member] for member in chosen]
        even = [28_800 + position * 9_600 / (size - 1) for position in range(size)]
        assert max(abs(a - b) for a, b in zip(epochs, even, strict=True)) < 76  # two gaps between snapshots

    @pytest.mark.parametrize("epochs", [1, 2, 3, 5, 100])
    def test_there_are_never_more_than_epochs_to_keep(self, epochs: int) -> None:
        snapshots = METHODS["sgld"](num_epochs=epochs).keep
        assert snapshots == tuple(range(max(1, int(0.75 * epochs)), epochs + 1))

    def test_a_single_one_is_the_last_epoch(self) -> None:
        assert METHODS["sgld"](num_epochs=100, num_snapshots=1).keep == (100,)


def sampling_epochs(method: Method, steps_per_epoch: int) -> set[int]:
    """The epochs at whose last step the noise is on."""
    total = method.num_epochs * steps_per_epoch
    return {
        epoch
        for epoch in range(1, method.num_epochs + 1)
        if method.schedule(epoch * steps_per_epoch, total).temperature == 1
    }


class TestCyclicalSnapshots:
    @pytest.mark.parametrize("steps_per_epoch", [1, 32, 33])
    @pytest.mark.parametrize(
        "options",
        [
            {"num_epochs": 320, "num_cycles": 32},
            {"num_epochs": 100, "num_cycles": 7},
            {"num_epochs": 100, "num_cycles": 7, "exploration": 0.9},
            {"num_epochs": 64, "num_cycles": 32},
            {"num_epochs": 38_400, "num_cycles": 32},
            {"num_epochs": 100, "num_cycles": 32},
            {"num_epochs": 10, "num_cycles": 3, "exploration": 0.0},
        ],
        ids=str,
    )
    def test_are_from_sampling_phases_only(self, options: dict[str, float], steps_per_epoch: int) -> None:
        method = METHODS["cyclical"](**options)
        assert method.keep
        assert set(method.keep) <= sampling_epochs(method, steps_per_epoch)

    def test_every_cycle_gives_as_many(self) -> None:
        snapshots = METHODS["cyclical"](num_epochs=320, num_cycles=4, num_snapshots=20).keep
        cycles = [(epoch - 1) // 80 for epoch in snapshots]
        assert [cycles.count(cycle) for cycle in range(4)] == [5, 5, 5, 5]

    def test_the_last_epoch_of_every_cycle_is_among_them(self) -> None:
        snapshots = METHODS["cyclical"](num_epochs=320, num_cycles=4, num_snapshots=20).keep
        assert {80, 160, 240, 320} <= set(snapshots)

    @pytest.mark.parametrize("epochs", [1, 2, 5, 31, 33])
    def test_there_is_always_at_least_one(self, epochs: int) -> None:
        assert METHODS["cyclical"](num_epochs=epochs).keep

    def test_there_are_no_more_than_asked_for(self) -> None:
        assert len(METHODS["cyclical"](num_epochs=320, num_cycles=32, num_snapshots=8).keep) <= 8

    def test_burn_in_leaves_the_first_out(self) -> None:
        snapshots = METHODS["cyclical"](num_epochs=320, num_cycles=4, num_snapshots=20, burn_in=0.5).keep
        assert min(snapshots) >= 160
