"""What the page shows of dense problems: who is best where, what shift costs and members buy, pictures, cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epibench.report.class_section import class_section
from epibench.report.class_styles import class_styles
from epibench.report.cost_section import cost_section
from epibench.report.domain_pictures import DomainPictures, domain_pictures
from epibench.report.domain_verdicts import finding, metric_verdict
from epibench.report.domains import Domain, domains_of, entries_on, featured
from epibench.report.gains import member_gains, shift_costs
from epibench.report.metric_info import HEADLINES, metric_info
from epibench.report.numbers import count
from epibench.report.over_members import SCALES, over_members
from epibench.report.overlaps import overlap_warnings
from epibench.report.run_metrics import domain_section
from epibench.report.runs import Method, Run
from epibench.report.severity_charts import severity_figures
from epibench.report.switches import switch_rules
from epibench.report.training_charts import training_figures
from epibench.report.verdicts import confidence_sentence, title_with_unit


def dense_section(runs: Sequence[Run], methods: Sequence[Method], identity: str) -> dict[str, Any] | None:
    """All parts for the runs of one problem; None where no method was scored on a domain that runs describe."""
    domains = scored_domains(runs, methods)
    if not domains:
        return None
    first = featured(domains, methods)
    others = [domain for domain in domains if domain not in first]
    names = headline_names(domains, methods)
    shown, hidden = ([domain_section(domain, methods) for domain in of_them] for of_them in (first, others))
    layers = over_members(first, others, methods, names)
    books = _books(runs, methods, [*first, *others], identity)
    classes = class_section(first, others, methods)
    return {
        "headlines": _titles(names, methods, domains[0]),
        "findings": [_finding(domain, methods, names) for domain in first],
        "other_findings": [_finding(domain, methods, names) for domain in others],
        "shift": _shift(first, methods, names),
        "gains": member_gains(first, methods, names),
        "overlaps": overlap_warnings(entries_on(methods, domains[0].name)),
        "scales": SCALES,
        "layers": layers,
        "severity": severity_figures(domains, methods, names),
        "domains": sorted([*shown, *hidden], key=lambda one: domains.index(one["domain"])),
        "classes": classes,
        "shown_curves": [one for one in shown if _has_curves(one)],
        "other_curves": [one for one in hidden if _has_curves(one)],
        "books": [book for book in books if book.domain in first],
        "other_books": [book for book in books if book.domain in others],
        "cost": cost_section(methods, first, names),
        "training": training_figures(methods),
        "warnings": [*_size_warnings(runs, domains), *_class_warnings(runs, first)],
        "rules": [
            *_rules(identity, len(layers), books),
            *(switch_rules(f"{identity}-per-class", [classes.switch]) if classes else []),
        ],
    }


def scored_domains(runs: Sequence[Run], methods: Sequence[Method]) -> list[Domain]:
    """The domains that runs describe and any method was scored on."""
    return [domain for domain in domains_of(runs) if entries_on(methods, domain.name)]


def _has_curves(section: dict[str, Any]) -> bool:
    return bool(section["curves"] or section["reliability"])


def headline_names(domains: Sequence[Domain], methods: Sequence[Method]) -> list[str]:
    """The headline metrics that any method has on any of the domains."""
    entries = [entry for domain in domains for entry in entries_on(methods, domain.name)]
    present = {name for entry in entries for name in entry.metrics}
    return [name for name in HEADLINES.get(entries[0].kind, ()) if name in present] if entries else []


def _titles(names: Sequence[str], methods: Sequence[Method], domain: Domain) -> list[str]:
    return [title_with_unit(metric_info(name), entries_on(methods, domain.name)) for name in names]


def _finding(domain: Domain, methods: Sequence[Method], names: Sequence[str]) -> dict[str, Any]:
    """The answer on one domain: a sentence, a card for each metric, and how confident the methods are."""
    entries = entries_on(methods, domain.name)
    verdicts = [metric_verdict(name, entries) for name in names]
    return {
        "domain": domain,
        "size": _size(domain),
        "sentence": finding(verdicts),
        "cards": [verdict.card for verdict in verdicts],
        "confidence": [(entry, text) for entry in entries if (text := confidence_sentence(entry))],
    }


def _size(domain: Domain) -> str:
    """How much a domain was scored on, in words."""
    parts = [(domain.num_images, "images"), (domain.num_pixels, "valid pixels")]
    return ", ".join(f"{count(number)} {word}" for number, word in parts if number is not None)


def _shift(first: Sequence[Domain], methods: Sequence[Method], names: Sequence[str]) -> dict[str, Any] | None:
    """From the domain that methods were trained for to the hardest shift; None where either is missing."""
    if len(first) < 2 or not (rows := shift_costs(first[0], first[1], methods, names)):
        return None
    return {"title": f"{first[0].label} → {first[1].label}", "rows": rows}


def _books(
    runs: Sequence[Run], methods: Sequence[Method], domains: Sequence[Domain], identity: str
) -> list[DomainPictures]:
    return [
        book
        for number, run in enumerate(runs)
        for book in domain_pictures(
            run, [method for method in methods if method.run is run], domains, f"{identity}-pictures{number}"
        )
    ]


def _rules(identity: str, num_scales: int, books: Sequence[DomainPictures]) -> list[str]:
    """Style rules of the switches; one that has one option needs none."""
    rules = switch_rules(f"{identity}-scales", [SCALES]) if num_scales > 1 else []
    return rules + [rule for book in books for rule in switch_rules(book.identity, [book.switch])]


def _size_warnings(runs: Sequence[Run], domains: Sequence[Domain]) -> list[str]:
    """What speaks against comparing runs: domains of one name that are not the same data."""
    different = []
    for domain in domains:
        found = {_data_of(run, one) for run in runs for one in domains_of([run]) if one.name == domain.name}
        if len(found) > 1:
            different.append(domain.name)
    return [
        f"What is called {name} is not the same data in all runs: their numbers there cannot be compared."
        for name in different
    ]


def _data_of(run: Run, domain: Domain) -> str:
    """Which images a domain of a run has, as far as its settings and its pixels tell."""
    data = run.part("recipe").get("data")
    named = data.get("domains") if isinstance(data, dict) else None
    source = named.get(domain.name) if isinstance(named, dict) else None
    return str([source, run.part("data_versions").get(domain.name), domain.num_pixels])


def _class_warnings(runs: Sequence[Run], first: Sequence[Domain]) -> list[str]:
    """That the domain trained for and the hardest shift are not scored on the same classes."""
    warnings = []
    for run in runs:
        names = [list(class_styles(run.results, domain.name).names) for domain in first]
        if len(first) > 1 and names[0] != names[1]:
            warnings.append(
                f"{first[1].label} is scored on {len(names[1])} classes of its own, {first[0].label} on "
                f"{len(names[0])}: part of every difference between the two is due to that."
            )
    return list(dict.fromkeys(warnings))
