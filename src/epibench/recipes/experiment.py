"""The fields of every recipe: name, seed, methods with options, and sizes M."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from epibench.errors import InputError
from epibench.files import NAME
from epibench.imported import load_object
from epibench.methods import METHODS, MemberTable, Method
from epibench.methods.batch_ensemble import BatchEnsemble
from epibench.methods.cyclical import Cyclical
from epibench.methods.ensemble import Ensemble
from epibench.methods.laplace import Laplace
from epibench.methods.map import MAP, MaximumLikelihood
from epibench.methods.mc_dropout import MCDropout
from epibench.methods.pruned import Pruned
from epibench.methods.sghmc import SGHMC
from epibench.methods.sgld import SGLD
from epibench.methods.shared_trunk import SharedTrunk
from epibench.methods.snapshot import Snapshot
from epibench.methods.swag import SWA, SWAG, MultiSWAG
from epibench.methods.tta import TTA
from epibench.plans import Plan
from epibench.recipes.settings import describe
from epibench.training.rules import Pace


class Options(BaseModel):
    """Frozen options that refuse unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Variant(Options):
    """A method under another name with changed options, for comparisons in one run.

    Args:
        method: Name of a method, or `package.module:name`.
        options: Changed options of the method.
        network: Changed options of the recipe's network, on images.
    """

    method: str
    label: str | None = None
    options: dict[str, Any] = {}
    network: dict[str, Any] = {}

    @model_validator(mode="after")
    def _known(self) -> Variant:
        method_class(self.method)
        return self


def method_class(name: str) -> type[Method]:
    """Return the method of a name, or the class of `package.module:name`."""
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        known = ", ".join(METHODS)
        raise ValueError(f"method '{name}' is unknown; there are {known}, and your own as package.module:name")
    method = load_object(name, "a method")
    if not isinstance(method, type) or not issubclass(method, Method):
        raise ValueError(f"method '{name}' is no method: it must be a class that derives from epibench.methods.Method")
    for needed in ("name", "label"):
        if not isinstance(getattr(method, needed, None), str):
            raise ValueError(f"method '{name}' has no {needed}: give its class a text `{needed}`")
    return method


def check_method(name: str, method: Method) -> None:
    """Raise an error if a user's method breaks the contract."""
    keep, key = method.keep, f"variants.{name}.method: {type(method).__name__}"
    first = 1 if method.source is None else 0
    if not keep or list(keep) != sorted(set(keep)) or keep[0] < first or keep[-1] > method.num_epochs:
        raise ValueError(f"{key}.keep is {keep}; give epochs from {first} to {method.num_epochs}, ascending")
    if method.num_trained < 1:
        raise ValueError(f"{key}.num_trained is {method.num_trained}; at least one network must be trained")
    table = method.members(range(method.num_trained))
    if not isinstance(table, MemberTable) or table.plan not in get_args(Plan):
        raise ValueError(f"{key}.members gives no MemberTable with a plan of {', '.join(get_args(Plan))}")
    if any(each.snapshot not in range(len(keep)) or each.network >= method.num_trained for each in table.members):
        raise ValueError(f"{key}.members: networks and snapshots are counted from 0, up to num_trained and len(keep)")
    if not isinstance(method.schedule(1, max(1, method.num_epochs)), Pace):
        raise ValueError(f"{key}.schedule: give a function of (step, number of steps) that returns a Pace")
    shares = type(method).shared_stages is not Method.shared_stages
    if (method.dropout > 0) + bool(method.member_views) + shares > 1:
        raise ValueError(
            f"{key}: members are passes with dropout, have views, or share stages; give it one of the three"
        )
    if method.member_views and any(each.number >= len(method.member_views) for each in table.members):
        raise ValueError(f"{key}.member_views: there are {len(method.member_views)}; give each number of a member one")
    apart = table.group if table.plan in ("prefix", "spread") else None
    most = len(table.members) if apart is None else min(Counter(apart).values(), default=0)
    if method.largest_draw > most:
        raise ValueError(f"{key}.largest_draw is {method.largest_draw}, but only {most} members can be drawn together")


class Recipe(Options):
    """The fields of recipes of all problems.

    Args:
        members: Sizes M of draws.
        draws: Largest number of draws of each size.
    """

    on_images: ClassVar[bool] = False

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
    snapshot: Snapshot = Snapshot()
    swa: SWA = SWA()
    swag: SWAG = SWAG()
    multi_swag: MultiSWAG = MultiSWAG()
    pruned: Pruned = Pruned()
    shared_trunk: SharedTrunk = SharedTrunk()
    batch_ensemble: BatchEnsemble = BatchEnsemble()
    tta: TTA = TTA()
    laplace: Laplace = Laplace()
    variants: dict[str, Variant] = {}

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        """`package.module:name` among the methods stands for a variant of that name without options."""
        methods = values.get("methods") if isinstance(values, dict) else None
        if not isinstance(methods, list | tuple) or not all(isinstance(each, str) for each in methods):
            return values
        own = {each.rpartition(":")[2]: {"method": each} for each in methods if ":" in each}
        given = values.get("variants") or {}
        if not own or not isinstance(given, dict):
            return values
        return {**values, "methods": [each.rpartition(":")[2] for each in methods], "variants": {**own, **given}}

    @model_validator(mode="after")
    def _possible(self, info: ValidationInfo) -> Recipe:
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
            if name in self.variants and self.variants[name].method not in METHODS:
                check_method(name, method)
            self.check_source(name)
        self.check_members("members" in (info.context or ()))
        return self

    def check_members(self, given: bool) -> None:
        """Raise an error for sizes M that methods cannot draw.

        That is: for a method that cannot draw any M, and for a given M that no method can draw.

        Args:
            given: Whether the user has set the sizes. A method leaves out larger sizes of the recipe.
        """
        methods = {name: self.method(name) for name in self.methods}
        largest = {
            name: method.largest_draw
            for name, method in methods.items()
            if not method.single and (method.only_images is None or self.on_images)
        }
        for name in largest:
            if not methods[name].draw_sizes(self.members):
                raise ValueError(self.too_large(min(self.members), name))
        name = max(largest, key=largest.__getitem__, default="")
        if given and largest and max(self.members) > largest[name]:
            raise ValueError(self.too_large(max(self.members), name))

    def too_large(self, size: int, name: str) -> str:
        """Return the message for an M that a method cannot draw, with the setting of its limit."""
        method = self.method(name)
        more = f", or raise {self.setting(name, method.pool_option)}" if method.pool_option else ""
        limit = f"a draw of {name} has at most {method.largest_draw} members"
        return f"members: M = {size} is impossible: {limit}. Fix: give smaller M{more}."

    def left_out(self, name: str) -> list[str]:
        """Return a note on the sizes M that are too large for a method, if any."""
        method = self.method(name)
        sizes = [str(size) for size in self.members if size > method.largest_draw]
        if method.single or not sizes:
            return []
        option = f" ({self.setting(name, method.pool_option)})" if method.pool_option else ""
        return [f"M = {', '.join(sizes)} left out: a draw has at most {method.largest_draw} members{option}."]

    def changed(self, options: Mapping[str, Mapping[str, Any]], **values: Any) -> Self:
        """Return the recipe with other values and other options of its parts, without validation."""
        parts = {name: getattr(self, name).model_copy(update=dict(change)) for name, change in options.items()}
        return self.model_copy(update={**values, **parts})

    def method(self, name: str) -> Method:
        """Return the method or variant of a name, with its options."""
        if name not in self.variants:
            method: Method = getattr(self, name)
            return method
        variant = self.variants[name]
        base = getattr(self, variant.method).model_dump() if variant.method in METHODS else {}
        given = {**base, **variant.options}
        try:
            return method_class(variant.method).model_validate(given)
        except ValidationError as error:
            raise ValueError(f"variants.{name}.options.{describe(error, given)}") from None
        except TypeError as error:  # an abstract class
            raise ValueError(f"variants.{name}.method: {error}") from None

    def sources(self, name: str) -> list[str]:
        """Return the source of a method, the source of that source, and so on."""
        found = list[str]()
        while (source := self.method(name).source) is not None:
            if source not in METHODS and source not in self.variants:
                known = ", ".join((*METHODS, *self.variants))
                raise ValueError(f"{self.setting(name, 'of')}: '{source}' is unknown; there are {known}")
            if source in found:
                raise ValueError(
                    f"{self.setting(name, 'of')}: networks cannot start from themselves; name another method"
                )
            found.append(source)
            name = source
        return found

    def check_source(self, name: str) -> None:
        """Raise an error if a method's source cannot provide its networks."""
        wanted = self.method(name).num_trained
        for source in self.sources(name):
            if (number := self.method(source).num_trained) < wanted:
                raise ValueError(
                    f"{self.setting(name, 'of')}: {name} starts from {wanted} networks of {source}, which has "
                    f"{number}; give it more, or {name} fewer"
                )
            if type(self.method(source)).build is not Method.build:
                raise ValueError(
                    f"{self.setting(name, 'of')}: networks of {source} are trained in a form of their own, from which "
                    f"no others can start; take another method"
                )
            if self.method(source).fits:
                raise ValueError(
                    f"{self.setting(name, 'of')}: members of {source} are made of its networks after training, and are "
                    f"not what others would start from; take another method"
                )

    def training_settings(self, name: str) -> dict[str, Any]:
        """Return the settings that decide a method's trained networks, by their keys."""
        methods = (name, *self.sources(name))
        return {"seed": self.seed, **{each: self.method(each).training_options for each in methods}}

    def training_steps(self, name: str) -> int:
        """Return the epochs of a method's training up to its last kept weights, the steps of its progress."""
        return self.method(name).keep[-1]

    def setting(self, name: str, option: str) -> str:
        """Return the key of a method's option for --set."""
        if name not in self.variants:
            return f"{name}.{option}"
        variant = self.variants[name]
        ours = variant.method in METHODS and option not in variant.options
        return f"{variant.method}.{option}" if ours else f"variants.{name}.options.{option}"

    def said_of(self, name: str, error: InputError) -> str:
        """Return the text of an error about a method.

        If the text begins with an option, its full key replaces it. Otherwise the method's name is put before it.
        """
        text = str(error)
        option, colon, rest = text.partition(": ")
        if colon and option in type(self.method(name)).model_fields:
            return f"{self.setting(name, option)}: {rest}"
        return text if text.startswith(name) else f"{name}: {text}"

    def label(self, name: str) -> str:
        """Return the name of a method on pages."""
        if name not in self.variants:
            return METHODS[name].label
        variant = self.variants[name]
        return variant.label or method_class(variant.method).label


AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


def fixed_start(base: AnyRecipe, **values: Any) -> AnyRecipe:
    """Return a recipe that compares ensembling with ensembles from one initialisation."""
    fixed = Variant(method="ensemble", label="Ensembling, one start", options={"same_start": True})
    return base.changed(
        {"ensemble": {"num_sets": {}}},
        name=f"{base.name}-fixed",
        about="Ensembling from different initial weights, and from the same ones: does it need different starts?",
        methods=("ensemble", "ensemble_fixed"),
        variants={"ensemble_fixed": fixed},
        **values,
    )
