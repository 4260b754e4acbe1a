"""What the page shows of dense problems: who is best where, what shift costs and members buy, pictures, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from epibench.report.chart import Chart
from epibench.report.class_section import class_section, class_tables
from epibench.report.cost_section import cost_section
from epibench.report.curve_figures import curve_parts, curve_switch
from epibench.report.entries import Entry, counted_in, metric_names, overlap_warnings, title_with_unit
from epibench.report.equivalent_section import equivalent_section
from epibench.report.figures import (
    LARGE,
    SMALL,
    metric_figure,
    severity_figures,
    shift_figure,
    training_figures,
)
from epibench.report.metric_info import HEADLINES
from epibench.report.numbers import count, m_equals
from epibench.report.page import Option, Switch, switch_rules
from epibench.report.pictures.dense import ClassPanels, DepthPanels
from epibench.report.runs import (
    EvalDomain,
    Run,
    RunMethod,
    class_styles,
    domains_of,
    entries_on,
    featured,
    headline_names,
    methods_of,
    quality_names,
    scored_domains,
)
from epibench.report.tables import gain_table, metric_tables
from epibench.report.verdicts import confidence_sentence, finding, member_gains, shift_costs, verdict

SCALES = Switch("scale", "Scales", [Option("common", "common to all domains", True), Option("own", "each its own")])
MAX_IMAGES = 4
PANELS: dict[str, type[DepthPanels | ClassPanels]] = {"gaussian": DepthPanels, "categorical": ClassPanels}


def dense_section(runs: Sequence[Run], methods: Sequence[RunMethod], identity: str) -> dict[str, Any] | None:
    """All parts for the runs of one problem; None where no method was scored on a domain that runs describe."""
    domains = scored_domains(runs, methods)
    if not domains:
        return None
    entries = {domain.name: entries_on(methods, domain.name) for domain in domains}
    first = featured(domains, methods)
    others = [domain for domain in domains if domain not in first]
    everywhere = [entry for of_domain in entries.values() for entry in of_domain]
    names, switch = headline_names(everywhere), curve_switch(everywhere)
    choices = switch.options if len(runs) == 1 else []
    sections = {domain.name: domain_section(domain, entries[domain.name], choices) for domain in domains}
    shown, hidden = ([sections[domain.name] for domain in of_them] for of_them in (first, others))
    layers = over_members(first, others, entries, names)
    books = [
        book
        for number, run in enumerate(runs)
        for book in picture_books(run, methods, [*first, *others], f"{identity}-pictures{number}")
    ]
    qualities = quality_names(everywhere)
    cost = cost_section(methods, first, others, qualities)
    against = [
        [shifted_from(first[0], domain, methods, qualities) for domain in shifts_from(first[0], of_them)]
        for of_them in (first, others)
    ]
    equivalents = equivalent_section(methods, first, others)
    classes = class_section(*([(d, entries[d.name]) for d in of_them] for of_them in (first, others)))
    titles, shift = [title_with_unit(name, entries[domains[0].name]) for name in names], _shift(first, entries, names)
    gains = [(d.title, member_gains(entries[d.name], names)) for d in first]
    rules = [rule for book in books for rule in switch_rules(book["identity"], [book["switch"]])]
    rules += switch_rules(f"{identity}-scales", [SCALES]) if len(layers) > 1 else []
    rules += switch_rules(f"{identity}-per-class", [classes["switch"]]) if classes else []
    rules += switch_rules(f"{identity}-at-m", [switch]) if choices else []
    rules += switch_rules(f"{identity}-quality", [cost["switch"]]) if cost["layers"] else []
    rules += switch_rules(f"{identity}-worth", [equivalents["switch"]]) if equivalents and equivalents["layers"] else []
    return {
        "counted": counted_in(everywhere),
        "findings": [_finding(domain, entries[domain.name], names) for domain in first],
        "other_findings": [_finding(domain, entries[domain.name], names) for domain in others],
        "shift": shift and (shift["title"], gain_table("What the shift costs", titles, [("", shift["rows"])])),
        "gains": gain_table("What further members buy", titles, gains),
        "overlaps": overlap_warnings(everywhere),
        "scales": SCALES,
        "layers": layers,
        "severity": severity_figures(domains, methods, names),
        "against": against[0],
        "other_against": against[1],
        "equivalents": equivalents,
        "domains": list(sections.values()),
        "classes": classes,
        "curve_switch": switch,
        "shown_curves": [one for one in shown if one["curves"]],
        "other_curves": [one for one in hidden if one["curves"]],
        "books": [book for book in books if book["domain"] in first],
        "other_books": [book for book in books if book["domain"] in others],
        "cost": cost,
        "training": training_figures(methods),
        "warnings": [*_data_warnings(runs, domains), *_class_warnings(runs, first), *_data_notes(runs)],
        "rules": rules,
    }


def _finding(domain: EvalDomain, entries: Sequence[Entry], names: Sequence[str]) -> dict[str, Any]:
    """The answer on one domain: a sentence, a card for each metric, and how confident the methods are."""
    verdicts = [verdict(name, entries) for name in names]
    counted = counted_in(entries)
    one = "image" if counted == "pixels" else "sample"
    sizes = [(domain.num_images, one if domain.num_images == 1 else f"{one}s")]
    sizes += [] if counted == "samples" else [(domain.num_pixels, f"valid {counted}")]
    return {
        "domain": domain,
        "size": ", ".join(f"{count(number)} {word}" for number, word in sizes if number is not None),
        "sentence": finding(verdicts),
        "cards": [one.card for one in verdicts],
        "confidence": [(entry, text) for entry in entries if (text := confidence_sentence(entry))],
    }


def shift_rows(runs: Sequence[Run]) -> dict[str, Any] | None:
    """What the shift from the domain trained for to the hardest one costs each method, by headline metric."""
    methods = methods_of(runs)
    domains = scored_domains(runs, methods)
    entries = {domain.name: entries_on(methods, domain.name) for domain in domains}
    names = headline_names([entry for of_domain in entries.values() for entry in of_domain])
    shift = _shift(featured(domains, methods), entries, names)
    first = entries[domains[0].name] if domains else []
    return shift and {**shift, "headlines": [title_with_unit(name, first) for name in names]}


def _shift(
    first: Sequence[EvalDomain], entries: Mapping[str, Sequence[Entry]], names: Sequence[str]
) -> dict[str, Any] | None:
    """From the domain that methods were trained for to the hardest shift; None where either is missing."""
    if len(first) < 2:
        return None
    inside, outside = first
    rows = shift_costs(entries[inside.name], entries[outside.name], names)
    return {"title": f"{inside.label} → {outside.label}", "rows": rows} if rows else None


def shifts_from(inside: EvalDomain, domains: Sequence[EvalDomain]) -> list[EvalDomain]:
    """Of domains, those that are shifted; none where it is not known what methods were trained for."""
    return [domain for domain in domains if domain.shifted] if inside.role == "in-domain" else []


def shifted_from(
    inside: EvalDomain, outside: EvalDomain, methods: Sequence[RunMethod], names: Sequence[str]
) -> tuple[EvalDomain, list[Chart]]:
    """The score of every method on a shifted domain against that in-domain, a chart for each metric."""
    pairs = [(method.on(inside.name), method.on(outside.name)) for method in methods]
    charts = [shift_figure(name, inside, outside, pairs) for name in names]
    return outside, [chart for chart in charts if chart]


def _data_warnings(runs: Sequence[Run], domains: Sequence[EvalDomain]) -> list[str]:
    """What speaks against comparing runs: domains of one name that are not the same data, as far as runs tell."""
    warnings = []
    for domain in domains:
        data, scored = set(), any(run.stored for run in runs)  # whose number of targets is known alone
        for run in runs:
            if own := next((one for one in domains_of([run]) if one.name == domain.name), None):
                source = (run.results.recipe.get("data") or {}).get("domains", {}).get(domain.name)
                version = run.results.data_versions.get(domain.name)
                data.add(str([None if scored else [source, version], own.num_pixels]))
        if len(data) > 1:
            warnings.append(
                f"What is called {domain.name} is not the same data in all runs: their numbers there "
                "cannot be compared."
            )
    return warnings


def _data_notes(runs: Sequence[Run]) -> list[str]:
    """What runs say of their training data and of their domains."""
    notes = []
    for run in runs:
        notes += [f"Training data: {note}" for note in run.results.training_notes]
        notes += [f"{facts.label}: {note}" for facts in run.domains.values() for note in facts.notes]
    return list(dict.fromkeys(notes))


def _class_warnings(runs: Sequence[Run], first: Sequence[EvalDomain]) -> list[str]:
    """That the domain trained for and the hardest shift are not scored on the same classes."""
    warnings = []
    for run in runs:
        names = [list(class_styles(run, domain.name).names) for domain in first]
        if len(first) > 1 and names[0] != names[1]:
            warnings.append(
                f"{first[1].label} is scored on {len(names[1])} classes of its own, {first[0].label} on "
                f"{len(names[0])}: part of every difference between the two is due to that."
            )
    return list(dict.fromkeys(warnings))


def metric_section(
    title: str, entries: Sequence[Entry], choices: Sequence[Option], main: Sequence[str]
) -> dict[str, Any]:
    """Figures and tables of some entries.

    choices: the M that curves can be seen at; none for several runs, whose curves would hide one another.
    """
    names = metric_names(entries)
    first = [name for name in main if name in names]
    return {
        "title": title,
        "entries": entries,
        "main_figures": [metric_figure(name, entries, SMALL) for name in first],
        "more_figures": [metric_figure(name, entries, SMALL) for name in names if name not in first],
        "curves": curve_parts(entries, choices),
        "tables": metric_tables(entries),
    }


def domain_section(domain: EvalDomain, entries: Sequence[Entry], choices: Sequence[Option]) -> dict[str, Any]:
    """Figures and tables for a domain; the headline metrics have charts of their own."""
    section = metric_section(domain.label, entries, choices, HEADLINES[entries[0].kind])
    return {**section, "domain": domain, "classes": class_tables(entries)}


def over_members(
    first: Sequence[EvalDomain],
    others: Sequence[EvalDomain],
    entries: Mapping[str, Sequence[Entry]],
    names: Sequence[str],
) -> list[dict[str, Any]]:
    """Headline metrics over M for each choice of scales; of one domain there is one choice."""
    everywhere = [entry for of_domain in entries.values() for entry in of_domain]
    ranges = {name: _band_range(name, everywhere) for name in names}
    layers = []
    for option in SCALES.options if len(entries) > 1 else SCALES.options[:1]:
        common: Mapping[str, Sequence[float]] = ranges if option.key == "common" else {}
        rows = {}
        for domain in (*first, *others):
            charts = [metric_figure(name, entries[domain.name], LARGE, common.get(name, ())) for name in names]
            # What the metrics mean is said once.
            shown = charts if domain is first[0] else [replace(chart, meaning="") for chart in charts]
            rows[domain.name] = {"domain": domain, "figures": shown}
        halves = [[rows[domain.name] for domain in domains] for domains in (first, others)]
        layers.append({"option": option, "first": halves[0], "others": halves[1]})
    return layers


def _band_range(name: str, entries: Sequence[Entry]) -> list[float]:
    """The ends of all bands of entries with several M, where there are any: point estimates may lie far off."""
    several = [entry for entry in entries if len(entry.members) > 1] or list(entries)
    stats = [entry.stat(name, m) for entry in several for m in entry.members]
    ends = [stat.mean + sign * (stat.std or 0.0) for stat in stats if stat.mean is not None for sign in (-1, 1)]
    return [min(ends), max(ends)] if ends else []


def picture_books(
    run: Run, methods: Sequence[RunMethod], domains: Sequence[EvalDomain], identity: str
) -> list[dict[str, Any]]:
    """The pictures of a run on each domain, on scales that are common to all; empty where it has none."""
    if run.kind not in PANELS:
        return []
    shown = {domain.name: run.pictures(domain.name)[:MAX_IMAGES] for domain in domains if domain.name in run.domains}
    panels = PANELS[run.kind](run, [picture for of_domain in shown.values() for picture in of_domain])
    own = [method for method in methods if method.run is run]
    books = []
    for number, domain in enumerate(domains):
        layers: list[dict[str, Any]] = []
        for i, picture in enumerate(shown.get(domain.name, [])):
            members = ", ".join(m_equals(m) for m in sorted({one.M for one in picture.methods.values()}))
            caption = f"{domain.label}, image {picture.image}{f', predictions at {members}' if members else ''}"
            option = Option(str(i), str(picture.image), i == 0)
            layers.append({"option": option, "caption": caption, "rows": list(panels.rows(picture, own, domain))})
        if layers:
            switch = Switch("image", "Image", [layer["option"] for layer in layers])
            book = {"identity": f"{identity}-{number}", "domain": domain, "run": run}
            books.append({**book, "switch": switch, "layers": layers})
    return books
