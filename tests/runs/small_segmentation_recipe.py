"""A recipe of segmentation that runs in a few seconds: tiny street scenes, tiny networks, few steps."""

from pathlib import Path

from small_dense_recipe import small_data

from epibench.methods.ensemble import Ensemble
from epibench.methods.mc_dropout import MCDropout
from epibench.recipes import apply_settings
from epibench.recipes.dense import DenseRecipe, EvaluationOptions, SegmentationNetwork, TrainingOptions


def small_segmentation(cache: Path, *settings: str) -> DenseRecipe:
    """Three networks of an ensemble and two of MC-dropout on clean and wild scenes; cache: where scenes are kept."""
    optimised = {"num_epochs": 2, "batch_size": 2, "learning_rate": 1e-3}
    recipe = DenseRecipe(
        name="small-segmentation",
        problem="segmentation",
        methods=("ensemble", "mc_dropout"),
        members=(1, 2),
        draws=3,
        network=SegmentationNetwork(depth=18, width=8, head_width=8, rates=(1, 2), stem="single"),
        training=TrainingOptions(epoch_steps=3, crop=(16, 32)),
        data=small_data(cache),
        evaluation=EvaluationOptions(batch_size=2, pictures=1),
        ensemble=Ensemble(num_members=3, sets="random", **optimised),
        mc_dropout=MCDropout(num_networks=2, num_passes=2, rate=0.5, **optimised),
    )
    return apply_settings(recipe, settings)
