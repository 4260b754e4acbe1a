"""`epibench score`: score stored predictions, compare several files side by side."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from epibench.cli.options import Device, at_least, make_folder, parse_sizes, resolve_device
from epibench.console import ConsoleReporter, say
from epibench.conventions import check_convention
from epibench.errors import InputError
from epibench.mirror import is_url

if TYPE_CHECKING:
    from epibench.evaluation.scoring import ScoredStore, Scorer, ScoreSettings
    from epibench.plans import Plan
    from epibench.store import PredictionStore


def score(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Stores (.zarr, .npz, or a folder of .npz), one per method."),
    ],
    members: Annotated[
        str | None, typer.Option(metavar="M,…", help="Values of M, as 1,2,4,8. Default: powers of two, and all.")
    ] = None,
    draws: Annotated[int, typer.Option(metavar="N", help="At most so many draws for each M.")] = 16,
    plan: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLAN", help="random, disjoint, prefix or spread; give it once, or once per file. Default: random."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", callback=at_least(0), help="Seed of the draws.")] = 0,
    convention: Annotated[str, typer.Option(metavar="NAME", help="pooled or gustafsson2020.")] = "pooled",
    uncertainty: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What pixels or samples are sorted by: total, aleatoric, epistemic; "
            "for classes entropy, mutual_information, confidence; for a ranking given, spread, or one of its maps. "
            "Default: the first; of a ranking every map.",
        ),
    ] = None,
    ignore_index: Annotated[
        int | None,
        typer.Option(
            metavar="LABEL",
            callback=at_least(-(2**31), 2**31 - 1),
            help="Target that means 'no label'. Default: 255, unless it is a class.",
        ),
    ] = None,
    skip_invalid: Annotated[
        bool,
        typer.Option("--skip-invalid", help="Skip pixels or samples with NaN or infinite values, and say how many."),
    ] = False,
    in_domain: Annotated[
        str | None,
        typer.Option(metavar="DOMAIN", help="The domain that methods were trained for; the others count as shifted."),
    ] = None,
    depth: Annotated[
        bool, typer.Option("--depth", help="Predictions are depths in metres: add AbsRel, δ < 1.25, SILog, iRMSE …")
    ] = False,
    device: Device = "auto",
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all results to this file.")] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a page with all curves into this folder.")
    ] = None,
) -> None:
    """Score predictions that any framework has saved, as a function of the number of members M."""
    sizes = parse_sizes(members)
    check_outputs(json, report, files)
    for file in files:
        if not is_url(file) and not Path(file).exists():
            raise InputError(f"{file}: no such file or folder; give a zarr folder or an .npz")
    plans = plan or ["random"]
    if len(plans) not in (1, len(files)):
        raise InputError(f"--plan was given {len(plans)} times for {len(files)} files: give it once, or once per file")
    from epibench.evaluation.scoring import ScoreSettings, scorers_of
    from epibench.store import open_store

    settings = ScoreSettings(
        sizes=sizes,
        max_draws=draws,
        seed=seed,
        convention=check_convention(convention),
        uncertainty=uncertainty,
        ignore_index=ignore_index,
        skip_invalid=skip_invalid,
        depth=depth,
        device=resolve_device(device),
    )
    # Every file is opened and checked before any is scored: a typing error costs seconds.
    scorers = []
    for file, each in zip(files, plans if len(plans) > 1 else plans * len(files), strict=True):
        scorers += scorers_of(open_store(file), replace(settings, plan=cast("Plan", each)), file)
    if ignore_index is not None and all(scorer.store.num_classes is None for scorer in scorers):
        raise InputError("--ignore-index is for classes; mask the targets of other predictions with 'valid'")
    if in_domain is not None:
        check_domains(in_domain, [scorer.store for scorer in scorers])
    reporter = ConsoleReporter()
    scored: list[ScoredStore] = []
    try:
        for scorer in scorers:
            scored.append(run_with_progress(scorer, reporter))
            gc.collect()  # metrics refer to themselves: their memory comes back only so
    finally:
        # What is finished is shown and written even if a later file turns out to be broken.
        if scored:
            publish(scored, settings, in_domain, json, report)


def check_domains(in_domain: str, stores: Sequence[PredictionStore]) -> None:
    """Refuse an in-domain that no store is of, stores that do not say theirs, and nothing to compare with."""
    for store in stores:
        if store.domain is None:
            raise InputError(f"{store.path}: has no attribute 'domain', which --in-domain needs; write it with one")
    domains = list(dict.fromkeys(str(store.domain) for store in stores))
    if in_domain not in domains:
        raise InputError(f"--in-domain '{in_domain}': the stores are of {', '.join(domains)}; give one of these")
    if len(domains) == 1:
        raise InputError(f"--in-domain '{in_domain}': all stores are of this domain; give one of a shifted domain, too")


def check_outputs(json: Path | None, report: Path | None, files: list[str]) -> None:
    """Refuse paths that cannot be written to before hours are spent on scoring, and those that hold predictions."""
    for target in (path.resolve() for path in (json, report) if path is not None):
        for file in files:
            if target == Path(file).resolve() or Path(file).resolve() in target.parents:
                raise InputError(f"{target}: would be written into the predictions {file}; give another path")
    if json is not None and json.is_dir():
        raise InputError(f"--json {json} is a folder: give the name of a file in it")
    if report is not None and report.exists() and not report.is_dir():
        raise InputError(f"--report {report} is a file: give a folder")
    for folder in {path for path in (json and json.parent, report) if path}:
        make_folder(folder)


def run_with_progress(scorer: Scorer, reporter: ConsoleReporter) -> ScoredStore:
    """Score one file with a bar that counts pixels or samples."""
    begun, finished = time.perf_counter(), 0
    with reporter.step(f"score {scorer.store.path}", scorer.store.num_pixels) as advance:

        def count(pixels: int) -> None:
            nonlocal finished
            finished += pixels
            advance(pixels, f"{finished / 1e6 / (time.perf_counter() - begun):.2f} M{scorer.store.counted[:-1]}/s")

        return scorer.run(count)


def publish(
    stores: list[ScoredStore], settings: ScoreSettings, in_domain: str | None, json: Path | None, report: Path | None
) -> None:
    """Write what was asked for, show the tables, then say where everything is."""
    from epibench.cli.tables import print_tables
    from epibench.evaluation.scoring import score_results
    from epibench.report import write_run_page

    content = score_results(stores, settings, in_domain)
    if json is not None:
        content.save(json)
    page = None if report is None else write_run_page([content], report / "score.html")
    print_tables(content)
    for word, path in (("results:", json), ("report: ", page)):
        if path is not None:
            say(f"{word} {path}")
