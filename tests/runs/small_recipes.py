"""Recipes that run in a second: few networks, few epochs, every method."""

from epibench.recipes import RECIPES, apply_settings
from epibench.recipes.toy import ToyRecipe

SETTINGS = [
    "members=[1,2,4]",
    "draws=3",
    "test_points=20",
    "pictures.members=[2,4]",
    "map.num_restarts=2",
    "map.num_epochs=2",
    "ml.num_restarts=2",
    "ml.num_epochs=2",
    "ensemble.num_members=8",
    "ensemble.num_epochs=2",
    "pruned.num_members=8",
    "pruned.num_epochs=2",
    "mc_dropout.num_networks=2",
    "mc_dropout.num_passes=4",
    "mc_dropout.num_epochs=2",
    "mc_dropout.repeats=1",
    "shared_trunk.num_trunks=2",
    "shared_trunk.num_heads=4",
    "shared_trunk.num_epochs=2",
    "sgld.num_chains=2",
    "sgld.num_epochs=24",
    "sgld.num_snapshots=4",
    "sghmc.num_chains=2",
    "sghmc.num_epochs=24",
    "sghmc.num_snapshots=4",
    "cyclical.num_chains=2",
    "cyclical.num_epochs=24",
    "cyclical.num_snapshots=4",
    "cyclical.num_cycles=2",
    "snapshot.num_networks=2",
    "snapshot.num_cycles=4",
    "snapshot.num_epochs=4",
    "swa.num_networks=2",
    "swa.num_epochs=4",
    "swag.num_networks=2",
    "swag.num_samples=4",
    "swag.num_epochs=4",
    "multi_swag.num_networks=2",
    "multi_swag.num_samples=2",
    "multi_swag.num_epochs=4",
    "laplace.num_networks=2",
    "laplace.num_samples=4",
    "reference.path=null",
]


def toy_recipe(name: str, *settings: str) -> ToyRecipe:
    """Return a recipe of a toy problem with its own size."""
    return apply_settings(RECIPES[name], settings)


def small(problem: str = "toy-regression", *settings: str) -> ToyRecipe:
    """Return the recipe of a problem with few networks and epochs."""
    return toy_recipe(problem, *SETTINGS, *settings)
