"""Evaluate models that were trained elsewhere: check each on the first image, then every draw on every domain."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from epibench.conventions import check_uncertainty
from epibench.data.batch import Samples, stack
from epibench.data.classes import ClassTable, Pairs
from epibench.data.given import GivenSamples, fits_frame, numbered_classes
from epibench.data.named import Role, nearest
from epibench.devices import resolve_precision
from epibench.errors import ArgumentError, InputError
from epibench.files import NAME as NAME_PATTERN
from epibench.files import read_json, write_json
from epibench.members.draws import default_sizes, make_draws
from epibench.members.formats import GivenNetwork, ModelFormat, check_model
from epibench.members.given import GivenModel, GivenPool, check_dropout, given_members
from epibench.progress import Reporter
from epibench.recipes.dense import EvaluationOptions
from epibench.recipes.settings import validated
from epibench.results import Counted, MethodFacts, Results, Score
from epibench.runs.domains import DomainData, in_common
from epibench.runs.evaluations import keep_results
from epibench.runs.folder import RunFolder
from epibench.runs.image_evaluation import (
    DrawnMethod,
    EvaluationDomain,
    ImageEvaluation,
    dtype_of,
)
from epibench.runs.machine import Machine
from epibench.runs.method_results import MethodResults, member_table
from epibench.runs.run import make_results
from epibench.standard_errors import points_backwards
from epibench.views import View, parse_views

NAME = "evaluate"
DEFAULT_NAME = "given"  # of models without a name
SETTINGS_NAME = "evaluation.json"
SMALL_INPUT, LARGE_BATCH = 4096, 256  # samples of at most SMALL_INPUT numbers have batches of LARGE_BATCH


@dataclass(frozen=True)
class GivenDomain:
    """Data to evaluate on.

    Args:
        samples: Samples of the domain.
        label: Name on pages.
        role: Role of the domain.
        identity: Everything that decides the samples; None if it is unknown.
        severity: Severity of the shift.
        mapping: Pairs of a class of the model and a class of the domain with another name.
    """

    samples: Samples
    label: str
    role: Role
    identity: Sequence[Any] | None = None
    severity: float | None = None
    mapping: Pairs | None = None


@dataclass(frozen=True)
class GivenSettings:
    """Settings of an evaluation of models.

    Args:
        members: Sizes M of draws; by default powers of two and the size of the pool.
        draws: Largest number of draws for each M.
        seed: Seed of draws and dropout masks.
        mc_dropout: Passes of each model with its own dropout.
        rate: Dropout rate of these passes; None: the model's own rate.
        views: Views of every image (`flip`, `scale 0.75` …).
        unit: Unit of numeric targets.
        depth: Whether numeric targets are metres of depth.
        name: Title of the page.
        evaluation: Options of the evaluation.
    """

    members: tuple[int, ...] | None = None
    draws: int = 16
    seed: int = 0
    mc_dropout: int = 0
    rate: float | None = None
    views: tuple[str, ...] = ()
    unit: str | None = None
    depth: bool = False
    name: str | None = None
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)


@dataclass(frozen=True)
class GivenEvaluation:
    """An evaluation of given models on domains. `models` holds the models of each method."""

    models: Mapping[str, Sequence[GivenModel]]
    domains: Mapping[str, GivenDomain]
    settings: GivenSettings
    folder: RunFolder
    machine: Machine
    reporter: Reporter

    def run(self) -> Results:
        """Evaluate all models on all domains, except finished evaluations in the folder."""
        begun, kind = time.perf_counter(), self.kind
        check_uncertainty(kind, self.settings.evaluation.uncertainty)
        if self.settings.evaluation.convention == "gustafsson2020" and not self.maps:
            raise InputError("convention gustafsson2020 is defined for images; take pooled")
        if self.settings.evaluation.compile or self.settings.evaluation.cuda_graphs:
            raise InputError(
                "compile and cuda_graphs are for networks that were trained here; give the model as torch.compile "
                "returns it, or leave them out"
            )
        self.check_names()
        pools = [pool for name, models in self.models.items() for pool in self.pools(name, models)]
        check_alike(pools)
        if self.settings.evaluation.convention != "pooled":
            self.reporter.say("metrics follow gustafsson2020, as published; convention=pooled gives both conventions")
        asked = self.as_plain_data()
        check_same(self.folder.path / SETTINGS_NAME, asked)
        write_json(self.folder.path / SETTINGS_NAME, asked)
        failed, evaluated, evaluations = dict[str, str](), dict[str, MethodResults](), dict[str, ImageEvaluation]()
        for drawn, evaluation in pools:
            try:
                evaluated[drawn.name] = evaluation.evaluate(drawn, failed)
                evaluations[drawn.name] = evaluation
            except InputError as error:
                failed[drawn.name] = str(error)
                self.reporter.say(f"{drawn.name} failed: {error}")
            finally:
                drawn.pool.forget()
        for name, each in evaluated.items():
            each.facts.notes.extend(backwards(each.scores))
            for note in each.facts.notes:
                self.reporter.say(f"{name}: {note}")
        if not evaluated:
            raise InputError("; ".join(failed.values()))
        first = next(iter(evaluations.values()))
        results = make_results(
            self.machine,
            evaluated,
            failed,
            begun,
            recipe=asked,
            problem=self.problem,
            convention=self.settings.evaluation.convention,
            domains=first.domain_facts(evaluated.values()),
        )
        return keep_results(self.folder.path, results)

    @cached_property
    def classes(self) -> bool:
        """Whether targets are classes, i.e. integers."""
        kinds = {name: domain.samples[0].target.is_floating_point() for name, domain in self.domains.items()}
        if len(set(kinds.values())) > 1:
            raise InputError(f"some domains have classes and others numbers as targets ({', '.join(kinds)})")
        if not self.maps and next(iter(kinds.values())):
            for name, domain in self.domains.items():
                if (number := domain.samples[0].target.numel()) > 1:
                    raise InputError(f"{name}: a target has {number} numbers. Fix: give one per sample, or a map.")
        return not next(iter(kinds.values()))

    @cached_property
    def kind(self) -> str:
        """The kind of the models' predictions: `gaussian`, `categorical` or `ranking`."""
        ranks = {model.read_as.spread for models in self.models.values() for model in models if model.read_as.ranks}
        distributions = any(not model.read_as.ranks for models in self.models.values() for model in models)
        if len(ranks) + distributions > 1:
            raise InputError("some models give a distribution, an uncertainty or a confidence, others another of these")
        if ranks and self.classes and ("scale" in self.settings.views or self.settings.evaluation.window):
            raise InputError("classes that are ranked alone cannot be interpolated: leave out scale and window")
        return "ranking" if ranks else "categorical" if self.classes else "gaussian"

    @cached_property
    def maps(self) -> bool:
        """Whether targets are maps of pixels."""
        return all(min(domain.samples[0].target.shape) > 1 for domain in self.domains.values())

    @property
    def counted(self) -> Counted:
        """The word for one number of a target: `samples` or `pixels`."""
        return "samples" if all(each.samples[0].target.numel() == 1 for each in self.domains.values()) else "pixels"

    @property
    def problem(self) -> str:
        """The name of the problem in results."""
        if self.classes:
            return "segmentation" if self.maps else "classification"
        return "depth-completion" if self.settings.depth else "regression"

    def check_names(self) -> None:
        """Check that names can be file names, and that there are at least 0 passes and 1 draw."""
        for name in (*self.models, *self.domains):
            if not NAME_PATTERN.fullmatch(name):
                raise InputError(f"'{name}' cannot be a name: give letters, digits, '-' and '_'")
        if self.settings.mc_dropout < 0 or self.settings.draws < 1:
            raise ArgumentError("mc_dropout and draws: give the number of passes, and at least one draw")

    def check_views(self, models: Sequence[GivenModel], views: Sequence[View]) -> None:
        """Raise an InputError unless inputs are images and predictions can be mapped back from each view."""
        for name, domain in self.domains.items():
            sample = domain.samples[0]
            shapes = {tuple(values.shape[-2:]) for values in sample.inputs.values() if values.dim() == 3}
            if len(shapes) != 1 or any(values.dim() != 3 for values in sample.inputs.values()):
                raise ArgumentError(
                    f"views: {name} has inputs that are no images and have no mirror image; leave views out"
                )
            if not self.maps and sample.target.numel() > 1:
                raise ArgumentError(f"views: {name} has several numbers of a sample, which have no mirror image")
        if all(view.scale == 1 for view in views):
            return
        if any(model.read_as.size is not None for model in models):
            raise ArgumentError("views: a model that is fed images of one size sees no other scale; leave out scale")
        if self.settings.depth:
            raise ArgumentError("views: a scene that is seen at another scale has other depths; leave out scale")

    def as_plain_data(self) -> dict[str, Any]:
        """Models, domains and settings as plain data."""
        settings = self.settings
        return {
            "name": settings.name or NAME,  # the title of the page: the user's folder, if any
            "seed": settings.seed,
            "members": None if settings.members is None else list(settings.members),
            "draws": settings.draws,
            "passes": settings.mc_dropout,
            "rate": settings.rate,
            "depth": settings.depth,
            "unit": settings.unit,
            "views": list(settings.views),
            "models": {name: [self.described(each) for each in models] for name, models in self.models.items()},
            "domains": {name: [domain.role, *(domain.identity or [])] for name, domain in self.domains.items()},
            "evaluation": settings.evaluation.model_dump(mode="json"),
        }

    def described(self, model: GivenModel) -> dict[str, Any]:
        """Facts on a model, and its format where it differs from the defaults."""
        read_as = model.read_as.model_dump(mode="json", exclude_defaults=True)
        return {"name": model.name, **(model.facts or {}), **read_as}

    def pools(self, name: str, models: Sequence[GivenModel]) -> list[tuple[DrawnMethod, ImageEvaluation]]:
        """Return a method of the models as they are, then one of dropout passes and one of views, if set."""
        classes = self.checked(self.make_pool(models))
        evaluation = ImageEvaluation(
            self.folder,
            self.machine,
            self.reporter,
            self.kind,
            "m" if self.settings.depth else self.settings.unit,
            self.options,
            {key: self.evaluation_domain(key, domain, classes) for key, domain in self.domains.items()},
            self.maps,
            self.counted,
        )
        views = parse_views(self.settings.views)
        if len(views) > 1:
            self.check_views(models, views)
        several, alone = len(models) > 1, len(self.models) == 1
        label = ("Ensembling" if several else "One model") if alone else name
        wanted: list[tuple[str, str, int, tuple[View, ...]]] = [(name, label, 0, ())]
        if self.settings.mc_dropout:
            wanted.append((_joined(name, "mc_dropout", alone), _label(label, "MC-dropout", alone), 1, ()))
        if len(views) > 1:
            wanted.append((_joined(name, "views", alone), _label(label, "Views of the image", alone), 0, views))
        return [
            (self.drawn(key, text, models, self.settings.mc_dropout * dropped, seen), evaluation)
            for key, text, dropped, seen in wanted
        ]

    @property
    def options(self) -> EvaluationOptions:
        """The options on this machine. Small samples have larger batches unless the user has set `batch_size`."""
        asked = self.settings.evaluation
        precision = resolve_precision(asked.precision, self.machine.device.type)
        options = asked.model_copy(update={"precision": precision})
        firsts = [domain.samples[0] for domain in self.domains.values()]
        small = all(sum(values.numel() for values in each.inputs.values()) <= SMALL_INPUT for each in firsts)
        chosen = "batch_size" in asked.model_fields_set or not small
        return options if chosen else options.model_copy(update={"batch_size": LARGE_BATCH})

    def make_pool(self, models: Sequence[GivenModel], passes: int = 0, views: tuple[View, ...] = ()) -> GivenPool:
        """Return the pool of these models."""
        settings, options = self.settings, self.options
        pool = GivenPool(
            self.kind,
            given_members(len(models), max(1, passes, len(views))),
            models,
            seed=settings.seed,
            device=self.machine.make_current(),
            precision=dtype_of(options),
            window=options.window,
            overlap=options.overlap,
            passes=passes,
            rate=settings.rate,
            classes=self.classes,
            views=views,
        )
        pool.keep_within(self.machine.memory_for_weights)
        return pool

    def checked(self, pool: GivenPool) -> ClassTable | None:
        """Let every model predict the first image, report the result, and return the predicted classes."""
        first = stack([next(iter(self.domains.values())).samples[0]]).to(self.machine.here)
        classes = self.named_classes(pool.models) if self.classes else None
        elsewhere = not fits_frame(first)  # targets have their own frame, e.g. a map seen from above
        for member, model in zip(pool.table.members, pool.models, strict=True):
            network = cast(GivenNetwork, pool.network(member))
            said, num_classes, grid = check_model(network, first, classes, self.settings.depth)
            self.reporter.say(f"{model.name}: {said}")
            elsewhere = elsewhere and grid == tuple(first.target.shape[-2:])
            if self.classes and classes is None:
                if not num_classes:
                    raise InputError(f"{model.name}: nobody knows its classes; give their names as classes=[…]")
                classes = numbered_classes(num_classes)
            if self.settings.mc_dropout:
                check_dropout(network, first.inputs, model.name, self.settings.rate)
        if not elsewhere:
            self.check_frames()
        return classes

    def check_frames(self) -> None:
        """From now on refuse targets with another frame than their images: predictions would be distorted."""
        for domain in self.domains.values():
            if isinstance(domain.samples, GivenSamples):
                domain.samples.framed = True
                domain.samples[0]

    def named_classes(self, models: Sequence[GivenModel]) -> ClassTable | None:
        """The classes of the models, or of the first domain; None without names."""
        said = {model.name: model.classes for model in models if model.classes is not None}
        if len({table.names for table in said.values()}) > 1:
            raise InputError(f"{', '.join(said)}: predict different classes; give them different names, as a=…, b=…")
        own = getattr(next(iter(self.domains.values())).samples, "classes", None)
        return next(iter(said.values()), own if isinstance(own, ClassTable) else None)

    def evaluation_domain(self, name: str, domain: GivenDomain, classes: ClassTable | None) -> EvaluationDomain:
        """Return a domain with the classes that it shares with the models' predictions."""
        identity = [uuid.uuid4().hex] if domain.identity is None else list(domain.identity)
        identity += [None if classes is None else list(classes.names), domain.mapping]
        about = (domain.label, domain.role, identity, domain.severity)
        own = getattr(domain.samples, "classes", None)
        if classes is None:
            return EvaluationDomain(DomainData(domain.samples), *about)
        if not isinstance(own, ClassTable):  # its targets are indices of the models' classes
            if isinstance(domain.samples, GivenSamples):
                domain.samples.num_classes = classes.num_classes
            return EvaluationDomain(DomainData(domain.samples, classes), *about)
        data = in_common(domain.samples, classes, domain.mapping, name)
        if data.class_groups is not None:
            if self.kind == "ranking":
                raise InputError(
                    f"{name}: has other classes than the models; those of a ranking cannot be put together"
                )
            self.reporter.say(f"{name}: {data.about}")
        return EvaluationDomain(data, *about)

    def drawn(
        self, name: str, label: str, models: Sequence[GivenModel], passes: int, views: tuple[View, ...]
    ) -> DrawnMethod:
        """Return a pool of these models, and the draws from it."""
        settings, pool = self.settings, self.make_pool(models, passes, views)
        largest = pool.num_members // len(models) if pool.group else pool.num_members
        asked = settings.members or default_sizes(largest)
        sizes = [size for size in asked if size <= largest]
        if sizes and len(sizes) < len(asked):
            self.reporter.say(f"{name}: has {largest} members to draw from; larger M are left out")
        if not sizes:
            raise ArgumentError(
                f"members: M = {min(settings.members or ())} is impossible, {name} has {largest} members"
            )
        draws = make_draws(
            pool.num_members,
            sizes,
            plan=pool.plan,
            max_draws=settings.draws,
            seed=settings.seed,
            group=pool.group,
        )
        facts = MethodFacts(
            label=label,
            method="mc_dropout" if passes else "views" if views else "given",
            num_networks=len(models),
            plan=pool.plan,
            members=member_table(pool),
            notes=self.notes(models),
        )
        weights = [model.fingerprint or uuid.uuid4().hex for model in models]
        told = {"passes": passes, "rate": settings.rate, "views": [[view.flip, view.scale] for view in views]}
        return DrawnMethod(name, facts, len(models), pool, draws, weights, told, depth=settings.depth)

    def notes(self, models: Sequence[GivenModel]) -> list[str]:
        """Return the notes on the scores."""
        if self.kind == "gaussian" and all(model.read_as.spread is None for model in models):
            return ["The models give no spread of their own: all uncertainty is the spread between members."]
        return []


def backwards(scores: Sequence[Score]) -> list[str]:
    """Notes on domains where an inverted uncertainty ranks errors better."""
    notes = []
    for score in scores:
        stats = score.summary[max(score.summary)] if score.summary else {}
        if "ause_inverted" in stats:
            given, inverted, noise, bound = (
                cast(float | None, stats[f"ause{suffix}"].mean)
                for suffix in ("", "_inverted", "_inverted_noise", "_inverted_bound")
            )
            if points_backwards(given, inverted, noise, bound or 0.0):
                ause = f"AUSE {given:.3g} as given, {inverted:.3g} turned round"
                notes.append(f"On {score.domain} it is inverted: {ause}.")
    return notes


def check_folder(path: Path) -> None:
    """Refuse a folder that holds something else than an evaluation of given models, or nothing."""
    if path.exists() and not path.is_dir():
        raise ArgumentError(f"out {path} is a file: give a folder")
    if path.is_dir() and not (path / SETTINGS_NAME).exists() and any(path.iterdir()):
        raise ArgumentError(f"out {path} is not empty and holds no evaluation of models: give a new folder")


def evaluation_options(given: Mapping[str, Any]) -> EvaluationOptions:
    """Return options of an evaluation; raise an InputError with the nearest name for an unknown option."""
    for name in given:
        if name in ModelFormat.model_fields:
            value = given[name] if isinstance(given[name], str | int | float) else "…"
            raise InputError(
                f"'{name}' is how a model is fed or read; give model_format={{\"{name}\": {json.dumps(value)}}}"
            )
        if name not in EvaluationOptions.model_fields:
            known = EvaluationOptions.model_fields
            raise InputError(f"'{name}' is no option here; the nearest is {nearest(name, known)} ({', '.join(known)})")
    return validated(EvaluationOptions, given)


def check_same(file: Path, settings: Mapping[str, Any]) -> None:
    """Raise an InputError if the folder holds results of other models or data, which would be lost."""
    before = read_json(file) or {}
    for part in ("models", "domains"):
        for name, there in before.get(part, {}).items():
            now = json.loads(json.dumps(settings[part])).get(name)
            more = part == "models" and now is not None and now[: len(there)] == there[: len(now)]
            if now is not None and now != there and not more:
                named = "" if name == DEFAULT_NAME else f" under the name '{name}'"
                raise InputError(f"{file.parent}: holds results of other {part}{named}; give another folder")
        if before.get(part) and not set(before[part]) & set(settings[part]):
            raise InputError(f"{file.parent}: holds results of other {part} ({', '.join(before[part])}); give another")


def check_alike(pools: Sequence[tuple[DrawnMethod, ImageEvaluation]]) -> None:
    """Raise an InputError if two methods have one name, or are scored in different classes on a domain."""
    names = [drawn.name for drawn, _ in pools]
    if len(set(names)) < len(names):
        raise InputError(f"two methods have one name ({', '.join(names)}); give models other names")
    for domain in pools[0][1].domains:
        tables = {
            drawn.name: table.names
            for drawn, evaluation in pools
            if (table := evaluation.domains[domain].data.classes) is not None
        }
        if len(set(tables.values())) > 1:
            raise InputError(f"{', '.join(tables)}: share different classes with {domain}; evaluate them apart")


def _joined(name: str, method: str, alone: bool) -> str:
    return method if alone else f"{name}_{method}"


def _label(label: str, method: str, alone: bool) -> str:
    return method if alone else f"{label}, {method}"
