"""What every recipe has: a name, a seed, methods with their options, and the sizes M that are drawn."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from epibench.methods import METHODS, Method
from epibench.methods.cyclical import Cyclical
from epibench.methods.ensemble import Ensemble
from epibench.methods.map import MAP
from epibench.methods.mc_dropout import MCDropout
from epibench.methods.ml import MaximumLikelihood
from epibench.methods.sghmc import SGHMC
from epibench.methods.sgld import SGLD
from epibench.recipes.settings import describe

QUICK = "-quick"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")  # names become files


class Options(BaseModel):
    """Frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Variant(Options):
    """A method under another name with some options changed, so that a run can compare them."""

    method: str
    label: str
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _known(self) -> Variant:
        if self.method not in METHODS:
            raise ValueError(f"method '{self.method}' is unknown; there are {', '.join(METHODS)}")
        return self


class Recipe(Options):
    """What recipes of all problems fix.

    members: the sizes M; draws: at most so many draws of each.
    """

    name: str
    problem: str
    about: str = ""
    minutes: float | None = Field(None, ge=0, allow_inf_nan=False)  # about, on `machine`
    machine: str = "two cores"
    seed: int = Field(0, ge=0)
    methods: tuple[str, ...]
    members: tuple[int, ...]
    draws: int = Field(16, ge=1)
    map: MAP = MAP()
    ml: MaximumLikelihood = MaximumLikelihood()
    ensemble: Ensemble = Ensemble()
    mc_dropout: MCDropout = MCDropout()
    sgld: SGLD = SGLD()
    sghmc: SGHMC = SGHMC()
    cyclical: Cyclical = Cyclical()
    variants: dict[str, Variant] = {}

    @model_validator(mode="after")
    def _possible(self) -> Recipe:
        """Refuse what cannot be done before hours are spent on it."""
        if not self.methods:
            raise ValueError("methods: give at least one method")
        if not self.members or min(self.members) < 1:
            raise ValueError("members: give at least one M, each at least 1")
        for name in (*self.variants, self.name):
            if not NAME.fullmatch(name) or name in METHODS:
                raise ValueError(
                    f"'{name}' cannot be a name here: give letters, digits, '-' and '_', and no method's name"
                )
        if len(set(self.methods)) < len(self.methods):
            raise ValueError("methods: each may be given once; two settings of one method are variants")
        for name in self.variants:
            self.method(name)
        for name in self.methods:
            if name not in METHODS and name not in self.variants:
                known = ", ".join((*METHODS, *self.variants))
                raise ValueError(f"methods: '{name}' is unknown; there are {known}")
            method = self.method(name)
            if not method.single and max(self.members) > method.largest_draw:
                raise ValueError(
                    f"members: M = {max(self.members)} is impossible, the pool of {name} has {method.largest_draw} "
                    f"members to draw from"
                )
        return self

    def method(self, name: str) -> Method:
        """The method of that name with its options, or the variant."""
        if name not in self.variants:
            method: Method = getattr(self, name)
            return method
        variant = self.variants[name]
        base: Method = getattr(self, variant.method)
        try:
            return type(base).model_validate({**base.model_dump(), **variant.options})
        except ValidationError as error:
            raise ValueError(f"variants.{name}.options.{describe(error)}") from None

    def setting(self, name: str, option: str) -> str:
        """The key of a method's option, as --set takes it."""
        if name not in self.variants:
            return f"{name}.{option}"
        variant = self.variants[name]
        return f"variants.{name}.options.{option}" if option in variant.options else f"{variant.method}.{option}"

    def label(self, name: str) -> str:
        """What to call a method on a page."""
        return self.variants[name].label if name in self.variants else METHODS[name].label
