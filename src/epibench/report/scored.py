"""Scored files as runs, so that pages show them beside runs, and their domains as in-domain or shifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from epibench.report.entries import distinct_labels
from epibench.results import DomainFacts, FileResults, MethodFacts, Picture, RunResults, ScoreResults

NO_DOMAIN = "no domain given"


def as_runs(
    results: ScoreResults, name: str = "scored predictions", beside: Sequence[RunResults] = ()
) -> list[RunResults]:
    """The files of one kind, unit and way of counting as one run: a method for each label, on every domain.

    beside: runs on the same page. Files become part of the one problem that has the same kind and unit, where there is
    one, and their domains are those of its runs that have the same name or label.
    """
    groups: dict[tuple[Any, ...], list[FileResults]] = {}
    for file in results.files:
        groups.setdefault((file.kind, file.unit, file.counted), []).append(file)
    return [_as_run(results, files, name, _alike(files[0], beside)) for files in groups.values()]


def _alike(file: FileResults, beside: Sequence[RunResults]) -> list[RunResults]:
    """The runs that a file can be compared with: none where they are of several problems."""
    alike = [
        run
        for run in beside
        if run.domains and (run.kind, run.unit, run.counted) == (file.kind, file.unit, file.counted)
    ]
    return alike if len({run.problem for run in alike}) == 1 else []


def _as_run(results: ScoreResults, files: Sequence[FileResults], name: str, beside: Sequence[RunResults]) -> RunResults:
    first, known = files[0], _known_domains(beside)
    domains: dict[str, FileResults] = {}
    for file in files:
        domains.setdefault(file.domain or NO_DOMAIN, file)
    # What methods were trained for comes first.
    ordered = sorted(domains, key=lambda domain: domain != results.in_domain)
    names = {domain: known.get(domain, (domain, None))[0] for domain in ordered}
    methods: dict[str, dict[str, FileResults]] = {}
    for domain in ordered:
        there = [file for file in files if (file.domain or NO_DOMAIN) == domain]
        for file, label in zip(there, distinct_labels(there), strict=True):
            methods.setdefault(label, {})[names[domain]] = file
    return RunResults(
        epibench=results.epibench,
        torch=results.torch,
        python="",
        commit=None,
        device="",
        created="",
        recipe={"name": name, "scored": results.settings},
        changes=[],
        problem=beside[0].problem if beside else f"scored-{first.kind}",
        kind=first.kind,
        methods={label: _method_facts(label, on) for label, on in methods.items()},
        summary={label: {domain: file.summary for domain, file in on.items()} for label, on in methods.items()},
        curves={label: {domain: file.curves for domain, file in on.items()} for label, on in methods.items()},
        draws={label: {domain: list(file.draws) for domain, file in on.items()} for label, on in methods.items()},
        pictures={names[domain]: _pictures_on(names[domain], methods) for domain in ordered},
        cost={},
        seconds=0.0,
        convention=results.convention,
        unit=first.unit,
        counted=first.counted,
        class_names=first.class_names,
        domains={names[domain]: _domain_facts(domain, domains[domain], results, known) for domain in ordered},
        overlap={label: next(iter(on.values())).overlap for label, on in methods.items()},
    )


def _pictures_on(domain: str, methods: Mapping[str, Mapping[str, FileResults]]) -> list[Picture]:
    """The pictures of a domain with what each method predicts, of images that all files show alike."""
    pictures: dict[tuple[int, int, int], Picture] = {}
    for label, on in methods.items():
        for picture in on[domain].pictures if domain in on else []:
            (predicted,) = picture.methods.values()
            key = picture.image, picture.height, picture.width
            shown = pictures.setdefault(key, picture.model_copy(update={"methods": {}}))
            shown.methods[label] = predicted
    return [pictures[key] for key in sorted(pictures)]


def _known_domains(runs: Sequence[RunResults]) -> dict[str, tuple[str, DomainFacts]]:
    """What runs say of their domains, by label and by name, with the name."""
    found: dict[str, tuple[str, DomainFacts]] = {}
    for run in runs:
        for name, facts in run.domains.items():
            for key in (name, facts.label):
                found.setdefault(key, (name, facts))
    return found


def _method_facts(label: str, on: dict[str, FileResults]) -> MethodFacts:
    files = list(on.values())
    smallest = min(files, key=lambda file: file.num_members)
    on_all = [(f"On {domain}: " if len(on) > 1 else "") + note for domain, file in on.items() for note in file.notes]
    return MethodFacts(
        label=label,
        method=label,
        num_networks=smallest.num_groups or smallest.num_members,
        num_members=smallest.num_members,
        num_groups=smallest.num_groups,
        plan=smallest.plan,
        notes=on_all,
    )


def _domain_facts(
    domain: str, file: FileResults, results: ScoreResults, known: Mapping[str, tuple[str, DomainFacts]]
) -> DomainFacts:
    """What runs say of a domain, where they know it; otherwise whether it is the in-domain one."""
    if domain in known:
        return known[domain][1].model_copy(update={"num_pixels": file.pixels.valid})
    role: Literal["in-domain", "shifted", "role unknown"] = "role unknown"
    if results.in_domain is not None:
        role = "in-domain" if domain == results.in_domain else "shifted"
    return DomainFacts(label=domain, role=role, num_pixels=file.pixels.valid, class_names=file.class_names)
