"""Recipes: frozen, typed objects that fix everything of an experiment."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

from epibench.errors import InputError
from epibench.files import DamagedError, read_verified
from epibench.recipes import comparisons, images, toy
from epibench.recipes.dense import DenseRecipe
from epibench.recipes.experiment import Recipe, fixed_start
from epibench.recipes.settings import apply_settings, differences, fixed, validated
from epibench.recipes.toy import ToyRecipe

RECIPE_NAME = "recipe.json"  # in the folder of a run
RUNS = Path("runs")
DEPTH = (
    *(images.street_depth(), images.street_depth_large(), images.street_to_kitti()),
    *(images.kitti_depth(), images.kitti_in_domain()),
)
SEGMENTATION = (
    *(images.street_segmentation(), images.street_segmentation_large()),
    *(images.cityscapes_segmentation(), images.cityscapes_in_domain(), images.folder_segmentation()),
)
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        *(each for full in toy.all_recipes() for each in (full, toy.quick(full))),
        *(*DEPTH, *SEGMENTATION, images.quick(DEPTH[0]), images.quick(SEGMENTATION[0])),
        *(fixed_start(street, minutes=8) for street in (DEPTH[0], SEGMENTATION[0])),
        *(each for full in map(comparisons.toy_methods, toy.published()) for each in (full, toy.quick(full))),
        *(comparisons.street_depth_methods(), comparisons.street_depth_methods_large()),
        *(comparisons.street_segmentation_methods(), comparisons.street_segmentation_methods_large()),
        *(comparisons.folder_segmentation_methods(), comparisons.folder_segmentation_methods_small()),
    )
}


def find_recipe(name: str) -> Recipe:
    """Return the recipe of a name, of a .json file, or of a run's folder."""
    if name in RECIPES:
        return RECIPES[name]
    if name.endswith(".json") or Path(name).exists():
        return read_recipe(Path(name))
    nearest = difflib.get_close_matches(name, RECIPES, 1, 0.0)[0]
    raise InputError(f"recipe '{name}' is unknown; the nearest is {nearest} (see epibench recipes)")


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a file, or from the folder of a run, whose checksum must fit.

    A file may be an edited copy of `recipe.json`: its checksum is ignored.
    """
    run = path if path.is_dir() else None
    if run is not None:
        path = path / RECIPE_NAME
        if not path.exists():
            raise InputError(f"{run}: holds no run, as there is no {RECIPE_NAME} in it")
    try:
        content = json.loads(path.read_text(encoding="utf-8") if run is None else read_verified(path))
    except DamagedError as error:
        remedy = f"Fix: give the recipe again (epibench run RECIPE --out {run}); what is trained is kept."
        raise DamagedError(f"{error}. {remedy}") from None
    except FileNotFoundError:
        what = "recipe file" if path.suffix == ".json" else "folder of a run, and no such recipe file"
        raise InputError(f"{path}: there is no such {what}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a readable recipe ({error})") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: a recipe is a JSON object, as the recipe.json of a run")
    if {"recipe", "scores"} <= content.keys():
        raise InputError(
            f"{path}: is a file of results, not a recipe; give the folder of the run, or its {RECIPE_NAME}"
        )
    content.pop("checksum", None)
    try:
        return validated(DenseRecipe if "network" in content else ToyRecipe, content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def default_folder(given: str | Recipe, recipe: Recipe) -> Path:
    """Return the default folder of a run: the given run folder, or one named after the recipe."""
    is_run = isinstance(given, str) and given not in RECIPES and Path(given).is_dir()
    return Path(str(given)) if is_run else RUNS / recipe.name


def changes(recipe: Recipe) -> list[str]:
    """Return the settings that differ from the shipped recipe of this name, e.g. `sgld.num_chains=24`."""
    if recipe.name not in RECIPES:
        return []
    named, given = (fixed(each.model_dump(mode="json")) for each in (RECIPES[recipe.name], recipe))
    return [f"{key}={json.dumps(now)}" for key, _, now in differences(named, given)]


__all__ = [
    "RECIPES",
    "DenseRecipe",
    "Recipe",
    "ToyRecipe",
    "apply_settings",
    "changes",
    "default_folder",
    "find_recipe",
    "read_recipe",
]
