"""The toy problems: what their generators promise, the grid, and files of given data."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from epibench.data.sets.toy import in_region, make_toy, sample
from epibench.errors import InputError

NAMES = ("toy-regression", "toy-classification")
every_problem = pytest.mark.parametrize("name", NAMES)


class TestRegressionData:
    train = make_toy("toy-regression").train
    many = sample("toy-regression", "train", 40_000, 3)

    def test_shapes(self) -> None:
        assert (self.train.inputs.shape, self.train.inputs.dtype) == ((1000, 1), torch.float32)
        assert (self.train.target.shape, self.train.target.dtype) == ((1000,), torch.float32)

    def test_inputs_are_uniform_in_minus_3_to_3(self) -> None:
        assert stats.kstest(self.many.inputs[:, 0].double(), stats.uniform(-3, 6).cdf).pvalue > 1e-3

    @pytest.mark.parametrize("region", ["train", "grid"])
    def test_targets_are_normal_about_the_sine_with_the_noise_of_the_paper(self, region) -> None:
        data = sample("toy-regression", region, 40_000, 3)
        x, y = data.inputs[:, 0].double().numpy(), data.target.double().numpy()
        standardised = (y - np.sin(x)) / (0.15 / (1 + np.exp(-x)))
        # Far left of the training data the noise is too small for float32.
        assert stats.kstest(standardised[x > -3], "norm").pvalue > 1e-3

    def test_the_noise_grows_from_left_to_right(self) -> None:
        x, y = self.many.inputs[:, 0].double(), self.many.target.double()
        error = y - x.sin()
        for low, high in ((-3, -2), (-1, 0), (2, 3)):
            part = (x >= low) & (x < high)
            expected = np.sqrt(np.mean((0.15 / (1 + np.exp(-np.linspace(low, high, 1001)))) ** 2))
            assert float(error[part].std()) == pytest.approx(expected, rel=0.05)

    def test_the_grid_region_reaches_to_7(self) -> None:
        inputs = sample("toy-regression", "grid", 40_000, 3).inputs[:, 0]
        assert stats.kstest(inputs.double(), stats.uniform(-7, 14).cdf).pvalue > 1e-3


class TestClassificationData:
    train = make_toy("toy-classification").train
    many = sample("toy-classification", "train", 40_000, 3)

    def test_shapes(self) -> None:
        assert (self.train.inputs.shape, self.train.inputs.dtype) == ((1040, 2), torch.float32)
        assert (self.train.target.shape, self.train.target.dtype) == ((1040,), torch.int64)

    def test_inputs_are_uniform_where_x1_is_above_0(self) -> None:
        first, second = self.many.inputs.double().T
        assert stats.kstest(first, stats.uniform(0, 3).cdf).pvalue > 1e-3
        assert stats.kstest(second, stats.uniform(-3, 6).cdf).pvalue > 1e-3
        assert abs(np.corrcoef(first, second)[0, 1]) < 4.5 / math.sqrt(40_000)

    def test_class_0_lies_within_2_4_of_the_origin(self) -> None:
        distance = self.many.inputs.double().norm(dim=1)
        clear = (distance - 2.4).abs() > 1e-6
        assert torch.equal(self.many.target[clear], (distance[clear] >= 2.4).long())

    def test_the_classes_are_as_large_as_their_areas(self) -> None:
        share = math.pi * 2.4**2 / 2 / 18
        found = float((self.many.target == 0).double().mean())
        assert abs(found - share) < 4.5 * math.sqrt(share * (1 - share) / 40_000)

    def test_about_520_of_each(self) -> None:
        assert self.train.target.bincount().tolist() == pytest.approx([520, 520], abs=60)

    def test_the_grid_region_is_all_of_minus_6_to_6(self) -> None:
        inputs = sample("toy-classification", "grid", 40_000, 3).inputs.double()
        for axis in inputs.T:
            assert stats.kstest(axis, stats.uniform(-6, 12).cdf).pvalue > 1e-3


@every_problem
def test_the_seed_decides(name) -> None:
    one, same, other = (make_toy(name, seed).train for seed in (1, 1, 2))
    assert torch.equal(one.inputs, same.inputs)
    assert torch.equal(one.target, same.target)
    assert not torch.equal(one.inputs, other.inputs)


@every_problem
def test_points_to_score_with_are_none_of_the_training_points(name) -> None:
    one, other = (sample(name, region, 500, 1).inputs for region in ("train", "grid"))
    assert not set(map(tuple, one.tolist())) & set(map(tuple, other.tolist()))


def test_an_unknown_problem_is_refused() -> None:
    with pytest.raises(InputError, match="'toy-depth' is unknown; there are toy-regression, toy-classification"):
        make_toy("toy-depth")


class TestGrid:
    def test_regression_has_1000_points_of_minus_7_to_7(self) -> None:
        grid = make_toy("toy-regression").grid
        assert grid.shape == (1000, 1)
        np.testing.assert_allclose(grid[:, 0], np.linspace(-7, 7, 1000), atol=1e-6)

    def test_classification_has_60_by_60_points_with_x1_fastest(self) -> None:
        grid, axis = make_toy("toy-classification").grid, np.linspace(-6, 6, 60)
        expected = [(x1, x2) for x2 in axis for x1 in axis]
        np.testing.assert_allclose(grid, expected, atol=1e-6)

    @pytest.mark.parametrize(("name", "share"), [("toy-regression", 6 / 14), ("toy-classification", 18 / 144)])
    def test_the_share_inside_is_that_of_the_training_region(self, name, share: float) -> None:
        inside = make_toy(name).inside
        assert float(inside.double().mean()) == pytest.approx(share, rel=0.05)

    @pytest.mark.parametrize(
        ("name", "point", "inside"),
        [
            ("toy-regression", [-3.0], True),
            ("toy-regression", [3.001], False),
            ("toy-classification", [0.0, -3.0], True),
            ("toy-classification", [-0.001, 0.0], False),
            ("toy-classification", [1.0, 3.001], False),
        ],
    )
    def test_the_edges_of_the_region(self, name, point: list[float], inside: bool) -> None:
        assert in_region(name, torch.tensor([point])).tolist() == [inside]

    @every_problem
    def test_all_training_points_lie_inside(self, name) -> None:
        assert in_region(name, make_toy(name).train.inputs).all()


def arrays_of(name: str, num_points: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    if name == "toy-regression":
        return {"x": rng.normal(size=num_points), "y": rng.normal(size=num_points)}
    return {"x": rng.normal(size=(num_points, 2)), "y": rng.integers(0, 2, num_points)}


class TestGivenFile:
    @every_problem
    @pytest.mark.parametrize("prefixed", [False, True])
    def test_is_read_under_either_name(self, name, prefixed: bool, tmp_path: Path) -> None:
        prefix = name.removeprefix("toy-") + "_" if prefixed else ""
        arrays = arrays_of(name)
        np.savez(tmp_path / "data.npz", **{prefix + key: values for key, values in arrays.items()})
        train = make_toy(name, path=tmp_path / "data.npz").train
        np.testing.assert_allclose(train.inputs, arrays["x"].reshape(5, -1).astype(np.float32))
        np.testing.assert_allclose(train.target, arrays["y"].astype(np.float32))
        assert train.target.dtype == (torch.float32 if name == "toy-regression" else torch.int64)

    @every_problem
    def test_one_file_may_hold_both_problems(self, name, tmp_path: Path) -> None:
        both = {
            f"{each.removeprefix('toy-')}_{key}": values for each in NAMES for key, values in arrays_of(each).items()
        }
        np.savez(tmp_path / "data.npz", **both)
        assert make_toy(name, path=tmp_path / "data.npz").train.inputs.shape == (5, 1 if name == NAMES[0] else 2)

    def test_inputs_of_regression_may_have_a_feature_axis(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "data.npz", x=np.zeros((4, 1)), y=np.zeros(4))
        assert make_toy("toy-regression", path=tmp_path / "data.npz").train.inputs.shape == (4, 1)


def refusal(name: str, path: Path) -> str:
    with pytest.raises(InputError) as caught:
        make_toy(name, path=path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


class TestBadFile:
    def test_that_is_not_there(self, tmp_path: Path) -> None:
        assert "no such file" in refusal("toy-regression", tmp_path / "none.npz")

    def test_that_is_a_folder(self, tmp_path: Path) -> None:
        assert "not a readable .npz file" in refusal("toy-regression", tmp_path)

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"x,y\n1,2\n"])
    def test_that_is_no_npz(self, content: bytes, tmp_path: Path) -> None:
        (tmp_path / "data.npz").write_bytes(content)
        assert "not a readable .npz file" in refusal("toy-regression", tmp_path / "data.npz")

    def test_that_is_a_single_array(self, tmp_path: Path) -> None:
        np.save(tmp_path / "data.npy", np.zeros((5, 2)))
        assert "not a readable .npz file" in refusal("toy-regression", tmp_path / "data.npy")

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    @pytest.mark.parametrize("where", [0.3, 0.5, 0.7])
    def test_with_damaged_bytes(self, save, where: float, tmp_path: Path) -> None:
        path = tmp_path / "data.npz"
        save(path, **arrays_of("toy-regression", 2000))
        content = bytearray(path.read_bytes())
        middle = int(where * len(content))
        content[middle : middle + 64] = bytes(64)
        path.write_bytes(content)
        assert "not a readable .npz file" in refusal("toy-regression", path)

    def test_with_pickled_objects(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "data.npz", x=np.array([{}, {}], dtype=object), y=np.zeros(2))
        assert "plain arrays" in refusal("toy-regression", tmp_path / "data.npz")

    @every_problem
    @pytest.mark.parametrize("missing", ["x", "y"])
    def test_without_an_array(self, name, missing: str, tmp_path: Path) -> None:
        arrays = arrays_of(name)
        arrays["z"] = arrays.pop(missing)
        np.savez(tmp_path / "data.npz", **arrays)
        message = refusal(name, tmp_path / "data.npz")
        assert f"no array '{missing}' or '{name.removeprefix('toy-')}_{missing}'" in message
        assert f"it holds {', '.join(arrays)}" in message

    @every_problem
    def test_with_nothing_in_it(self, name, tmp_path: Path) -> None:
        np.savez(tmp_path / "data.npz")
        assert "it holds nothing" in refusal(name, tmp_path / "data.npz")

    @pytest.mark.parametrize(
        ("name", "x", "y"),
        [
            ("toy-regression", (5, 2), (5,)),
            ("toy-regression", (5,), (4,)),
            ("toy-regression", (5,), (5, 1)),
            ("toy-regression", (0,), (0,)),
            ("toy-regression", (), ()),
            ("toy-classification", (5,), (5,)),
            ("toy-classification", (2, 5), (5,)),
        ],
    )
    def test_with_wrong_shapes(self, name, x: tuple[int, ...], y: tuple[int, ...], tmp_path: Path) -> None:
        np.savez(tmp_path / "data.npz", x=np.zeros(x), y=np.zeros(y))
        assert f"not {x} and {y}" in refusal(name, tmp_path / "data.npz")

    @every_problem
    @pytest.mark.parametrize(("array", "word"), [("x", "inputs"), ("y", "targets")])
    @pytest.mark.parametrize("value", [np.nan, np.inf, "a", 1j])
    def test_with_what_is_no_finite_number(self, name, array: str, word: str, value, tmp_path: Path) -> None:
        arrays = arrays_of(name)
        arrays[array] = arrays[array].astype(np.result_type(np.asarray(value).dtype, np.float64), copy=True)
        arrays[array].flat[1] = value
        np.savez(tmp_path / "data.npz", **arrays)
        assert f"the {word} must be finite numbers" in refusal(name, tmp_path / "data.npz")

    @pytest.mark.parametrize(("array", "word"), [("x", "inputs"), ("y", "targets")])
    def test_with_numbers_too_large_for_float32(self, array: str, word: str, tmp_path: Path) -> None:
        arrays = arrays_of("toy-regression")
        arrays[array][1] = 1e300
        np.savez(tmp_path / "data.npz", **arrays)
        assert word in refusal("toy-regression", tmp_path / "data.npz")

    @pytest.mark.parametrize("value", [2, -1, 0.5])
    def test_with_classes_other_than_0_and_1(self, value: float, tmp_path: Path) -> None:
        arrays = arrays_of("toy-classification")
        arrays["y"] = np.where(np.arange(5) == 2, value, arrays["y"])
        np.savez(tmp_path / "data.npz", **arrays)
        assert "classes must be 0 and 1" in refusal("toy-classification", tmp_path / "data.npz")
