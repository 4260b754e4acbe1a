"""A dense recipe that runs in a few seconds: tiny street scenes, tiny networks, few steps."""

from pathlib import Path

from epibench.data.sets.street import StreetSource
from epibench.methods.cyclical import Cyclical
from epibench.methods.ensemble import Ensemble
from epibench.methods.laplace import Laplace
from epibench.methods.map import MAP
from epibench.methods.mc_dropout import MCDropout
from epibench.methods.pruned import Pruned
from epibench.methods.sghmc import SGHMC
from epibench.methods.sgld import SGLD
from epibench.methods.shared_trunk import SharedTrunk
from epibench.methods.snapshot import Snapshot
from epibench.methods.swag import SWA, SWAG, MultiSWAG
from epibench.recipes import apply_settings
from epibench.recipes.dense import DataOptions, DenseRecipe, DepthNetwork, EvaluationOptions, TrainingOptions

SIZE = (32, 64)


def small_data(cache: Path) -> DataOptions:
    """Return clean scenes to train on, clean and wild scenes to evaluate on; `cache` keeps them."""
    return DataOptions(
        cache=str(cache),
        train=StreetSource(num_images=5, size=SIZE),
        domains={
            "clean": StreetSource(num_images=5, seed=1, size=SIZE),
            "wild": StreetSource(domain="wild", num_images=4, seed=1, size=SIZE),
        },
    )


def small_dense(cache: Path, *settings: str) -> DenseRecipe:
    """Return three networks of an ensemble and two of MC-dropout on clean and wild scenes; `cache` keeps scenes."""
    optimised = {"num_epochs": 2, "batch_size": 2, "learning_rate": 1e-3}
    sampled = {"num_chains": 2, "num_epochs": 4, "batch_size": 2, "num_snapshots": 2, "learning_rate": 1e-5}
    fitted = {**optimised, "num_networks": 2, "num_epochs": 3, "refresh_batches": 2}
    recipe = DenseRecipe(
        name="small-dense",
        problem="depth-completion",
        methods=("ensemble", "mc_dropout"),
        members=(1, 2),
        draws=3,
        network=DepthNetwork(width=8, blocks=(1, 1, 1, 1), init_std=None),
        training=TrainingOptions(epoch_steps=3, crop=(16, 32), weight_decay=1e-4),
        data=small_data(cache),
        evaluation=EvaluationOptions(batch_size=2, pictures=1),
        map=MAP(num_restarts=2, **optimised),
        ensemble=Ensemble(num_members=3, sets="random", **optimised),
        mc_dropout=MCDropout(num_networks=2, num_passes=2, rate=0.2, **optimised),
        shared_trunk=SharedTrunk(num_trunks=2, num_heads=3, shared="encoder.4", **optimised),
        sgld=SGLD(**sampled),
        sghmc=SGHMC(**sampled),
        cyclical=Cyclical(num_cycles=2, **sampled),
        snapshot=Snapshot(num_networks=2, num_cycles=2, **optimised),
        swa=SWA(**fitted),
        swag=SWAG(num_samples=2, **fitted),
        multi_swag=MultiSWAG(num_samples=2, **fitted),
        pruned=Pruned(num_members=3, sets="random", **optimised),
        laplace=Laplace(num_networks=2, num_samples=2, batch_size=2),
    )
    return apply_settings(recipe, settings)
