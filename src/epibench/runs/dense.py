"""Carry out a recipe of a dense problem: train every network, evaluate every method on every domain, write results."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from epibench.data.classes import ClassTable
from epibench.data.batch import Samples
from epibench.errors import InputError
from epibench.evaluation.cost import cost_per_image, network_cost
from epibench.members.draws import make_draws
from epibench.runs.check_recipe import check_possible
from epibench.runs.class_weights import prepare_weights
from epibench.runs.dense_data import draw_scenes, open_data
from epibench.runs.dense_run import DenseRun, Machine
from epibench.runs.evaluate_domain import Fitted, evaluate_domain
from epibench.runs.heading import heading, method_facts
from epibench.runs.reporter import Reporter
from epibench.runs.run_folder import RunFolder
from epibench.runs.train_method import Trained, train_method
from epibench.members.networks import NetworkPool, cut, image_size
from epibench.recipes.dense import DenseRecipe
from epibench.files import read_json, write_json, write_text
from epibench.results import DomainResults, Picture, RunResults

SHARE_OF_MEMORY = 0.3  # for the weights of members


@dataclass(frozen=True)
class Evaluated:
    """What a run found out about one method, by domain where it differs between them."""

    facts: dict[str, Any]
    domains: dict[str, DomainResults]
    overlap: dict[str, Any]
    training: list[dict[str, Any]]
    cost: dict[str, Any]


def run_dense(recipe: DenseRecipe, folder: RunFolder, machine: Machine, reporter: Reporter) -> RunResults:
    """The whole run; what is finished is found in the folder and not done again."""
    data = open_data(recipe)
    check_possible(recipe, data)  # complains before hours are spent
    folder.claim(recipe)
    folder.clean()
    begun = time.perf_counter()
    draw_scenes(data, reporter)
    for name, domain in data.domains.items():
        if domain.about is not None:
            reporter.say(f"{name}: {domain.about}")
    run = DenseRun(recipe, folder, machine, reporter, data)
    prepare_weights(recipe, folder.path, run.data.train, machine.workers, reporter)
    failed, trained, found = dict[str, str](), dict[str, Trained](), dict[str, Evaluated]()
    for name in recipe.methods:
        try:
            trained[name] = train_method(run, name)
        except InputError as error:  # what other methods have done is not lost
            fail(run, failed, name, error)
    for name in trained:
        try:
            found[name] = evaluate_method(run, name, trained[name], failed)
        except InputError as error:
            fail(run, failed, name, error)
    results = RunResults(**document(run, found), failed=failed, seconds=time.perf_counter() - begun)
    write_text(folder.results, results.model_dump_json(indent=1) + "\n")
    return results


def fail(run: DenseRun, failed: dict[str, str], what: str, error: InputError) -> None:
    """Note what has failed, and say so."""
    failed[what] = str(error)
    run.reporter.say(f"{what} failed: {error}")


def evaluate_method(run: DenseRun, name: str, trained: Trained, failed: dict[str, str]) -> Evaluated:
    """Every draw of a method on every domain, and what it costs; a domain that fails leaves the others."""
    method = run.recipe.method(name)
    if trained.diverged and (method.diverged == "stop" or not trained.files):
        raise InputError(f"{len(trained.diverged)} of {method.num_trained} networks failed: {trained.diverged[0]}")
    fitted = fit(run, name, trained)
    scored, broken = dict[str, DomainResults](), dict[str, str]()
    for domain in run.data.domains:
        try:
            scored[domain] = evaluate_domain(run, fitted, domain)
        except InputError as error:
            fail(run, broken, f"{name} on {domain}", error)
    if not scored:
        raise InputError(next(iter(broken.values())))
    failed |= broken
    return Evaluated(
        facts=method_facts(run.recipe, name, len(trained.files), fitted.pool, notes_on(run, fitted)),
        domains=scored,
        overlap={str(size): fitted.draws.overlap(size) for size in fitted.draws.sizes},
        training=trained.logs,
        cost={
            **measure_cost(run, fitted, next(iter(run.data.domains.values())).samples),
            "train_seconds": trained.seconds,
            "evaluation": {domain: each.cost for domain, each in scored.items()},
        },
    )


def fit(run: DenseRun, name: str, trained: Trained) -> Fitted:
    """The members of a method's trained networks, and the draws from them."""
    recipe, method = run.recipe, run.recipe.method(name)
    files = {each.network: each for each in trained.files}
    build = recipe.builder(run.data.num_classes)
    size = sum(each.numel() * each.element_size() for each in build().parameters())
    pool = NetworkPool(
        kind=recipe.likelihood,
        build=build,
        load=lambda member: files[member.network].load_weights(member.snapshot),
        roll=method.roll(sorted(files)),
        seed=recipe.seed,
        method=method.name,
        rate=method.dropout,
        resident=max(1, int(SHARE_OF_MEMORY * run.machine.memory / size)),
        device=run.machine.device,
        precision=torch.bfloat16 if recipe.evaluation.precision == "bf16-mixed" else torch.float32,
        window=recipe.evaluation.window,
        overlap=recipe.evaluation.overlap,
    )
    try:
        draws = make_draws(
            pool.num_members,
            (1,) if method.single else recipe.members,
            plan=pool.plan,
            max_draws=lambda size: method.max_draws(size, recipe.draws),
            seed=recipe.seed,
            group=pool.group,
        )
    except InputError as error:
        lost = f"{len(trained.diverged)} of {method.num_trained} networks diverged; " if trained.diverged else ""
        raise InputError(f"{name}: {lost}{error}") from None
    return Fitted(name, trained, pool, draws)


def notes_on(run: DenseRun, fitted: Fitted) -> list[str]:
    """What is to be said about a method's numbers."""
    recipe, method, group = run.recipe, run.recipe.method(fitted.name), fitted.pool.group
    groups, drawn = len(set(group or ())), len(fitted.draws.of_size(fitted.draws.sizes[0]))
    notes = []
    if fitted.trained.diverged:
        notes.append(f"{len(fitted.trained.diverged)} of {method.num_trained} diverged and are left out.")
    if drawn < groups:
        notes.append(f"Only {drawn} of {groups} networks or chains are drawn from: `draws` is {recipe.draws}.")
    if recipe.evaluation.convention == "gustafsson2020":
        notes.append("Ties count with their mean, not in input order: there are too many pixels to keep them all.")
    return notes


def measure_cost(run: DenseRun, fitted: Fitted, samples: Samples) -> dict[str, Any]:
    """Parameters, FLOPs, time and memory of one image of a domain; found in the folder if it was measured."""
    recipe, pool = run.recipe, fitted.pool
    place, stamp = run.folder.path / "evaluation" / f"{fitted.name}.cost.json", fitted.stamp(recipe)
    known = read_json(place)
    if known is None or known.get("stamp") != stamp:
        sample = samples[0]
        inputs: dict[str, Tensor] = {key: values[None].to(pool.device) for key, values in sample.inputs.items()}
        network = pool.build().to(pool.device).eval()
        windows = pool.windows(image_size(inputs))
        cost = network_cost(network, cut(inputs, windows[0]))
        with run.reporter.step(f"measure the cost of {fitted.name}", 1) as advance:
            known = {
                "stamp": stamp,
                **cost,
                "flops": len(windows) * cost["flops"],
                "image_size": list(sample.target.shape),
                "per_image": cost_per_image(pool, recipe.likelihood, inputs, fitted.draws.sizes),
            }
            advance(1)
        write_json(place, known)
    return {key: value for key, value in known.items() if key != "stamp"}


def document(run: DenseRun, found: Mapping[str, Evaluated]) -> dict[str, Any]:
    """The results of a run as plain data."""
    recipe = run.recipe

    def of_domains(part: str) -> dict[str, Any]:
        return {name: {domain: getattr(each, part) for domain, each in one.domains.items()} for name, one in found.items()}

    return {
        **heading(recipe, run.machine.device),
        "problem": recipe.problem,
        "data_versions": recipe.data.versions,
        "kind": recipe.likelihood,
        "unit": recipe.unit,
        **class_facts(run.data.classes),
        "convention": recipe.evaluation.convention,
        "domains": {name: domain_facts(run, name, found) for name in run.data.domains},
        "methods": {name: one.facts for name, one in found.items()},
        "summary": of_domains("summary"),
        "curves": of_domains("curves"),
        "draws": of_domains("draws"),
        "overlap": {name: one.overlap for name, one in found.items()},
        "training": {name: one.training for name, one in found.items()},
        "pictures": {domain: pictures_of(domain, found) for domain in run.data.domains},
        "cost": {name: one.cost for name, one in found.items()},
    }


def class_facts(classes: ClassTable | None) -> dict[str, Any]:
    """Names and colours of classes."""
    if classes is None:
        return {"class_names": None}
    return {"class_names": list(classes.names), "class_colours": [list(colour) for colour in classes.colours]}


def domain_facts(run: DenseRun, name: str, found: Mapping[str, Evaluated]) -> dict[str, Any]:
    """What a reader should know of a domain before its numbers."""
    recipe, data = run.recipe, run.data.domains[name]
    source, train = recipe.data.domains[name], recipe.data.train
    shared = [each.label for each in recipe.data.domains.values()].count(source.label) > 1
    seen = next((one.domains[name] for one in found.values() if name in one.domains), None)
    return {
        "label": f"{source.label} ({name})" if shared else source.label,
        "role": "in-domain" if source.origin == train.origin else "shifted",
        "severity": source.shift,
        "num_images": None if seen is None else seen.num_images,
        "num_pixels": None if seen is None else seen.num_pixels,
        **(class_facts(data.classes) | {"classes": data.about} if data.groups is not None else {}),
    }


def pictures_of(domain: str, found: Mapping[str, Evaluated]) -> list[Picture]:
    """The pictures of a domain with what each method predicts."""
    pictures: dict[int, Picture] = {}
    for one in found.values():
        for each in one.domains[domain].pictures if domain in one.domains else []:
            shown = pictures.setdefault(each.image, each.model_copy(update={"methods": {}}))
            shown.methods.update(each.methods)
    return list(pictures.values())
