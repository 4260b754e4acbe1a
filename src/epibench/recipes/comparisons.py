"""Recipes that compare all methods with ensembling: same networks, same training, known cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from epibench.recipes.dense import DenseRecipe
from epibench.recipes.experiment import Variant
from epibench.recipes.images import (
    ENCODER,
    EXACT,
    clean_to_wild,
    compared,
    folder_segmentation,
    street_depth,
    street_depth_large,
    street_segmentation,
)
from epibench.recipes.images import street_segmentation_large as segmentation_large
from epibench.recipes.toy import ToyRecipe

ON_POINTS = (
    *("ensemble", "mc_dropout", "sghmc", "map", "snapshot", "swa", "swag", "multi_swag", "laplace"),
    *("shared_trunk", "pruned"),
)
TIMES = 4  # factor of length or size of a single larger training
SHARES = (0, 30, 50, 70, 90)  # percent of pruned channels; narrow layers keep a minimum
SCALED = ("identity", "flip", "scale 0.75", "flip scale 1.25")
SMALL: dict[str, Any] = {  # for two cores and twenty minutes
    "num_members": 6,
    "num_networks": 2,
    "num_costly": 1,
    "num_passes": 4,
    "rate": 0.2,
    "multiple": 1,
}
ONE_PICTURE = {"evaluation": {"pictures": 1}}  # of each domain, because there are many methods
METHODS_OF_THE_FIELD = (
    *("ensemble", "mc_dropout", "map_long", "map_wide", "ensemble_narrow", "snapshot", "snapshot_long", "swa", "swag"),
    *("multi_swag", "laplace", "shared_trunk", "trunk_frozen", *(f"pruned_{share}" for share in SHARES), "sparse_90"),
    *("batch_ensemble", "tta"),
)


def comparison_options(
    trained: Mapping[str, Any],
    wide: Mapping[str, Any],
    narrow: Mapping[str, Any] | None,
    multiple: int = 8,
    num_costly: int | None = None,
    **numbers: Any,
) -> dict[str, Any]:
    """Return all methods with the options of `compared`, and variants of them.

    Args:
        trained: Options of training.
        wide: Options of a network that costs about `TIMES` as much as the recipe's.
        narrow: Options of a network that costs about 1/`TIMES` as much; None without one.
        multiple: Channels that remain after pruning are a multiple of it.
        num_costly: Number of networks with `TIMES` as much training; None: as many as of other methods.
        numbers: Numbers of networks, members and passes for `compared`.
    """
    longer = {"num_epochs": TIMES * trained["num_epochs"]}
    costly = num_costly or numbers["num_networks"]
    few = {"num_restarts": costly}
    variants = {
        "map_long": Variant(method="map", label=f"{TIMES} × as long, one network", options={**few, **longer}),
        "map_wide": Variant(method="map", label=f"{TIMES} × as large, one network", options=few, network=dict(wide)),
        "snapshot_long": Variant(
            method="snapshot",
            label=f"{TIMES} × as long, snapshots",
            options={"num_networks": costly, **longer},
        ),
        "trunk_frozen": Variant(method="shared_trunk", label="Frozen trunk", options={"frozen": True}),
        "sparse_90": Variant(
            method="pruned", label="90 % of weights 0", options={"share": 0.9, "structure": "weights"}
        ),
    }
    for share in SHARES:
        label = f"Pruned by up to {share} %" if share else "Pruned by 0 %"
        variants[f"pruned_{share}"] = Variant(
            method="pruned", label=label, options={"share": share / 100, "multiple": multiple}
        )
    if narrow is not None:
        label = f"1/{TIMES} as large, ensemble"
        variants["ensemble_narrow"] = Variant(method="ensemble", label=label, network=dict(narrow))
    methods = tuple(name for name in METHODS_OF_THE_FIELD if name != "ensemble_narrow" or narrow is not None)
    return {**compared(trained, **numbers), "methods": methods, "variants": variants}


def street_depth_methods() -> DenseRecipe:
    """Depth from clean to wild on two cores, with every method."""
    trained = {"num_epochs": 8, "batch_size": 4, "learning_rate": 4e-3}
    # The recipe's networks have the smallest possible width: there is no cheaper variant.
    options = comparison_options(trained, {"width": 16}, None, **SMALL, shared=ENCODER)
    data = clean_to_wild(256, 16, (128, 256), without=EXACT)
    return named(street_depth(), "Depth completion", 15).changed(
        {"training": {"epoch_steps": 25}, **ONE_PICTURE}, **{**options, "members": (1, 2, 4), "data": data}
    )


def street_segmentation_methods() -> DenseRecipe:
    """Segmentation from clean to wild on two cores, with every method."""
    trained = {"num_epochs": 8, "batch_size": 4, "learning_rate": 1e-2}
    narrow, wide = ({"width": width, "head_width": 2 * width} for width in (8, 32))
    options = comparison_options(trained, wide, narrow, **SMALL)
    options["tta"] = options["tta"].model_copy(update={"views": SCALED})
    return named(street_segmentation(), "Segmentation", 15).changed(
        {"training": {"epoch_steps": 50}, **ONE_PICTURE}, **{**options, "members": (1, 2, 4)}
    )


def street_depth_methods_large() -> DenseRecipe:
    """Depth from clean to wild on a GPU, with larger networks and every method."""
    trained = {"num_epochs": 20, "batch_size": 16, "learning_rate": 2e-3}
    numbers: dict[str, Any] = {"num_members": 20, "num_networks": 4, "num_passes": 16, "rate": 0.2, "shared": ENCODER}
    options = comparison_options(trained, {"width": 32}, {"width": 8}, **numbers)
    return named(street_depth_large(), "Depth completion").changed(ONE_PICTURE, **options)


def street_segmentation_methods_large() -> DenseRecipe:
    """Segmentation from clean to wild on a GPU, with larger networks and every method."""
    trained = {"num_epochs": 20, "batch_size": 16, "learning_rate": 2e-3}
    numbers: dict[str, Any] = {"num_members": 20, "num_networks": 4, "num_passes": 16, "rate": 0.5}
    narrow, wide = ({"width": width, "head_width": 2 * width} for width in (32, 128))
    options = comparison_options(trained, wide, narrow, **numbers)
    options["tta"] = options["tta"].model_copy(update={"views": SCALED})
    return named(segmentation_large(), "Segmentation").changed(ONE_PICTURE, **options)


def folder_segmentation_methods() -> DenseRecipe:
    """Your own folders, with every method."""
    base = folder_segmentation()
    trained = {"num_epochs": 15, "batch_size": 16, "optimiser": "adamw", "learning_rate": 1e-3}
    numbers: dict[str, Any] = {"num_members": 8, "num_networks": 2, "num_passes": 4, "rate": 0.2}
    narrow, wide = ({"width": width, "head_width": 4 * width} for width in (32, 128))
    options = comparison_options(trained, wide, narrow, **numbers)
    options["tta"] = options["tta"].model_copy(update={"views": SCALED})
    about = "Segmentation on folders of your own: the methods of the field against ensembling, at what each costs"
    return base.changed(
        ONE_PICTURE, **options, name=f"{base.name}-methods", about=about, minutes=None, members=(1, 2, 4)
    )


def folder_segmentation_methods_small() -> DenseRecipe:
    """Your own folders on two cores: narrow networks, for images of about 160×120 pixels."""
    base = folder_segmentation_methods()
    trained = {"num_epochs": 15, "batch_size": 8, "optimiser": "adamw", "learning_rate": 1e-3}
    narrow, wide = ({"width": width, "head_width": 4 * width} for width in (8, 32))
    options = comparison_options(trained, wide, narrow, **SMALL)
    options["tta"] = options["tta"].model_copy(update={"views": SCALED})
    network = {"depth": 18, "width": 16, "head_width": 64, "rates": (1, 2, 4), "stem": "single"}
    return base.changed(
        {"network": network, "training": {"crop": (96, 128), "epoch_steps": 25}, **ONE_PICTURE},
        **options,
        name=f"{base.name}-small",
        about=f"{base.about}; small",
        minutes=30,
        machine="two cores",
    )


def toy_methods(base: ToyRecipe) -> ToyRecipe:
    """KL to the reference for every method that supports points."""
    return base.changed(
        {
            "ensemble": {"num_sets": {}},
            "mc_dropout": {"num_passes": 256},
            "snapshot": {"num_cycles": 16, "num_epochs": 600},
            "pruned": {"num_epochs": 30},
        },
        name=f"{base.name}-methods",
        about="KL to NUTS over M: the methods of the field beside ensembling, MC-dropout and SGHMC",
        methods=ON_POINTS,
        members=(1, 2, 4, *base.members),
        minutes=None,
    )


def named(base: DenseRecipe, problem: str, minutes: float | None = None) -> DenseRecipe:
    """Return a recipe under the name of the comparison."""
    name, large = base.name.removesuffix("-large"), "-large" if base.name.endswith("-large") else ""
    about = f"{problem}, clean to wild: the methods of the field against ensembling, at what each costs"
    return base.changed({}, name=f"{name}-methods{large}", about=about, minutes=minutes)
