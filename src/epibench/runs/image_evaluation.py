"""Evaluate trained or given members on images: every method on every domain.

Finished domains are read from the run folder. Interrupted domains resume.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from pydantic import ValidationError
from torch import Tensor

from epibench.conventions import check_uncertainty
from epibench.data.batch import Batch, Samples, notes_on
from epibench.data.named import Role
from epibench.errors import InputError
from epibench.evaluation.cost import cost_per_image, count_flops, num_parameters, training_cost
from epibench.evaluation.loop import Evaluation, Progress
from epibench.evaluation.pictures import can_be_shown
from epibench.evaluation.suite import SuiteSettings, metrics_of
from epibench.files import fingerprint, read_json, remove, write_json
from epibench.members.draws import Draws, Members
from epibench.members.networks import ImagePool
from epibench.members.on_images import NetworksOnImages, Observer
from epibench.picture_files import EMBEDDED
from epibench.plans import centres, consecutive
from epibench.progress import Reporter
from epibench.recipes.dense import EvaluationOptions
from epibench.results import (
    Cost,
    Counted,
    DomainFacts,
    MethodFacts,
    Part,
    PassCost,
    Picture,
    Score,
    Tally,
    TrainingCost,
    TrainingLog,
)
from epibench.runs.checkpoints import load_tensors, save_tensors
from epibench.runs.domains import DomainData
from epibench.runs.folder import RunFolder, locked, share_work
from epibench.runs.machine import Machine
from epibench.runs.method_results import MethodResults, make_score, pool_size
from epibench.runs.observers import Gallery, StoreObserver, is_whole, largest_size
from epibench.runs.stretches import Stretches, stretch_length, totals_of
from epibench.stopping import in_steps
from epibench.training.state import Pacer

EVALUATION = "4"  # increases with every code change that changes results of the same members
COST = "2"  # increases with every code change that changes the measured cost
DIGESTED = 3  # samples of a domain
SHORT = 8  # letters of a fingerprint that distinguish files of different settings


class ScoredDomain(Part):
    """The file of a finished domain: its score, and its pictures, which the file holds in base64."""

    score: Score
    images: list[Picture]


Kept = TypeVar("Kept", Cost, ScoredDomain)


@dataclass(frozen=True)
class DrawnMethod:
    """A method's members and the draws from them.

    Args:
        name: Name of the method.
        facts: Facts for results.
        num_networks: Number of networks.
        pool: Members of the method.
        draws: Draws from the pool.
        weights: Fingerprints of the members' weights.
        options: Options that decide the members, as plain data.
        train_seconds: Seconds of training of all networks.
        training: Logs of training.
        depth: Whether members predict metres of depth, which have their own metrics.
        train_steps: Steps of one network and of the networks it starts from; 0 if unknown.
    """

    name: str
    facts: MethodFacts
    num_networks: int
    pool: ImagePool
    draws: Draws
    weights: Sequence[Any]
    options: Mapping[str, Any]
    train_seconds: float = 0.0
    training: Sequence[TrainingLog] = ()
    depth: bool = False
    train_steps: int = 0

    @property
    def training_cost(self) -> dict[int, TrainingCost]:
        """The training cost of M members, by M; empty if it is unknown, e.g. for given models."""
        seconds = self.train_seconds / max(1, self.num_networks)
        return training_cost(self.pool.table, self.draws, seconds, self.train_steps) if self.train_steps else {}

    @property
    def shown(self) -> Members:
        """The members of the pictures: the first draw of the largest M."""
        return self.draws.sets[self.draws.of_size(self.draws.sizes[-1])[0]]

    def fingerprint(self, evaluation: EvaluationOptions, *more: Any) -> str:
        """Return a fingerprint of everything that decides the scores, and of `more`."""
        options = evaluation.model_dump(mode="json", exclude={"store"})
        members = [[m.network, m.snapshot, m.number] for m in self.pool.table.members]
        names = [EVALUATION, self.facts.method, self.pool.seed, *metrics_of(self.pool.kind, self.depth)]
        return fingerprint(list(self.weights), members, names, dict(self.options), self.draws.sets, options, *more)


@dataclass(frozen=True)
class EvaluationDomain:
    """A domain and its facts for results.

    Args:
        data: Samples and classes of the domain.
        label: Name on pages.
        role: Role of the domain.
        identity: Settings that decide its samples, as plain data.
        severity: Severity of the shift.
        in_files: Whether samples are read from files. Some samples are then part of the fingerprint, because
            files may move or change.
    """

    data: DomainData
    label: str
    role: Role
    identity: Sequence[Any]
    severity: float | None = None
    in_files: bool = False

    @cached_property
    def decided_by(self) -> tuple[Any, ...]:
        """The identity and a digest of some samples, which detects changed files but ignores moved files."""
        return (*self.identity, *(digest_of(self.data.samples) if self.in_files else ()))


@dataclass(frozen=True)
class ImageEvaluation:
    """Everything that an evaluation on images needs, for trained and given members."""

    folder: RunFolder
    machine: Machine
    reporter: Reporter
    kind: str
    unit: str | None
    options: EvaluationOptions
    domains: Mapping[str, EvaluationDomain]
    maps: bool = True  # whether targets are maps of pixels, not single numbers
    counted: Counted = "pixels"

    def evaluate(self, drawn: DrawnMethod, failed: dict[str, str]) -> MethodResults:
        """Return a method's scores on every domain and its cost. A failed domain does not stop the others."""
        scored = self.evaluate_domains(drawn, failed)
        training = {"train_seconds": drawn.train_seconds, "training": drawn.training_cost}
        cost = self.image_cost(drawn).model_copy(update=training)
        return MethodResults(
            drawn.facts.model_copy(update={"cost": cost, "training": list(drawn.training)}),
            [each.score.model_copy(update={"unit": self.unit}) for each in scored.values()],  # no value depends on it
            {domain: each.images for domain, each in scored.items()},
        )

    def evaluate_domains(self, drawn: DrawnMethod, failed: dict[str, str]) -> dict[str, ScoredDomain]:
        """Return every finished domain: read from the folder, evaluated here, or by another process.

        Args:
            drawn: Method to evaluate.
            failed: Failures by task name. Domains in it are not tried again. New failures are added.

        Raises:
            InputError: Every domain has failed.
        """
        tasks = {name: DomainTask(self, drawn, name) for name in self.domains}
        for task in tasks.values():
            if task.results() is not None:
                self.reporter.say(f"{task.name}: evaluated already")
        broken = {name: failed[task.name] for name, task in tasks.items() if task.name in failed}

        def work(todo: Sequence[DomainTask]) -> None:
            for task in todo:
                with locked(task.lock) as mine:
                    if mine and task.results() is None:
                        try:
                            task.finish()
                        except InputError as error:
                            broken[task.domain] = str(error)
                            self.reporter.say(f"{task.name} failed: {error}")

        share_work(
            list(tasks.values()),
            done=lambda task: task.domain in broken or task.results() is not None,
            lock=lambda task: task.lock,
            work=work,
            reporter=self.reporter,
        )
        if len(broken) == len(tasks):
            raise InputError(next(iter(broken.values())))
        failed |= {tasks[domain].name: text for domain, text in broken.items()}
        return {name: each for name, task in tasks.items() if name not in broken and (each := task.results())}

    def image_cost(self, drawn: DrawnMethod) -> Cost:
        """Return parameters, FLOPs, time and memory of one image, measured or read from the folder."""
        first = next(iter(self.domains))
        device = drawn.pool.device
        where = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        key = drawn.fingerprint(self.options, self.domains[first].decided_by, COST, where)
        file = self.folder.path / "evaluation" / f"{drawn.name}-{key[:SHORT]}.cost.json"

        def done(lock: Path) -> bool:
            return read_checked(file, key, Cost) is not None

        def work(todo: Sequence[Path]) -> None:
            with locked(lock) as mine:
                if mine and not done(lock):
                    with self.reporter.step(f"measure the cost of {drawn.name}", 1) as advance:
                        write_checked(file, key, self.measure_cost(drawn, self.domains[first].data.samples[0]))
                        advance(1)

        lock = file.with_suffix(".lock")
        share_work([lock], done, lambda lock: lock, work, self.reporter)
        cost = read_checked(file, key, Cost)
        assert cost is not None
        return cost

    def measure_cost(self, drawn: DrawnMethod, sample: Batch) -> Cost:
        """Measure the cost of one image."""
        pool = drawn.pool
        if not self.maps:  # the cost of one row of a table is not measured
            return Cost(parameters=num_parameters(pool.plain_network()), train_seconds=0.0)
        inputs: dict[str, Tensor] = {key: values[None].to(pool.device) for key, values in sample.inputs.items()}
        height, width = sample.target.shape
        per_image = cost_per_image(pool, inputs, (height, width), drawn.draws)
        one = per_image[1].flops if 1 in per_image else count_flops(pool, inputs, (height, width), (0,))
        return Cost(
            parameters=num_parameters(pool.plain_network()),
            flops=one,
            image_size=list(sample.target.shape),
            per_image=per_image,
            train_seconds=0.0,
        )

    def domain_facts(self, evaluated: Collection[MethodResults]) -> dict[str, DomainFacts]:
        """Return the facts of every domain, with the pictures of all methods."""
        labels, facts = [each.label for each in self.domains.values()], dict[str, DomainFacts]()
        for name, domain in self.domains.items():
            classes, pictures = domain.data.classes, {}
            for method in evaluated:
                pictures.update({picture.image: picture for picture in method.images.get(name, [])})
            facts[name] = DomainFacts(
                label=f"{domain.label} ({name})" if labels.count(domain.label) > 1 else domain.label,
                role=domain.role,
                severity=domain.severity,
                class_names=None if classes is None else list(classes.names),
                class_colours=None if classes is None else list(classes.colours),
                classes=None if domain.data.class_groups is None else domain.data.about,
                notes=notes_on(domain.data.samples),
                pictures=list(pictures.values()),
            )
        return facts


class DomainTask:
    """The evaluation of a method on one domain.

    It writes a file of results, and a prediction store if the options say so. One process may evaluate all images, or
    several processes evaluate stretches, whose states are merged at the end.
    """

    def __init__(self, evaluation: ImageEvaluation, drawn: DrawnMethod, domain: str):
        self.evaluation, self.options, self.about = evaluation, evaluation.options, evaluation.domains[domain]
        self.data, self.drawn, self.domain = self.about.data, drawn, domain
        self.key = drawn.fingerprint(evaluation.options, *self.about.decided_by)
        folder = evaluation.folder.path / "evaluation" / drawn.name
        self.file = folder / f"{domain}-{self.key[:SHORT]}.json"  # results of other settings stay beside it
        self.unfinished, self.lock = self.file.with_suffix(".unfinished.safetensors"), self.file.with_suffix(".lock")
        self.store = evaluation.folder.path / "predictions" / drawn.name / f"{domain}.zarr"
        self.stored = folder / f"{domain}.stored"  # holds the fingerprint of the store's settings
        self.finished: ScoredDomain | None = None

    @property
    def name(self) -> str:
        """The method and the domain, for messages."""
        return f"{self.drawn.name} on {self.domain}"

    @cached_property
    def stretches(self) -> Stretches:
        """The stretches of the domain's images."""
        samples = self.data.samples
        length = stretch_length(samples, self.options.batch_size)
        return Stretches(self.file.with_suffix(".stretches"), self.key, len(samples), max(1, length))

    def results(self) -> ScoredDomain | None:
        """Return the results; None unless they are finished, undamaged and of the same settings. Found once, kept."""
        if self.finished is None and (not self.options.store or (self.owns_store and is_whole(self.store))):
            self.finished = read_checked(self.file, self.key, ScoredDomain)
        return self.finished

    @property
    def owns_store(self) -> bool:
        """Whether the store was written with these settings."""
        return self.store.exists() and (read_json(self.stored) or {}).get("fingerprint") == self.key

    @in_steps()
    def finish(self) -> None:
        """Evaluate the missing images, and write the results."""
        options, draws = self.options, self.drawn.draws
        if options.store and not self.owns_store:
            remove(self.unfinished)  # its stored predictions are gone
            self.stretches.remove()  # stretches of other processes were not stored
        gallery, observers = self.observers()
        evaluation = self.new_evaluation(observers)
        try:
            self.evaluate(evaluation)
        except BaseException:
            for observer in observers:
                observer.stop()
            raise
        for observer in observers:
            observer.close()
        if options.store and not is_whole(self.store):
            raise InputError(f"{self.store}: some of its files are missing; remove it, and it is made anew")
        values, curves = evaluation.results()
        done = evaluation.done
        pictures, about = gallery.pictures(), self.evaluation
        score = make_score(
            draws,
            values,
            curves,
            method=self.drawn.name,
            domain=self.domain,
            settings=deciding(about.kind, options),
            kind=about.kind,
            unit=about.unit,
            counted=about.counted,
            pool=pool_size(self.drawn.pool, self.drawn.num_networks),
            num_images=done.images,
            pixels=Tally(valid=done.pixels),
            overlap={size: draws.overlap(size) for size in draws.sizes},
            pictures=[predicted for _, predicted in pictures],
            cost=PassCost(forward_seconds=done.forward_seconds, scoring_seconds=done.scoring_seconds),
        )
        write_checked(self.file, self.key, ScoredDomain(score=score, images=[image for image, _ in pictures]))
        remove(self.unfinished)
        self.stretches.remove()

    def new_evaluation(self, observers: Sequence[Observer]) -> Evaluation:
        """Return an evaluation that has not seen an image."""
        options = self.options
        domain = NetworksOnImages(
            self.drawn.pool,
            self.data.samples,
            options.batch_size,
            self.evaluation.machine.workers,
            observers,
            self.data.num_classes,
            self.data.class_groups,
            stretch=self.stretches.length,
        )
        settings = suite_settings(self.evaluation.kind, options, self.data, self.drawn.depth, self.evaluation.maps)
        return Evaluation(domain, self.drawn.draws, settings)

    def observers(self) -> tuple[Gallery, list[Observer]]:
        """Return the gallery of pictures, and all observers of outputs."""
        drawn, data, kind = self.drawn, self.data, self.evaluation.kind
        shown = self.options.pictures if can_be_shown(data.samples[0]) else 0
        images = centres(len(data.samples), shown)
        gallery = Gallery(images, drawn.shown, kind)
        if not self.options.store:
            return gallery, [gallery]
        size = largest_size(data.samples, self.evaluation.machine.workers, self.evaluation.reporter)
        labels = (drawn.facts.label, self.about.label, self.evaluation.unit)
        store = StoreObserver(self.store, labels, drawn.pool, data, size, begun=self.unfinished.exists())
        write_json(self.stored, {"fingerprint": self.key})
        return gallery, [gallery, store]

    def evaluate(self, evaluation: Evaluation) -> None:
        """Resume, merge stretches of other processes, evaluate the other images, and save from time to time."""
        total, pacer = len(self.data.samples), Pacer()
        self.resume(evaluation)
        word = "evaluate" if self.stretches.missing() else "merge"
        with self.evaluation.reporter.step(f"{word} {self.name}", total, evaluation.done.images) as advance:

            def after_portion(images: int) -> None:
                advance(images)
                if evaluation.done.images < total and pacer.due():
                    with pacer:
                        notes = {"fingerprint": self.key, **asdict(evaluation.done)}
                        save_tensors(self.unfinished, evaluation.state(), notes)

            while evaluation.done.images < total:
                self.take_stretches(evaluation, advance)
                self.run_until(evaluation, self.next_taken(evaluation.done.images), after_portion)
        if not evaluation.done.pixels:
            raise InputError(f"{self.name}: no image has a pixel whose target is known; there is nothing to evaluate")

    def take_stretches(self, evaluation: Evaluation, advance: Progress) -> None:
        """Add the next stretches if other processes have evaluated them."""
        length = self.stretches.length
        while evaluation.done.images < len(self.data.samples) and evaluation.done.images % length == 0:
            taken = self.stretches.load(evaluation.done.images // length)
            if taken is None:
                return
            evaluation.add_stretch(*taken)
            advance(taken[1].images)

    def next_taken(self, image: int) -> int:
        """Return the start of the next stretch that another process has evaluated, or the number of images."""
        stretches = self.stretches
        following = range(-(-image // stretches.length), len(stretches))
        others = (number for number in following if stretches.path(number).exists())
        return next((stretches.images(number).start for number in others), len(self.data.samples))

    def run_until(
        self,
        evaluation: Evaluation,
        stop: int,
        after_portion: Progress,
        after_stretch: Callable[[], None] | None = None,
    ) -> None:
        """Evaluate images up to `stop`; a prediction that is not finite raises an InputError."""
        if evaluation.done.images == stop:
            return
        cast(NetworksOnImages, evaluation.predictor).stop = stop
        try:
            evaluation.run(after_portion, after_stretch=after_stretch)
        except InputError:
            raise
        except ValueError as error:  # what a broken network predicts is not finite
            raise InputError(f"{self.name}: {error}; has a network gone astray? Look at its loss") from None

    def evaluate_stretches(self, numbers: Sequence[int], advance: Progress) -> None:
        """Evaluate stretches that have no file, and write their states to be merged later."""
        for left in consecutive(number for number in numbers if not self.stretches.path(number).exists()):
            self._evaluate_consecutive(left, advance)

    def _evaluate_consecutive(self, numbers: range, advance: Progress) -> None:
        evaluation, left = self.new_evaluation(self.observers()[1]), iter(numbers)
        images = self.stretches.images
        evaluation.start_at(images(numbers[0]).start)
        end = images(numbers[-1]).stop
        self.run_until(evaluation, end, advance, lambda: self.stretches.save(next(left), *evaluation.cut_stretch()))

    def resume(self, evaluation: Evaluation) -> None:
        """Resume from the saved state, if one exists."""
        saved = load_tensors(self.unfinished, self.key)
        if saved is None:
            return
        done = totals_of(saved)
        if not 0 < done.images < len(self.data.samples):
            raise saved.complaint(f"its 'images' is {done.images}, of {len(self.data.samples)}")
        try:
            evaluation.load_state(saved.tensors, done)
        except KeyError as error:
            raise saved.complaint(f"it lacks {error}") from None


def suite_settings(
    kind: str, options: EvaluationOptions, data: DomainData, depth: bool, maps: bool = True
) -> SuiteSettings:
    """Return the settings of the metrics on a domain. `maps`: whether targets are maps of pixels."""
    return SuiteSettings(
        kind,
        options.convention,
        check_uncertainty(kind, options.uncertainty),
        num_images=len(data.samples),
        num_classes=data.num_classes,
        published=options.convention == "pooled" and maps,
        depth=depth,
    )


def deciding(kind: str, options: EvaluationOptions) -> dict[str, Any]:
    """Return the settings of a score: the options that decide its values."""
    settings = {
        "precision": options.precision,
        "convention": options.convention,
        "uncertainty": check_uncertainty(kind, options.uncertainty),
    }
    window = {} if options.window is None else {"window": list(options.window), "overlap": options.overlap}
    speed = {name: True for name in ("compile", "cuda_graphs") if getattr(options, name)}
    return {**settings, **window, **speed}


def dtype_of(options: EvaluationOptions) -> torch.dtype:
    """Return the precision of members' predictions."""
    return torch.bfloat16 if options.precision == "bf16-mixed" else torch.float32


def digest_of(samples: Samples) -> tuple[str, ...]:
    """Return a fingerprint of a few decoded samples; empty if one cannot be read."""
    try:
        some = [samples[number] for number in centres(len(samples), DIGESTED)]
    except InputError:
        return ()
    tensors = [each for one in some for each in (*one.inputs.values(), one.target, one.valid)]
    return (fingerprint(*(each.contiguous().numpy().tobytes() for each in tensors)),)


def write_checked(file: Path, key: str, content: Cost | ScoredDomain) -> None:
    """Keep results with the fingerprint of what decides them, and a checksum."""
    plain = content.model_dump(mode="json", context=EMBEDDED)
    write_json(file, {"fingerprint": key, "checksum": fingerprint(plain), **plain})


def read_checked(file: Path, key: str, kind: type[Kept]) -> Kept | None:
    """Return the written results; None if they are missing, damaged or of other settings."""
    plain = read_json(file)
    try:
        if plain is None or plain.pop("fingerprint", None) != key or plain.pop("checksum", None) != fingerprint(plain):
            return None
        return kind.model_validate(plain, context=EMBEDDED)
    except (ValidationError, RecursionError):
        return None
