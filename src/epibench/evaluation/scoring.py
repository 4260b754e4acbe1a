"""Scores of stored predictions: draws, settings and facts about a file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath

import torch
from torch import Tensor

from epibench import __version__
from epibench.conventions import Convention, check_uncertainty
from epibench.errors import ArgumentError, InputError
from epibench.evaluation.loop import Evaluation
from epibench.evaluation.pictures import stored_pictures
from epibench.evaluation.suite import SuiteSettings
from epibench.evaluation.summary import per_draw, summarise, summarise_curves
from epibench.members.draws import Draws, make_draws
from epibench.members.stored import StoredPredictions
from epibench.plans import Plan
from epibench.results import DomainFacts, MethodFacts, Picture, PoolSize, Results, Score, Tally
from epibench.standard_errors import points_backwards
from epibench.store.formats import PredictionStore

# States of all metrics, and the same size again to compute them.
BYTES_PER_DRAW = 2 * 9 * 2**19
NO_DOMAIN = "no domain given"
NUM_PICTURES = 4  # images in results, with the prediction of the first draw of the largest M
BYTES_PER_CLASS = 2 * 20 * 2**10  # of a draw: sparsification among the pixels of the class


@dataclass(frozen=True)
class ScoreSettings:
    """All settings of a score, besides the predictions."""

    sizes: tuple[int, ...] | None = None
    max_draws: int = 16
    plan: Plan = "random"
    seed: int = 0
    convention: Convention = "pooled"
    uncertainty: str | None = None
    ignore_index: int | None = None
    skip_invalid: bool = False
    depth: bool = False
    device: str = "cpu"


@dataclass(frozen=True)
class Scorer:
    """A store with its draws and metrics, checked and ready to run."""

    store: PredictionStore
    settings: ScoreSettings
    draws: Draws
    suite_settings: SuiteSettings
    uncertainty: str  # its name in results: of the array or map, if it was given

    def run(self, progress: Callable[[int], None] = lambda pixels: None) -> ScoredStore:
        """Read all predictions once, and score every draw. `progress` receives numbers of finished pixels."""
        settings, device = self.settings, torch.device(self.settings.device)
        names = self.store.uncertainty_names or ()
        predictions = StoredPredictions(
            self.store,
            settings.ignore_index,
            settings.skip_invalid,
            device=device,
            uncertainty_map=names.index(self.uncertainty) if self.uncertainty in names else 0,
        )
        evaluation = Evaluation(predictions, self.draws, self.suite_settings)
        try:
            evaluation.run(after_pixels=progress)
        except InputError:
            raise
        except ValueError as error:  # values so large that results are not finite
            raise InputError(f"{self.store.path}: {error}; check the unit and size of the predictions") from error
        store, sets, tally = self.store, self.draws.sets, predictions.tally
        values, curves = evaluation.results()
        shown = sets[self.draws.of_size(self.draws.sizes[-1])[0]]
        pictures = stored_pictures(predictions, shown, NUM_PICTURES)
        score = Score(
            method=store.method or PurePath(str(store.path)).stem or "predictions",
            domain=store.domain or NO_DOMAIN,
            settings={"convention": self.settings.convention, "uncertainty": self.uncertainty},
            kind=store.kind,
            unit=store.unit,
            counted=store.counted,
            source=str(store.path),
            pool=PoolSize(
                store.num_members, None if store.group is None else len(set(store.group)), None, self.settings.plan
            ),
            num_images=store.shape[0] if store.has_images else None,
            pixels=tally,
            notes=self.notes(tally, values),
            overlap={size: self.draws.overlap(size) for size in self.draws.sizes},
            draws=per_draw(sets, values),
            summary=summarise(sets, values),
            curves=summarise_curves(sets, curves),
            pictures=[predicted for _, predicted in pictures],
        )
        return ScoredStore(score, store.class_names, [image for image, _ in pictures])

    def notes(self, tally: Tally, values: dict[str, Tensor]) -> list[str]:
        """Return notes that matter for comparisons of these numbers."""
        notes = []
        if not self.store.complete:
            notes.append("Its writer did not finish: images or members may be missing.")
        if tally.skipped:
            word = self.store.counted.capitalize()
            notes.append(f"{word} skipped because of NaN or infinite values: {tally.skipped:,}.")
        group = self.store.group
        if group is not None and any(len({group[member] for member in members}) > 1 for members in self.draws.sets):
            notes.append(
                f"Draws mix members of {len(set(group))} groups, as networks or chains: --plan prefix (passes of "
                f"dropout) or spread (snapshots) draws within each."
            )
        size = self.draws.sizes[-1]
        draws = self.draws.of_size(size)
        ause, bound, chance = (float(values[name][draws].mean()) for name in ("ause", "ause_bound", "ause_random"))
        if "ause_inverted" in values:
            names = ("ause_inverted", "ause_inverted_noise", "ause_inverted_bound")
            inverted, noise, inverted_bound = (float(values[name][draws].mean()) for name in names)
            if points_backwards(ause, inverted, noise, inverted_bound):
                own = self.uncertainty in self.store.arrays  # the name of the array, not of a map in it
                name = self.uncertainty if own else f"uncertainty {self.uncertainty!r}"
                notes.append(
                    f"Its {name} is inverted: at M = {size}, AUSE {ause:.3g} as given, {inverted:.3g} inverted, "
                    f"chance {chance:.3g}."
                )
        elif ause - bound > chance:
            notes.append(
                f"At M = {size} its uncertainty ranks errors worse than chance: AUSE {ause:.3g}, chance {chance:.3g}."
            )
        if undefined := int((values["nll_infinite"] > 0).sum()) if "nll_infinite" in values else 0:
            notes.append(
                f"NLL is infinite for {undefined} of {len(self.draws.sets)} draws: what happened had no probability."
            )
        return notes


@dataclass(frozen=True)
class ScoredStore:
    """The score of stored predictions, with the names of classes and the kept images."""

    score: Score
    class_names: Sequence[str] | None
    images: Sequence[Picture]


def score_results(stores: Sequence[ScoredStore], settings: ScoreSettings, in_domain: str | None = None) -> Results:
    """Return results of all stores. `in_domain`: the domain of the methods' training, if known."""
    scores = _with_distinct_methods([store.score for store in stores])
    names: dict[str, Sequence[str]] = {}
    for score, store in zip(scores, stores, strict=True):
        if store.class_names is not None:
            names.setdefault(score.domain, store.class_names)
    domains: dict[str, DomainFacts] = {}
    for score, store in zip(scores, stores, strict=True):
        role = "role unknown" if in_domain is None else "in-domain" if score.domain == in_domain else "shifted"
        about = {"label": score.domain, "role": role, "class_names": names.get(score.domain)}
        facts = domains.setdefault(score.domain, DomainFacts.model_validate(about))
        known = {(picture.image, picture.height, picture.width) for picture in facts.pictures}
        facts.pictures += [each for each in store.images if (each.image, each.height, each.width) not in known]
    given = asdict(settings)
    named = {"members": given["sizes"] and list(given["sizes"]), "draws": given["max_draws"]}
    others = ("seed", "convention", "uncertainty", "ignore_index", "skip_invalid", "depth", "device")
    several = {score.domain for score in scores}
    notes: dict[str, list[str]] = {}
    for score in scores:
        where = f"On {score.domain}: " if len(several) > 1 else ""
        notes.setdefault(score.method, []).extend(where + note for note in score.notes)
    return Results(
        epibench=__version__,
        torch=torch.__version__,
        recipe={"name": "scored predictions", "stored": named | {name: given[name] for name in others}},
        problem="scored",
        convention=settings.convention,
        methods={
            name: MethodFacts(label=name, method="stored", plan=settings.plan, notes=of_method)
            for name, of_method in notes.items()
        },
        domains=dict(sorted(domains.items(), key=lambda item: item[0] != in_domain)),
        scores=scores,
    )


def _with_distinct_methods(scores: Sequence[Score]) -> list[Score]:
    """Return scores with distinct names of methods on each domain: with the uncertainty map, then the path."""
    methods = [score.method for score in scores]
    maps = Counter((score.source, score.kind) for score in scores)
    methods = [
        f"{name}, {score.settings['uncertainty']}" if maps[score.source, score.kind] > 1 else name
        for name, score in zip(methods, scores, strict=True)
    ]
    paths = [f"{name} ({score.source})" for name, score in zip(methods, scores, strict=True)]
    for names in (methods, paths):
        keys = {(name, score.domain, score.kind, score.unit) for name, score in zip(names, scores, strict=True)}
        if len(keys) == len(scores):
            break
    else:
        names = [f"{number} {name}" for number, name in enumerate(paths, start=1)]
    return [score.model_copy(update={"method": name}) for score, name in zip(scores, names, strict=True)]


def check_in_domain(in_domain: str, stores: Sequence[PredictionStore]) -> None:
    """Refuse a domain that no store has, and stores without a shifted domain."""
    for store in stores:
        if store.domain is None:
            raise InputError(f"{store.path}: has no attribute 'domain', which in_domain needs; write it with one")
    domains = list(dict.fromkeys(str(store.domain) for store in stores))
    if in_domain not in domains:
        raise ArgumentError(f"in_domain '{in_domain}': the stores are of {', '.join(domains)}; give one of these")
    if len(domains) == 1:
        raise ArgumentError(
            f"in_domain '{in_domain}': all stores are of this domain; give one of a shifted domain, too"
        )


def scorers_of(store: PredictionStore, settings: ScoreSettings, name: str) -> list[Scorer]:
    """Return a scorer of each requested uncertainty: of the settings' one, or of every map of a ranking.

    `name` is the store's name in messages.
    """
    maps = [settings.uncertainty] if settings.uncertainty is not None else store.uncertainty_names or [None]
    try:
        return [prepare(store, replace(settings, uncertainty=one)) for one in maps]
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def prepare(store: PredictionStore, settings: ScoreSettings) -> Scorer:
    """Make the draws, and check the settings before anything is read."""
    draws = make_draws(
        store.num_members,
        settings.sizes,
        plan=settings.plan,
        max_draws=settings.max_draws,
        seed=settings.seed,
        group=store.group,
    )
    num_draws = len(draws.sets)
    needed = num_draws * (BYTES_PER_DRAW + (store.num_classes or 0) * BYTES_PER_CLASS)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if settings.device == "cpu" and needed > there:  # instead of exhausting the machine's memory
        raise InputError(
            f"{num_draws:,} draws need {needed / 2**30:,.0f} GiB for their metrics, and this machine has "
            f"{there / 2**30:,.0f} GiB; lower --draws or give fewer --members"
        )
    if store.num_classes is None and settings.convention == "gustafsson2020" and not store.has_images:
        raise InputError(
            "convention 'gustafsson2020' averages the RMSE over random groups of 4 images and needs an image axis: "
            "store predictions as (member, image, height, width)"
        )
    name, used = uncertainty_of(store, settings.uncertainty)
    depth = settings.depth or store.quantity == "depth"
    if depth and (store.kind != "gaussian" or store.unit not in (None, "m")):
        what = f"in {store.unit}" if store.kind == "gaussian" else "of classes"
        raise InputError(f"metrics of depth (--depth, quantity 'depth') need depths in metres; these are {what}")
    suite_settings = SuiteSettings(
        kind=store.kind,
        convention=settings.convention,
        uncertainty=used,
        num_images=store.shape[0] if store.has_images else None,
        num_classes=store.num_classes,
        depth=depth,
    )
    return Scorer(store, settings, draws, suite_settings, name)


def uncertainty_of(store: PredictionStore, name: str | None) -> tuple[str, str]:
    """Return the uncertainty's name in results, and its name in the likelihood. A store may have its own maps."""
    if store.kind != "ranking":
        used = check_uncertainty(store.kind, name)
        return used, used
    given = store.uncertainty_names or (store.output_names[-1],)
    if name is None or name in given:
        return name or given[0], "given"
    if name not in ("given", "spread"):
        raise InputError(f"uncertainty '{name}' is not in this store; it has {', '.join((*given, 'spread'))}")
    return (given[0] if name == "given" else name), name
