"""Further domains of a run, as `val=camvid:DIR,split=val`."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import Any

from epibench.arguments import unfit
from epibench.data.named import parse_domains
from epibench.errors import ArgumentError
from epibench.recipes.dense import DenseRecipe
from epibench.recipes.experiment import Recipe
from epibench.recipes.settings import apply_settings


def with_domains(recipe: Recipe, data: Any) -> Recipe:
    """The recipe with further domains; a name that it has must be of the same data."""
    texts = [f"{name}={text}" for name, text in data.items()] if isinstance(data, Mapping) else data
    if not all(isinstance(each, str) for each in texts):
        raise unfit("data", data, "texts, e.g. ['val=camvid:DIR']: a run is evaluated on data sets that have names")
    if not texts:
        return recipe
    if not isinstance(recipe, DenseRecipe):
        raise ArgumentError(f"data {texts[0]}: a run of {recipe.problem} has no images to evaluate on; leave it out")
    for domain in parse_domains(texts):
        if domain.role is not None:
            raise ArgumentError(
                f"data {domain.name}: where a run was trained decides what is in-domain; leave role out, or name where "
                f"images come from (distribution=WORD of folder and own)"
            )
        # A folder that is not below the run's data is one of the folder in which the call is made.
        source, top = dict(domain.source), recipe.data.root
        here = Path(str(source.get("root", "."))).expanduser()
        if top is not None and "root" in source and not (Path(top).expanduser() / here).exists() and here.exists():
            source["root"] = str(here.resolve())
        found = apply_settings(recipe, [f"data.domains.{domain.name}={dumps(source)}"])
        before = recipe.data.domains.get(domain.name)
        if before is not None and before != found.data.domains[domain.name]:
            raise ArgumentError(
                f"data {domain.name}: the run has another domain of that name ({before.label}); give another name"
            )
        recipe = found
    return recipe
