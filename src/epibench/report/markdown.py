"""The numbers of runs as Markdown, to put into a document: KL over M, and every cell beside the published one."""

from __future__ import annotations

from collections.abc import Sequence

from epibench.published import compare, distinct, published_table, totals
from epibench.report.kl_figures import view_name
from epibench.report.numbers import MISSING, measured, significant
from epibench.report.published_section import grounds_of, warnings_of
from epibench.report.runs import VIEWS, Method, Run, View, all_members, by_problem, methods_of


def render_markdown(runs: Sequence[Run]) -> str:
    """All tables of some runs."""
    parts = []
    for group in by_problem(runs):
        methods = methods_of(group)
        for view in VIEWS:
            if having := [method for method in methods if method.members(view)]:
                parts.append(f"### {group[0].problem}: {view_name(view)}\n\n{kl_table(having, view)}")
    cells = [cell for run in runs for cell in compare(run.results)]
    if any(cell.mean is not None for cell in cells):
        parts.append(published_part(runs))
    return "\n".join(parts)


def kl_table(methods: Sequence[Method], view: View) -> str:
    """Mean ± std over draws at every M, beside the noise floor."""
    columns = all_members(methods, view)
    head = ["", "floor", *(f"M = {m}" for m in columns)]
    rows = [
        [_escaped(method.label), significant(method.run.floor(view), 2), *(_kl(method, view, m) for m in columns)]
        for method in methods
    ]
    lines = [head, ["---", *("--:" for _ in head[1:])], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def _kl(method: Method, view: View, m: int) -> str:
    if m not in method.members(view):
        return ""
    stat = method.stat(view, m)
    return MISSING if stat.mean is None else measured(stat.mean, stat.std)


def published_part(runs: Sequence[Run]) -> str:
    """Counts over distinct cells, then each run's cells with the grounds that they stand on."""
    counts = totals(distinct([cell for run in runs for cell in compare(run.results)]))
    text = (
        f"### Beside what was published\n\nOf {counts.published} distinct published cells {counts.compared} have a "
        f"value of ours; {counts.within_std} lie within one published std, {counts.within_error} of {counts.judged} "
        "within the combined Monte Carlo error.\n"
    )
    for run in runs:
        if cells := compare(run.results):
            said = " ".join((*warnings_of(run), *grounds_of(run)))
            text += f"\n#### {run.name}\n\n{said}\n\n{published_table(cells)}"
    return text
