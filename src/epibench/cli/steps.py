"""What the commands that carry a recipe out have in common: `run`, `train`, `evaluate`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epibench import devices, mirror
from epibench.cli.options import at_least
from epibench.console import ConsoleReporter
from epibench.errors import InputError
from epibench.files import DamagedError

if TYPE_CHECKING:
    from epibench.recipes import Recipe
    from epibench.results import Results
    from epibench.runs.machine import Run


def check_executor(name: str) -> str:
    """Refuse words that name no executor, without torch."""

    return devices.check_executor(name, "--executor")


RecipeOrRun = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A recipe (see epibench recipes), a recipe file (.json), or the folder of a run."
    ),
]
Out = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="The folder of the run, or a URL as s3://BUCKET/RUN. Default: runs/RECIPE, or the folder that was given.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        callback=at_least(1),
        help="Large networks trained at once, with Ray on each GPU. Default: one per core, or one on a GPU.",
    ),
]
ExecutorName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        callback=check_executor,
        help="Who does the work: local, or ray for the nodes of a Ray cluster.",
    ),
]


def local_folder(text: str, report: bool = False) -> Path:
    """A folder; of a URL the one that mirrors it, with what is there. report: only what a page is made of."""
    if not mirror.is_url(text):
        return Path(text)
    from epibench.data.source import default_cache

    folder = mirror.open_mirror(text, default_cache(), (lambda name: name.endswith(".json")) if report else bool)
    ConsoleReporter().say(f"{text} is mirrored in {folder}")
    return folder


def local_recipe(given: str) -> str:
    """A recipe or a run as it was given; of a URL the folder that mirrors it."""
    return str(local_folder(given)) if mirror.is_url(given) else given


def folder_of(given: str, recipe: Recipe, out: str | None) -> Path:
    """Where a run is: as it is said, or where it is by default."""
    from epibench.recipes import default_folder

    return local_folder(out) if out is not None else default_folder(given, recipe)


@contextmanager
def opened_run(
    recipe: Recipe, folder: Path, device: str, jobs: int | None = None, executor: str = "local"
) -> Iterator[Run]:
    """The run of a recipe in a folder, on a device, by an executor; says what and where it is."""
    reporter = ConsoleReporter()
    reporter.say(f"{recipe.name} in {folder}")
    mirror.check_writable()
    from epibench.runs.machine import open_run

    with open_run(recipe, folder, reporter, device, jobs, executor, "--device") as opened:
        yield opened


def finished(run: Run, evaluate_only: bool = False) -> Results | None:
    """The results of a run that has been carried out with these very settings.

    evaluate_only: keep the options of evaluation that the folder's recipe has.
    """
    from epibench.results import load_results

    path = run.folder.results_file
    try:
        results = load_results(path) if path.exists() and not path.is_dir() else None
    except DamagedError:
        run.reporter.say(f"{path}: damaged, its checksum does not fit what it holds; it is made anew")
        return None
    if results is None or results.failed or not belongs(results, run.recipe):
        return None
    run.folder.claim(run.recipe, evaluate_only)
    run.reporter.say("finished already; remove its results.json and evaluation/ to evaluate it again")
    return results


def belongs(results: Results, recipe: Recipe) -> bool:
    """Whether results are those of a recipe."""
    from epibench.recipes import DenseRecipe
    from epibench.recipes.settings import fixed

    if isinstance(recipe, DenseRecipe):
        if results.data_versions != recipe.data.versions:
            return False  # the street, or a class table, is another now
        if results.recipe.get("data") != recipe.model_dump(mode="json")["data"] or recipe.data.in_files:
            return False  # data may lie elsewhere, or have changed: the files of the domains decide
    return fixed(results.recipe) == fixed(recipe.model_dump(mode="json"))


def with_domains(recipe: Recipe, given: Sequence[str]) -> Recipe:
    """The recipe with further domains, as `--on` names them; a name that it has must be of the same data."""
    from epibench.data.named import parse_domains
    from epibench.recipes import DenseRecipe, apply_settings

    if not given:
        return recipe
    if not isinstance(recipe, DenseRecipe):
        raise InputError(f"--on {given[0]}: a run of {recipe.problem} has no images to evaluate on; leave it out")
    for domain in parse_domains(given):
        if domain.role is not None:
            raise InputError(
                f"--on {domain.name}: where a run was trained decides what is in-domain; leave role out, or name where "
                f"images come from (distribution=WORD of folder and own)"
            )
        source = from_here(domain.source, recipe.data.root)
        found = apply_settings(recipe, [f"data.domains.{domain.name}={json.dumps(source)}"])
        before = recipe.data.domains.get(domain.name)
        if before is not None and before != found.data.domains[domain.name]:
            raise InputError(
                f"--on {domain.name}: the run has another domain of that name ({before.label}); give another name"
            )
        recipe = found
    return recipe


def from_here(source: dict[str, Any], data_root: str | None) -> dict[str, Any]:
    """The settings of a source whose folder is not below the run's data, but here, where the command is given."""
    root = Path(str(source.get("root", "."))).expanduser()
    if data_root is None or "root" not in source or (Path(data_root).expanduser() / root).exists() or not root.exists():
        return source
    return {**source, "root": str(root.resolve())}
