"""Carry out a recipe of a dense problem: train every network, evaluate every method on every domain, write results."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from epibench.data.loading import Samples
from epibench.data.street import StreetDataset
from epibench.errors import InputError
from epibench.evaluation.cost import cost_per_image, network_cost
from epibench.evaluation.draws import Draws, make_draws
from epibench.execution.environment import environment
from epibench.execution.evaluate_domain import evaluate_domain, stamp_of
from epibench.execution.networks import Machine, Trained, train_method
from epibench.execution.reporter import Reporter
from epibench.execution.run_folder import RunFolder
from epibench.execution.street_cache import draw_missing
from epibench.methods import Method
from epibench.methods.network_pool import NetworkPool
from epibench.recipes import changes
from epibench.recipes.dense import DenseRecipe
from epibench.results import VERSION, read_json, write_json

SHARE_OF_MEMORY = 0.3  # for the weights of members


def run_dense(recipe: DenseRecipe, folder: RunFolder, machine: Machine, reporter: Reporter) -> dict[str, Any]:
    """The whole run; what is finished is found in the folder and not done again."""
    opened = open_data(recipe)  # complains before hours are spent
    folder.claim(recipe)
    for left in folder.path.rglob(".*.safetensors.*"):  # by a process that was killed while it wrote
        left.unlink()
    begun = time.perf_counter()
    for name, samples in opened.items():
        if isinstance(samples, StreetDataset):
            draw_missing(name, samples, reporter)
    failed, found = dict[str, str](), dict[str, dict[str, Any]]()
    trained = {name: train_method(name, recipe, folder, machine, reporter) for name in recipe.methods}
    domains = {name: opened[f"data.domains.{name}"] for name in recipe.data.domains}
    for name in recipe.methods:
        try:
            found[name] = evaluate_method(name, recipe, trained[name], domains, folder, machine, reporter)
        except InputError as error:  # what other methods have done is not lost
            failed[name] = str(error)
            reporter.say(f"{name} failed: {error}")
    results = document(recipe, found, domains, machine)
    results |= {"failed": failed, "seconds": time.perf_counter() - begun}
    write_json(folder.results, results)
    return results


def open_data(recipe: DenseRecipe) -> dict[str, Samples]:
    """Training data and domains, by the settings that name them."""
    sources = {"data.train": recipe.data.train}
    sources |= {f"data.domains.{name}": source for name, source in recipe.data.domains.items()}
    return {key: source.open(recipe.task, recipe.data.places, key) for key, source in sources.items()}


def evaluate_method(
    name: str,
    recipe: DenseRecipe,
    trained: Trained,
    domains: Mapping[str, Samples],
    folder: RunFolder,
    machine: Machine,
    reporter: Reporter,
) -> dict[str, Any]:
    """What the results say of a method: every draw of it on every domain, and what it costs."""
    method = recipe.method(name)
    if trained.errors and (method.diverged == "stop" or not trained.files):
        first = next(iter(trained.errors.values()))
        raise InputError(f"{len(trained.errors)} of {method.num_trained} networks failed: {first}")
    pool = make_pool(name, recipe, trained, machine)
    draws = draws_of(name, recipe, method, pool, trained)
    notes = [] if not trained.errors else [f"{len(trained.errors)} of {method.num_trained} diverged and are left out."]
    scored = {
        domain: evaluate_domain(name, domain, recipe, pool, draws, samples, folder, machine, reporter)
        for domain, samples in domains.items()
    }
    return {
        "facts": {
            "label": recipe.label(name),
            "method": method.name,
            "num_networks": len(trained.files),
            "num_members": pool.num_members,
            "num_groups": None if pool.group is None else len(set(pool.group)),
            "plan": pool.plan,
            "notes": notes,
        },
        "domains": scored,
        "overlap": {str(size): draws.overlap(size) for size in draws.sizes},
        "training": trained.logs,
        "cost": measure_cost(name, recipe, pool, draws, trained, domains, scored, folder, reporter),
    }


def make_pool(name: str, recipe: DenseRecipe, trained: Trained, machine: Machine) -> NetworkPool:
    """The members of a method's trained networks."""
    method = recipe.method(name)
    files = {each.network: each for each in trained.files}
    roll = method.roll(sorted(files))
    size = sum(each.numel() * each.element_size() for each in recipe.builder().parameters())
    return NetworkPool(
        kind=recipe.likelihood,
        build=recipe.builder,
        load=lambda member: files[member.network].load_weights(member.snapshot),
        roll=roll,
        seed=recipe.seed,
        method=method.name,
        rate=method.dropout,
        resident=max(1, int(SHARE_OF_MEMORY * memory(machine.device) / size)),
        device=machine.device,
        precision=torch.bfloat16 if recipe.evaluation.precision == "bf16-mixed" else torch.float32,
    )


def memory(device: torch.device) -> int:
    """Bytes that the device has."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def draws_of(name: str, recipe: DenseRecipe, method: Method, pool: NetworkPool, trained: Trained) -> Draws:
    """The draws that are evaluated."""
    try:
        return make_draws(
            pool.num_members,
            (1,) if method.single else recipe.members,
            plan=pool.plan,
            max_draws=lambda size: method.max_draws(size, recipe.draws),
            seed=recipe.seed,
            group=pool.group,
        )
    except InputError as error:
        lost = f"{len(trained.errors)} of {method.num_trained} networks diverged; " if trained.errors else ""
        raise InputError(f"{name}: {lost}{error}") from None


def measure_cost(
    name: str,
    recipe: DenseRecipe,
    pool: NetworkPool,
    draws: Draws,
    trained: Trained,
    domains: Mapping[str, Samples],
    scored: Mapping[str, dict[str, Any]],
    folder: RunFolder,
    reporter: Reporter,
) -> dict[str, Any]:
    """Parameters, FLOPs, time and memory of one image of the first domain; found in the folder if it was measured."""
    place = folder.path / "evaluation" / f"{name}.cost.json"
    known = read_json(place)
    if known is None or known.get("stamp") != stamp_of(recipe, draws):
        sample = next(iter(domains.values()))[0]
        inputs: dict[str, Tensor] = {key: values[None].to(pool.device) for key, values in sample.inputs.items()}
        network = recipe.builder().to(pool.device).eval()
        with reporter.step(f"measure the cost of {name}", 1) as advance:
            known = {
                "stamp": stamp_of(recipe, draws),
                **network_cost(network, inputs),
                "image_size": list(sample.target.shape),
                "per_image": cost_per_image(pool, recipe.likelihood, inputs, draws.sizes),
            }
            advance(1)
        write_json(place, known)
    cost = {key: value for key, value in known.items() if key != "stamp"}
    evaluation = {domain: found["cost"] for domain, found in scored.items()}
    return {**cost, "train_seconds": trained.seconds, "evaluation": evaluation}


def document(
    recipe: DenseRecipe, found: Mapping[str, dict[str, Any]], domains: Mapping[str, Samples], machine: Machine
) -> dict[str, Any]:
    """The results of a run as plain data."""

    def of_domains(part: str) -> dict[str, Any]:
        return {name: {domain: each[part] for domain, each in one["domains"].items()} for name, one in found.items()}

    return {
        "version": VERSION,
        **environment(machine.device),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "recipe": recipe.model_dump(mode="json"),
        "changes": changes(recipe),
        "problem": recipe.problem,
        "kind": recipe.likelihood,
        "unit": recipe.unit,
        "class_names": None,
        "convention": recipe.evaluation.convention,
        "domains": {name: domain_facts(recipe, name, found) for name in domains},
        "methods": {name: one["facts"] for name, one in found.items()},
        "summary": of_domains("summary"),
        "curves": of_domains("curves"),
        "draws": of_domains("draws"),
        "overlap": {name: one["overlap"] for name, one in found.items()},
        "training": {name: one["training"] for name, one in found.items()},
        "pictures": {domain: pictures_of(domain, found) for domain in domains},
        "cost": {name: one["cost"] for name, one in found.items()},
    }


def domain_facts(recipe: DenseRecipe, name: str, found: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """What a reader should know of a domain before its numbers."""
    source, train = recipe.data.domains[name], recipe.data.train
    shared = [each.label for each in recipe.data.domains.values()].count(source.label) > 1
    seen: dict[str, Any] = next((one["domains"][name] for one in found.values()), {})
    return {
        "label": f"{source.label} ({name})" if shared else source.label,
        "role": "in-domain" if source.label == train.label else "shifted",
        "severity": source.shift,
        "num_images": seen.get("num_images"),
        "num_pixels": seen.get("num_pixels"),
    }


def pictures_of(domain: str, found: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The pictures of a domain with what each method predicts."""
    pictures: dict[int, dict[str, Any]] = {}
    predicted = ("M", "mean", "std")
    for name, one in found.items():
        for each in one["domains"][domain]["pictures"]:
            shown = pictures.setdefault(each["image"], {k: v for k, v in each.items() if k not in predicted})
            shown.setdefault("methods", {})[name] = {key: each[key] for key in predicted}
    return list(pictures.values())
