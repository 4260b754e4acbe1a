"""A run on images: its data, its members and its domains."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from epibench.data.batch import notes_on
from epibench.data.named import Role
from epibench.data.source import Follow
from epibench.devices import resolve_precision
from epibench.errors import InputError
from epibench.files import read_json, write_json
from epibench.members.compiled import Speed
from epibench.members.draws import Draws
from epibench.members.networks import NetworkPool
from epibench.methods.contract import Method
from epibench.mirror import current
from epibench.recipes import RECIPES
from epibench.recipes.dense import DenseRecipe, EvaluationOptions
from epibench.runs.checks import FEW_FRAMES, STEPS, Check, RunStep, further_checks, image_checks, needed_to
from epibench.runs.class_weights import prepare_weights
from epibench.runs.disk import check_disk
from epibench.runs.domains import ImageData, draw_scenes
from epibench.runs.image_evaluation import (
    DrawnMethod,
    EvaluationDomain,
    ImageEvaluation,
    dtype_of,
)
from epibench.runs.machine import Run
from epibench.runs.method_results import MethodResults, draws_of, method_facts
from epibench.runs.train import Trained


@dataclass(frozen=True)
class ImageExperiment:
    """The data of a run on images, and the evaluation of its methods."""

    in_stretches: ClassVar[bool] = True

    run: Run

    @property
    def recipe(self) -> DenseRecipe:
        """The run's recipe."""
        assert isinstance(self.run.recipe, DenseRecipe)
        return self.run.recipe

    @cached_property
    def data(self) -> ImageData:
        """The data sets of the recipe."""
        return ImageData(self.recipe)

    def checks(self) -> list[Check]:
        """Return the checks that every run needs."""
        return image_checks(self.data)

    def all_checks(self, every: bool, follow: Follow) -> list[Check]:
        """Return the checks of `epibench data check`.

        Args:
            every: Whether to open all frames, not some.
            follow: Shows the progress over frames.
        """
        checks = image_checks(self.data, None if every else FEW_FRAMES, follow)
        further = further_checks(self.recipe, self.run.folder, self.data)
        return [*checks, *further, Check("disk", partial(check_disk, self.run, self.data, STEPS))]

    def check_room(self, steps: Sequence[RunStep]) -> None:
        """Raise an InputError if the disk is too small for the files of these steps."""
        if self.recipe.evaluation.store and current() is not None:
            raise InputError("evaluation.store: predictions are kept in a local folder alone; give one as --out")
        check_disk(self.run, self.data, steps)

    def prepare(self, steps: Sequence[RunStep]) -> None:
        """Render missing scenes, report notes and classes, and before training count the classes."""
        run, data = self.run, self.data
        needed = [key for key in data.sources if needed_to(key) in steps]
        draw_scenes(data, needed, run.reporter)
        for key in needed:
            for note in notes_on(data.samples(key)):
                run.reporter.say(f"{key}: {note}")
        for name, domain in data.domains.items() if "evaluate" in steps else ():
            if domain.about is not None:
                run.reporter.say(f"{name}: {domain.about}")
        if "train" in steps:
            self.keep_training_notes(notes_on(data.train))
            prepare_weights(self.recipe, run.folder.members, data.train, run.machine.workers, run.reporter)

    @property
    def training_notes_file(self) -> Path:
        """The file of the notes on the training data, so that networks can be evaluated without that data."""
        return self.run.folder.members / "training_notes.json"

    @property
    def training_notes(self) -> list[str]:
        """The notes on the networks' training data."""
        return list((read_json(self.training_notes_file) or {}).get("notes", []))

    def keep_training_notes(self, notes: list[str]) -> None:
        """Write the notes; raise an InputError if networks were trained with other absent images."""
        known = self.training_notes
        begun = bool(known) or any(self.run.folder.members.glob("*/*.safetensors"))
        if begun and known != notes:
            raise InputError(
                f"data.train: its images are not those of the first training in {self.run.folder.path} "
                f"({' '.join(known) or 'which lacked none'}). Fix: restore them, or give another --out"
            )
        if notes:
            write_json(self.training_notes_file, {"notes": notes})

    def evaluate(self, name: str, trained: Trained, failed: dict[str, str]) -> MethodResults:
        """Return a method's scores on every domain and its cost. A failed domain does not stop the others."""
        return self.evaluation.evaluate(self.drawn_if_enough(name, trained, failed), failed)

    def drawn_if_enough(self, name: str, trained: Trained, failed: Collection[str] = ()) -> DrawnMethod:
        """Return a method's members and draws.

        Args:
            name: Name of the method.
            trained: Its trained networks.
            failed: Names of failed methods, to report the cause of the failure once.

        Raises:
            InputError: No network can be used, or a network failed and the method's `diverged` is `stop`.
        """
        method, number = trained.method, len(trained.diverged)
        if trained.diverged and (method.diverged == "stop" or not trained.networks):
            same = method.source in failed and trained.without_source == number
            why = f"they start from those of {method.source}" if same else trained.diverged[0]
            raise InputError(f"{number} of {method.num_trained} networks failed: {why}")
        return self.drawn(name, trained)

    @cached_property
    def options(self) -> EvaluationOptions:
        """The evaluation options on this machine: with `auto` resolved, and without CUDA graphs on a CPU."""
        options, device = self.recipe.evaluation, self.run.machine.device
        graphs = options.cuda_graphs and device.type == "cuda"
        precision = resolve_precision(options.precision, device.type)
        return options.model_copy(update={"cuda_graphs": graphs, "precision": precision})

    @cached_property
    def evaluation(self) -> ImageEvaluation:
        """The evaluation of members on the recipe's domains."""
        run, recipe = self.run, self.recipe
        domains = {name: self.evaluation_domain(name) for name in self.data.domains}
        machine = (run.folder, run.machine, run.reporter)
        return ImageEvaluation(*machine, recipe.likelihood, recipe.unit, self.options, domains)

    def evaluation_domain(self, name: str) -> EvaluationDomain:
        """Return a domain. A domain with the origin of the training data is in-domain."""
        data, source = self.data.domains[name], self.recipe.data.domains[name]
        settings = source.model_dump(mode="json", exclude={"root", "raw_root", "title"})
        role: Role = "in-domain" if source.origin == self.recipe.data.train.origin else "shifted"
        identity = [settings, source.version, len(data.samples), *notes_on(data.samples)]
        in_files = getattr(source, "root", None) is not None
        return EvaluationDomain(data, self.domain_label(name), role, identity, source.shift, in_files=in_files)

    def domain_label(self, name: str) -> str:
        """Return the name of a domain on pages.

        It is the domain's label, or the user's name for data that the shipped recipe lacks.
        """
        source, ours = self.recipe.data.domains[name], RECIPES.get(self.recipe.name)
        before = ours.data.domains.get(name) if isinstance(ours, DenseRecipe) else None
        of_recipe = before is not None and before.kind == source.kind
        return source.label if of_recipe or getattr(source, "title", None) else name

    def drawn(self, name: str, trained: Trained, share: float = 1.0) -> DrawnMethod:
        """Return the members of a method's trained networks, and the draws from them.

        Args:
            name: Name of the method.
            trained: Its trained networks.
            share: Share of the memory for weights.
        """
        recipe, machine, method = self.recipe, self.run.machine, trained.method
        options = self.options
        pool = NetworkPool(
            kind=recipe.likelihood,
            table=method.members(trained.networks),
            build=recipe.builder(self.data.num_classes, method=name),
            load=trained.weights,
            seed=recipe.seed,
            method=method.name,
            rate=method.dropout,
            shared_stages=method.shared_stages,
            pruned=method.source is not None,
            device=machine.make_current(),
            precision=dtype_of(options),
            window=options.window,
            overlap=options.overlap,
            views=method.member_views,
            speed=Speed("inductor" if options.compile else None, options.cuda_graphs and machine.here.type == "cuda"),
            # A method that computes members may start its own processes; plain files can be read in parallel.
            loaded_at_once=machine.workers if type(method).weights is Method.weights else 1,
        )
        pool.keep_within(share * machine.memory_for_weights)
        try:
            draws = draws_of(recipe, name, pool)
        except InputError as error:
            lost = f"{len(trained.diverged)} of {method.num_trained} networks diverged; " if trained.diverged else ""
            raise InputError(f"{name}: {lost}{error}") from None
        facts = method_facts(recipe, name, len(trained.networks), pool, self.notes_on(trained, pool, draws))
        # Any option may decide the weights of a member, also options without effect on training.
        decided = method.model_dump(mode="json", exclude={"diverged"})
        return DrawnMethod(
            name,
            facts,
            len(trained.networks),
            pool,
            draws,
            weights=trained.fingerprints,
            options=decided,
            train_seconds=trained.seconds,
            training=trained.logs,
            depth=recipe.task == "depth",
            train_steps=sum(map(recipe.training_steps, (name, *recipe.sources(name)))),
        )

    def notes_on(self, trained: Trained, pool: NetworkPool, draws: Draws) -> list[str]:
        """Return the notes on a method's scores."""
        recipe, method = self.recipe, trained.method
        groups, drawn = len(set(pool.group or ())), len(draws.of_size(draws.sizes[0]))
        notes = []
        if trained.diverged:
            notes.append(f"{len(trained.diverged)} of {method.num_trained} diverged and are left out.")
        if drawn < groups:
            notes.append(f"Only {drawn} of {groups} networks or chains are drawn from: `draws` is {recipe.draws}.")
        if recipe.evaluation.convention == "gustafsson2020" and recipe.likelihood == "categorical":
            notes.append("AUSE uses 0·log 0 = 0. The published code has NaN there, which ranks as most uncertain.")
        return notes

    def results(self, evaluated: Mapping[str, MethodResults]) -> dict[str, Any]:
        """Return the part of results that only problems with images have."""
        return {
            "problem": self.recipe.problem,
            "data_versions": self.recipe.data.versions,
            "training_notes": self.training_notes,
            "convention": self.recipe.evaluation.convention,
            "domains": self.evaluation.domain_facts(evaluated.values()),
        }
