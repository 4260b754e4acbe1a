"""How much a pixel counts by its class."""

from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from small_segmentation_recipe import small_segmentation

from epibench.data.batch import Batch
from epibench.data.classes import IGNORE, table_of_names
from epibench.data.sets.street import StreetSource
from epibench.errors import InputError
from epibench.recipes.dense import DenseRecipe
from epibench.runs.class_weights import (
    SMALLEST_SHARE,
    class_weights,
    count_classes,
    counts_file,
    prepare_weights,
    rare_weights,
)


class Pixels:
    """Samples of one pixel each."""

    def __init__(self, *labels: int, num_classes: int = 3) -> None:
        self.labels = labels
        self.classes = table_of_names([f"class {number}" for number in range(num_classes)])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        target = torch.tensor([[self.labels[index]]])
        return Batch({"image": torch.zeros(3, 1, 1, dtype=torch.uint8)}, target, target != IGNORE)


class Silent:
    """Says nothing, and counts what is done."""

    done = 0

    @contextmanager
    def step(self, name: str, total: int, done: int = 0):
        def advance(units: int, note: str = "") -> None:
            self.done += units

        yield advance

    def say(self, text: str) -> None:
        raise AssertionError(text)


@pytest.fixture
def recipe(tmp_path: Path) -> DenseRecipe:
    return small_segmentation(tmp_path / "cache", "training.class_weights=rare")


def test_valid_pixels_are_counted() -> None:
    reporter = Silent()
    assert count_classes(Pixels(0, 2, 2, IGNORE, 0, 2), 3, 0, reporter) == [2, 0, 3]
    assert reporter.done == 6


def test_weights_are_one_over_the_root_of_the_share_and_one_in_the_mean() -> None:
    first, second, never = rare_weights([900, 100, 0])
    assert first / second == pytest.approx(((0.1 + SMALLEST_SHARE) / (0.9 + SMALLEST_SHARE)) ** 0.5)
    assert 0.9 * first + 0.1 * second == pytest.approx(1)
    assert never == 0


def test_the_rarest_class_does_not_outweigh_all_others() -> None:
    common, rare = rare_weights([10**9, 1])
    assert rare / common == pytest.approx(SMALLEST_SHARE**-0.5, rel=1e-3)


def test_without_a_pixel_there_is_no_weight() -> None:
    assert rare_weights([0, 0]) == (0.0, 0.0)


def test_classes_are_counted_once(recipe, tmp_path: Path) -> None:
    prepare_weights(recipe, tmp_path, Pixels(0, 1, 1), 0, Silent())
    prepare_weights(recipe, tmp_path, Pixels(2, 2, 2), 0, Silent())
    assert class_weights(recipe, tmp_path) == rare_weights([1, 2, 0])


def test_other_data_is_counted_anew(recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_weights(recipe, tmp_path, Pixels(0, 1, 1), 0, Silent())
    monkeypatch.setattr(StreetSource, "version", "other classes")
    prepare_weights(recipe, tmp_path, Pixels(1, 0, num_classes=2), 0, Silent())
    assert class_weights(recipe, tmp_path) == rare_weights([1, 1])


@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_counts_that_are_missing_or_broken_are_named(content: str | None, recipe, tmp_path: Path) -> None:
    if content is not None:
        counts_file(tmp_path).write_text(content)
    with pytest.raises(InputError, match=r"class_counts\.json: is missing or damaged; run the same command again"):
        class_weights(recipe, tmp_path)


def test_weights_that_are_given_need_no_counts(tmp_path: Path) -> None:
    recipe = small_segmentation(tmp_path, f"training.class_weights={[0.5] * 19}")
    prepare_weights(recipe, tmp_path, Pixels(0), 0, Silent())
    assert class_weights(recipe, tmp_path) == (0.5,) * 19
    assert not counts_file(tmp_path).exists()
