"""Several evaluations of one run in `results.json`: the newest first, scores with other settings after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from epibench.errors import InputError
from epibench.files import DamagedError
from epibench.recipes import DenseRecipe, ToyRecipe
from epibench.recipes.settings import fixed
from epibench.results import RESULTS_NAME, DomainFacts, MethodFacts, Results, Score, load_results, picture_files

if TYPE_CHECKING:
    from epibench.runs.machine import Run


def keep_results(folder: Path, results: Results) -> Results:
    """Write results.json with the scores of former evaluations that had other settings."""
    former = former_results(folder)
    if former is not None and former.problem == results.problem:
        results = with_former(results, former)
    results.save(folder / RESULTS_NAME)
    return results


def with_former(results: Results, former: Results) -> Results:
    """The results, followed by the scores of former results that had other settings."""
    newest = [score.settings for score in results.scores]
    kept = [score for score in former.scores if score.settings not in newest]
    parts: list[DomainFacts | Score] = [*former.domains.values(), *kept]
    for part in parts:
        try:
            for file in picture_files([part]):
                file.read()
        except DamagedError:
            part.pictures = []
    methods = dict(results.methods)
    for name in dict.fromkeys(score.method for score in kept):
        own = methods.get(name, former.methods[name])
        more = [member for member in former.methods[name].members if member not in own.members]
        methods[name] = own.model_copy(update={"members": [*own.members, *more]})
    scores = [_renumbered(score, former.methods[score.method], methods[score.method]) for score in kept]
    domains = {name: former.domains[name] for name in dict.fromkeys(score.domain for score in kept)}
    domains = results.domains | {name: facts for name, facts in domains.items() if name not in results.domains}
    return results.model_copy(update={"methods": methods, "domains": domains, "scores": [*results.scores, *scores]})


def _renumbered(score: Score, before: MethodFacts, now: MethodFacts) -> Score:
    """The score with the positions of members in the new table of its method."""
    if before.members == now.members[: len(before.members)]:
        return score
    position = {number: now.members.index(member) for number, member in enumerate(before.members)}
    draws = [draw.model_copy(update={"members": [position[number] for number in draw.members]}) for draw in score.draws]
    return score.model_copy(update={"draws": draws})


def methods_left_out(folder: Path, results: Results) -> list[str]:
    """Return methods that have former scores of the same settings but are left out now.

    They are neither in the recipe nor in the new results.
    """
    former = former_results(folder)
    asked = {*results.recipe.get("methods", ()), *results.methods}
    newest = [score.settings for score in results.scores]
    replaced = [] if former is None else [score.method for score in former.scores if score.settings in newest]
    return list(dict.fromkeys(name for name in replaced if name not in asked))


def former_results(folder: Path) -> Results | None:
    """The results in a folder; None if there are none or they are damaged."""
    try:
        return load_results(folder)
    except InputError:
        return None


def finished(run: Run, evaluate_only: bool = False) -> Results | None:
    """The results of a run that was carried out with the same settings.

    evaluate_only: keep the options of evaluation in the folder's recipe.
    """
    path, recipe = run.folder.results_file, run.recipe
    try:
        results = load_results(path) if path.exists() and not path.is_dir() else None
        for file in picture_files(results.domains.values(), results.scores) if results else ():
            file.read()
    except DamagedError as error:
        run.reporter.say(f"{str(error).partition(' Fix:')[0]} It is made again.")
        return None
    if results is None or results.failed:
        return None
    if isinstance(recipe, DenseRecipe):
        if results.data_versions != recipe.data.versions:
            return None  # the street, or a class table, is another now
        if results.recipe.get("data") != recipe.model_dump(mode="json")["data"] or recipe.data.in_files:
            return None  # data may lie elsewhere, or have changed: the files of the domains decide
    elif isinstance(recipe, ToyRecipe) and recipe.data.path is not None:
        return None  # the points may have changed
    if fixed(results.recipe) != fixed(recipe.model_dump(mode="json")):
        return None
    run.folder.claim(recipe, evaluate_only)
    run.reporter.say("finished already; remove its results.json and evaluation/ to evaluate it again")
    return results
