"""Evaluate a method on the domains of a run with images, each found finished, gone on with, or begun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn.parameter import UninitializedParameter

from epibench.conventions import check_uncertainty
from epibench.data.batch import Batch
from epibench.data.classes import ClassTable
from epibench.errors import InputError
from epibench.evaluation.cost import cost_per_image, network_cost
from epibench.evaluation.loop import Evaluation, Progressed
from epibench.evaluation.suite import SuiteSettings
from epibench.evaluation.summary import per_draw, summarise, summarise_curves
from epibench.files import fingerprint, read_json, write_json
from epibench.imported import error_in_words
from epibench.members.draws import Draws
from epibench.members.networks import NetworkPool, NetworksOnImages, Observer, cut, image_size
from epibench.plans import centres
from epibench.recipes.dense import DenseRecipe
from epibench.results import Cost, DomainFacts, DomainResults, PassCost, Picture, TrainingLog
from epibench.runs.checkpoints import load_tensors, save_tensors
from epibench.runs.domains import DomainData, ImageData, draw_scenes, open_data
from epibench.runs.evaluated import Evaluated, draws_of, method_facts
from epibench.runs.folder import locked, share_work
from epibench.runs.observers import Gallery, StoreObserver, largest_size
from epibench.runs.train import Run, Trained
from epibench.runs.trainers import augment_of, check_log, prepare_weights
from epibench.training.state import Pacer

SHARE_OF_MEMORY = 0.3  # for the weights of members
MEAN_AND_LOG_VARIANCE = 2
UNFINISHED = ".unfinished.safetensors"


@dataclass(frozen=True)
class ImagesEvaluated(Evaluated):
    """What came out for one method, by domain."""

    domains: dict[str, DomainResults]
    overlap: dict[int, float | None]
    training: list[TrainingLog]


@dataclass(frozen=True)
class Fitted:
    """A method whose networks are trained: its members, and the draws that are evaluated."""

    name: str
    trained: Trained
    pool: NetworkPool
    draws: Draws

    def fingerprint(self, recipe: DenseRecipe, *more: Any) -> str:
        """Of everything that decides its numbers, and of what else is given."""
        options = recipe.evaluation.model_dump(mode="json", exclude={"store"})
        members = [[m.network, m.snapshot, m.number] for m in self.pool.table.members]
        method = [self.pool.method, self.pool.rate, self.pool.seed]
        return fingerprint(self.trained.fingerprints, members, method, self.draws.sets, options, *more)


@dataclass(frozen=True)
class ImageExperiment:
    """The data of a run with images, and how methods are evaluated on its domains."""

    run: Run

    @property
    def recipe(self) -> DenseRecipe:
        """The recipe that is carried out."""
        assert isinstance(self.run.recipe, DenseRecipe)
        return self.run.recipe

    @cached_property
    def data(self) -> ImageData:
        """Everything that the recipe names."""
        return open_data(self.recipe)

    def check(self) -> None:
        """Open a sample of every data set, and see whether networks can be trained on it as the recipe says."""
        recipe, data = self.recipe, self.data
        for domain in data.domains.values():
            domain.samples[0]
        check_crop_fits(recipe, data.train[0])
        check_network(recipe, data)
        check_log(recipe.training.log)
        weights = recipe.training.class_weights
        if isinstance(weights, tuple) and len(weights) != data.num_classes:
            raise InputError(
                f"training.class_weights: {len(weights)} numbers for {data.num_classes} classes; give one for each"
            )
        check_batches(recipe)

    def prepare(self) -> None:
        """Draw the scenes that are missing, count classes, and say what domains are scored in."""
        draw_scenes(self.data, self.run.reporter)
        for name, domain in self.data.domains.items():
            if domain.about is not None:
                self.run.reporter.say(f"{name}: {domain.about}")
        machine, members = self.run.machine, self.run.folder.members
        prepare_weights(self.recipe, members, self.data.train, machine.workers, self.run.reporter)

    def evaluate(self, name: str, trained: Trained, failed: dict[str, str]) -> ImagesEvaluated:
        """Every draw of a method on every domain, and what it costs; a domain that fails leaves the others."""
        method = trained.method
        if trained.diverged and (method.diverged == "stop" or not trained.networks):
            raise InputError(f"{len(trained.diverged)} of {method.num_trained} networks failed: {trained.diverged[0]}")
        fitted = self.fit(name, trained)
        scored = self.evaluate_domains(fitted, failed)
        return ImagesEvaluated(
            facts=method_facts(self.recipe, name, len(trained.networks), fitted.pool, self.notes_on(fitted)),
            summary={domain: each.summary for domain, each in scored.items()},
            curves={domain: each.curves for domain, each in scored.items()},
            entries={domain: each.draws for domain, each in scored.items()},
            cost=self.cost(fitted, scored),
            domains=scored,
            overlap={size: fitted.draws.overlap(size) for size in fitted.draws.sizes},
            training=trained.logs,
        )

    def fit(self, name: str, trained: Trained) -> Fitted:
        """The members of a method's trained networks, and the draws from them."""
        recipe, machine, method = self.recipe, self.run.machine, trained.method
        build = recipe.builder(self.data.num_classes)
        size = sum(each.numel() * each.element_size() for each in build().parameters())
        pool = NetworkPool(
            kind=recipe.likelihood,
            build=build,
            load=trained.weights,
            table=method.members(trained.networks),
            seed=recipe.seed,
            method=method.name,
            rate=method.dropout,
            resident=max(1, int(SHARE_OF_MEMORY * machine.memory / size)),
            device=machine.device,
            precision=torch.bfloat16 if recipe.evaluation.precision == "bf16-mixed" else torch.float32,
            window=recipe.evaluation.window,
            overlap=recipe.evaluation.overlap,
        )
        try:
            return Fitted(name, trained, pool, draws_of(recipe, name, pool))
        except InputError as error:
            lost = f"{len(trained.diverged)} of {method.num_trained} networks diverged; " if trained.diverged else ""
            raise InputError(f"{name}: {lost}{error}") from None

    def evaluate_domains(self, fitted: Fitted, failed: dict[str, str]) -> dict[str, DomainResults]:
        """Every domain: found in the folder, or evaluated to the end, here or by another process on this folder."""
        tasks = {name: DomainTask(self, fitted, name) for name in self.data.domains}
        for name, task in tasks.items():
            if task.results() is not None:
                self.run.reporter.say(f"{fitted.name} on {name}: evaluated already")
        broken: dict[str, str] = {}

        def work(todo: Any) -> list[DomainTask]:
            held = []
            for task in todo:
                with locked(task.lock) as mine:
                    if not mine:
                        held.append(task)
                    elif task.results() is None:
                        try:
                            task.carry_out()
                        except InputError as error:
                            broken[task.domain] = str(error)
                            self.run.reporter.say(f"{fitted.name} on {task.domain} failed: {error}")
            return held

        share_work(
            list(tasks.values()),
            done=lambda task: task.domain in broken or task.results() is not None,
            lock=lambda task: task.lock,
            work=work,
            reporter=self.run.reporter,
        )
        if len(broken) == len(tasks):
            raise InputError(next(iter(broken.values())))
        failed |= {f"{fitted.name} on {domain}": text for domain, text in broken.items()}
        results = {name: task.results() for name, task in tasks.items() if name not in broken}
        return {name: each for name, each in results.items() if each is not None}

    def notes_on(self, fitted: Fitted) -> list[str]:
        """What is to be said about a method's numbers."""
        recipe, method, group = self.recipe, fitted.trained.method, fitted.pool.group
        groups, drawn = len(set(group or ())), len(fitted.draws.of_size(fitted.draws.sizes[0]))
        notes = []
        if fitted.trained.diverged:
            notes.append(f"{len(fitted.trained.diverged)} of {method.num_trained} diverged and are left out.")
        if drawn < groups:
            notes.append(f"Only {drawn} of {groups} networks or chains are drawn from: `draws` is {recipe.draws}.")
        if recipe.evaluation.convention == "gustafsson2020":
            notes.append("Ties count with their mean, not in input order: there are too many pixels to keep them all.")
        return notes

    def cost(self, fitted: Fitted, scored: Mapping[str, DomainResults]) -> Cost:
        """Parameters, FLOPs, time and memory of one image; found in the folder if it was measured."""
        file = self.run.folder.path / "evaluation" / f"{fitted.name}.cost.json"
        first = next(iter(self.data.domains))
        key = fitted.fingerprint(self.recipe, self.recipe.data.domains[first].model_dump(mode="json"))
        measured: Cost | None = read_checked(file, key, Cost)
        if measured is None:
            with self.run.reporter.step(f"measure the cost of {fitted.name}", 1) as advance:
                measured = self.measure_cost(fitted, self.data.domains[first].samples[0])
                advance(1)
            write_checked(file, key, measured)
        passes = {domain: each.cost for domain, each in scored.items()}
        return measured.model_copy(update={"train_seconds": fitted.trained.seconds, "evaluation": passes})

    def measure_cost(self, fitted: Fitted, sample: Batch) -> Cost:
        """What one image costs."""
        pool = fitted.pool
        inputs: dict[str, Tensor] = {key: values[None].to(pool.device) for key, values in sample.inputs.items()}
        network = pool.build().to(pool.device).eval()
        windows = pool.windows(image_size(inputs))
        of_window = network_cost(network, cut(inputs, windows[0]))
        return Cost(
            parameters=of_window["parameters"],
            flops=len(windows) * of_window["flops"],
            image_size=list(sample.target.shape),
            per_image=cost_per_image(pool, self.recipe.likelihood, inputs, fitted.draws.sizes),
            train_seconds=0.0,
        )

    def results(self, evaluated: Mapping[str, ImagesEvaluated]) -> dict[str, Any]:
        """What a run writes that only problems with images have."""
        recipe = self.recipe
        return {
            "problem": recipe.problem,
            "kind": recipe.likelihood,
            "unit": recipe.unit,
            **class_facts(self.data.classes),
            "data_versions": recipe.data.versions,
            "convention": recipe.evaluation.convention,
            "domains": {name: self.domain_facts(name, evaluated) for name in self.data.domains},
            "overlap": {name: each.overlap for name, each in evaluated.items()},
            "training": {name: each.training for name, each in evaluated.items()},
            "pictures": {name: pictures_on(name, evaluated) for name in self.data.domains},
        }

    def domain_facts(self, name: str, evaluated: Mapping[str, ImagesEvaluated]) -> DomainFacts:
        """What a reader should know of a domain before its numbers."""
        recipe, data = self.recipe, self.data.domains[name]
        source, train = recipe.data.domains[name], recipe.data.train
        shared = [each.label for each in recipe.data.domains.values()].count(source.label) > 1
        scored = next((each.domains[name] for each in evaluated.values() if name in each.domains), None)
        own = class_facts(data.classes) | {"classes": data.about} if data.groups is not None else {}
        return DomainFacts(
            label=f"{source.label} ({name})" if shared else source.label,
            role="in-domain" if source.origin == train.origin else "shifted",
            severity=source.shift,
            num_images=None if scored is None else scored.num_images,
            num_pixels=None if scored is None else scored.num_pixels,
            **own,
        )


def class_facts(classes: ClassTable | None) -> dict[str, Any]:
    """Names and colours of classes."""
    if classes is None:
        return {"class_names": None}
    return {"class_names": list(classes.names), "class_colours": list(classes.colours)}


def pictures_on(domain: str, evaluated: Mapping[str, ImagesEvaluated]) -> list[Picture]:
    """The pictures of a domain with what each method predicts."""
    pictures: dict[int, Picture] = {}
    for each in evaluated.values():
        for picture in each.domains[domain].pictures if domain in each.domains else []:
            shown = pictures.setdefault(picture.image, picture.model_copy(update={"methods": {}}))
            shown.methods.update(picture.methods)
    return list(pictures.values())


@dataclass(frozen=True)
class DomainTask:
    """The evaluation of a method on one domain."""

    experiment: ImageExperiment
    fitted: Fitted
    domain: str
    finished: list[DomainResults] = field(default_factory=list)  # once they are there, they are read once

    @property
    def data(self) -> DomainData:
        """The images, and the classes that they are scored in."""
        return self.experiment.data.domains[self.domain]

    @property
    def file(self) -> Path:
        """Where its results are kept."""
        return self.experiment.run.folder.path / "evaluation" / self.fitted.name / f"{self.domain}.json"

    @property
    def unfinished(self) -> Path:
        """Where it stands."""
        return self.file.with_suffix(UNFINISHED)

    @property
    def lock(self) -> Path:
        """Locked by the process that carries it out."""
        return self.file.with_suffix(".lock")

    @property
    def store(self) -> Path:
        """Where all predictions are stored, if that is asked for."""
        return self.experiment.run.folder.path / "predictions" / self.fitted.name / f"{self.domain}.zarr"

    @cached_property
    def key(self) -> str:
        """The fingerprint of everything that decides its numbers."""
        source = self.experiment.recipe.data.domains[self.domain]
        settings = source.model_dump(mode="json", exclude={"root", "raw_root", "title"})
        return self.fitted.fingerprint(self.experiment.recipe, settings, source.version, len(self.data.samples))

    def results(self) -> DomainResults | None:
        """What came out, if it is finished, undamaged and of the same settings."""
        if not self.finished:
            if self.experiment.recipe.evaluation.store and not self.store.exists():
                return None  # what was written of it is gone, if anything was
            if (known := read_checked(self.file, self.key, DomainResults)) is None:
                return None
            self.finished.append(known)
        return self.finished[0]

    def carry_out(self) -> None:
        """Go through all images that are left, and keep what comes out."""
        recipe, run = self.experiment.recipe, self.experiment.run
        if recipe.evaluation.store and not self.store.exists():
            self.unfinished.unlink(missing_ok=True)
        gallery, observers = self.observers()
        domain = NetworksOnImages(
            self.fitted.pool,
            self.data.samples,
            recipe.evaluation.batch_size,
            run.machine.workers,
            observers,
            None if self.data.classes is None else self.data.classes.num_classes,
            self.data.groups,
        )
        evaluation = Evaluation(domain, self.fitted.draws, self.suite_settings())
        self.evaluate(evaluation)
        for observer in observers:
            observer.close()
        values, curves = evaluation.results()
        sets, done = self.fitted.draws.sets, evaluation.done
        results = DomainResults(
            num_images=done.images,
            num_pixels=done.pixels,
            summary=summarise(sets, values),
            curves=summarise_curves(sets, curves),
            draws=per_draw(sets, values),
            pictures=gallery.pictures(self.fitted.name),
            cost=PassCost(forward_seconds=done.forward_seconds, scoring_seconds=done.scoring_seconds),
        )
        write_checked(self.file, self.key, results)
        self.unfinished.unlink(missing_ok=True)

    def observers(self) -> tuple[Gallery, list[Observer]]:
        """Who keeps pictures, and everybody who sees outputs."""
        recipe, run, draws = self.experiment.recipe, self.experiment.run, self.fitted.draws
        images = centres(len(self.data.samples), recipe.evaluation.pictures)
        gallery = Gallery(images, draws.sets[draws.of_size(draws.sizes[-1])[0]], recipe.likelihood)
        observers: list[Observer] = [gallery]
        if recipe.evaluation.store:
            size = largest_size(self.data.samples, run.machine.workers, run.reporter)
            name, domain = self.fitted.name, self.domain
            observers.append(StoreObserver(self.store, recipe, name, domain, self.fitted.pool, self.data, size))
        return gallery, observers

    def suite_settings(self) -> SuiteSettings:
        """All metrics of the kind, streamed."""
        recipe, classes = self.experiment.recipe, self.data.classes
        kind, options = recipe.likelihood, recipe.evaluation
        return SuiteSettings(
            kind,
            options.convention,
            check_uncertainty(kind, options.uncertainty),
            exact=False,
            num_images=len(self.data.samples),
            num_classes=None if classes is None else classes.num_classes,
        )

    def evaluate(self, evaluation: Evaluation) -> None:
        """Go on from what was saved, and save now and then."""
        name, total = f"{self.fitted.name} on {self.domain}", len(self.data.samples)
        self.resume(evaluation)
        pacer = Pacer()
        with self.experiment.run.reporter.step(f"evaluate {name}", total, evaluation.done.images) as advance:

            def after_shard(images: int) -> None:
                advance(images)
                if evaluation.done.images < total and pacer.due():
                    with pacer:
                        notes = {"fingerprint": self.key, **asdict(evaluation.done)}
                        save_tensors(self.unfinished, evaluation.state(), notes)

            try:
                evaluation.run(after_shard)
            except InputError:
                raise
            except ValueError as error:  # what a broken network predicts is not finite
                raise InputError(f"{name}: {error}; has a network gone astray? Look at its loss") from None
        if not evaluation.done.pixels:
            raise InputError(f"{name}: no image has a pixel whose target is known; there is nothing to evaluate")

    def resume(self, evaluation: Evaluation) -> None:
        """Go on from what was saved, if there is anything."""
        saved = load_tensors(self.unfinished, self.key)
        if saved is None:
            return
        done = Progressed(
            int(saved.number("images")),
            int(saved.number("pixels")),
            saved.number("forward_seconds"),
            saved.number("scoring_seconds"),
        )
        if not 0 < done.images < len(self.data.samples):
            raise saved.complaint(f"its 'images' is {done.images}, of {len(self.data.samples)}")
        try:
            evaluation.load_state(saved.tensors, done)
        except KeyError as error:
            raise saved.complaint(f"it lacks {error}") from None


def write_checked(file: Path, key: str, content: Cost | DomainResults) -> None:
    """Keep results with the fingerprint of what decides them, and a checksum."""
    plain = content.model_dump(mode="json")
    write_json(file, {"fingerprint": key, "checksum": fingerprint(plain), **plain})


def read_checked(file: Path, key: str, kind: type[Any]) -> Any:
    """Results that were kept; None where there are none, or they are damaged or of other settings: then made anew."""
    plain = read_json(file)
    if plain is None or plain.pop("fingerprint", None) != key or plain.pop("checksum", None) != fingerprint(plain):
        return None
    try:
        return kind.model_validate(plain)
    except ValidationError:
        return None


def check_batches(recipe: DenseRecipe) -> None:
    """Batches can be shared among devices, and are large enough for the network."""
    devices, smallest = recipe.training.devices, recipe.network.smallest_batch
    for name in recipe.methods:
        key, size = recipe.setting(name, "batch_size"), recipe.method(name).batch_size
        if size % devices:
            raise InputError(f"{key}: take a multiple of {devices}, among which a batch is shared")
        if size // devices < smallest:
            raise InputError(
                f"{key}: {recipe.network.kind} needs batches of {smallest} or more images, on each device, for its "
                f"batch norm"
            )


def check_crop_fits(recipe: DenseRecipe, sample: Batch) -> None:
    """The crop fits into a training sample at its smallest scale."""
    augment, smallest = augment_of(recipe), recipe.training.scale[0]
    replace(augment, scale=(smallest, smallest))(sample, 0)


def check_network(recipe: DenseRecipe, data: ImageData) -> None:
    """Make a network; one of the user's shall predict something for a training sample."""
    network = recipe.network.build(data.num_classes, pretrained=True).eval()
    if recipe.network.kind != "own":
        return
    if next(network.parameters(), None) is None:
        raise InputError(f"network.name: {recipe.network.name} has no parameters to be trained")
    if any(isinstance(each, UninitializedParameter) for each in network.parameters()):
        raise InputError(f"network.name: {recipe.network.name} has lazy modules; give them their sizes")
    sample = augment_of(recipe)(data.train[0], 0)
    wanted = MEAN_AND_LOG_VARIANCE if data.num_classes is None else data.num_classes
    try:
        with torch.inference_mode():
            raw = network({name: values[None] for name, values in sample.inputs.items()})
    except Exception as error:
        raise InputError(f"network.name: {recipe.network.name} fails on a sample: {error_in_words(error)}") from None
    shape = tuple(raw.shape) if isinstance(raw, Tensor) else type(raw).__name__
    if not isinstance(raw, Tensor) or raw.dim() != 4 or raw.shape[:2] != (1, wanted):
        raise InputError(
            f"network.name: {recipe.network.name} gives {shape} for one image; wanted is (1, {wanted}, rows, columns)"
        )
