"""Several evaluations of one run in `results.json`: the newest first, scores with other settings after it."""

from __future__ import annotations

from pathlib import Path

from epibench.errors import InputError
from epibench.files import write_text
from epibench.results import RESULTS_NAME, MethodFacts, Results, Score, load_results


def keep_results(folder: Path, results: Results) -> Results:
    """Write results.json with the scores of former evaluations that had other settings."""
    former = former_results(folder)
    if former is not None and former.problem == results.problem:
        results = with_former(results, former)
    write_text(folder / RESULTS_NAME, results.as_json())
    return results


def with_former(results: Results, former: Results) -> Results:
    """The results, followed by the scores of former results that had other settings."""
    newest = [score.settings for score in results.scores]
    kept = [score for score in former.scores if score.settings not in newest]
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
