"""Results as LaTeX: a booktabs table for each domain, with all that a reader has to know in its caption.

Bold is what the judge calls a lead, and nothing else.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from epibench.report.entries import Entry, all_members, several_members, title_with_unit
from epibench.report.equivalent_section import Equivalents, equivalent_names, equivalent_rows, equivalents_on
from epibench.report.figure_files import slug
from epibench.report.metric_info import metric_info
from epibench.report.numbers import FIGURE_SPACE, PUNCTUATION_SPACE, count, listed, significant
from epibench.report.runs import (
    PROBLEMS,
    VIEWS,
    Run,
    by_problem,
    convergence_of,
    domains_of,
    entries_on,
    headline_names,
    kl_entries,
    methods_of,
    scored_domains,
)
from epibench.report.tables import OVERLAP_MARK, TIE_MARK, TableCell, rows_over_members

TEXT_WIDTH, LETTER, SEPARATION = 345.0, 4.3, 8.0  # of an article, in points: what does not fit goes below
ARROWS = {"lower": r" $\downarrow$", "higher": r" $\uparrow$", "zero": " (0 is ideal)", "neither": ""}
DIRECTIONS = {"lower": r"$\downarrow$: lower is better", "higher": r"$\uparrow$: higher is better"}
GREEK = {
    letter: "\\" + unicodedata.name(letter).split()[-1].lower().replace("lamda", "lambda")
    for letter in "αβγδεζηθκλμνξπρστφχψω"
}
SIGNS = {"→": r"\to", "↓": r"\downarrow", "↑": r"\uparrow", "±": r"\pm", "×": r"\times", "−": "-", "·": r"\cdot"}
SIGNS |= {"≤": r"\le", "≥": r"\ge", "≈": r"\approx", "‖": r"\Vert", "°": r"^{\circ}", "∞": r"\infty", "√": r"\surd"}
SIGNS |= {"₁": "_1", "₂": "_2", "²": "^2", "³": "^3", "\u00b5": r"\mu", "Δ": r"\Delta", "Σ": r"\Sigma", **GREEK}
_SPECIAL = {
    **{letter: rf"\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "`": r"\textasciigrave{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "'": r"\textquotesingle{}"},
    **{'"': r"\textquotedbl{}", "\u00a0": "~", "\n": " ", "–": "--", "—": "---", "…": r"\dots{}"},
    **{"“": "``", "”": "''", "‘": "`", "’": "'"},
    **{letter: f"${sign}$" for letter, sign in SIGNS.items()},
}
_POWER = re.compile("×10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_PLAIN = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


@dataclass(frozen=True)
class TableFile:
    """A table: the name of its file without an ending, what it shows, and its text."""

    name: str
    about: str
    text: str


def escaped(text: str) -> str:
    """Any text, so that LaTeX prints it; letters that pdfLaTeX cannot print are named by their number."""
    return "".join(_SPECIAL.get(letter) or _letter(letter) for letter in text)


def _letter(letter: str) -> str:
    if letter.isascii() and letter.isprintable():
        return letter
    if "\u00c0" <= letter <= "\u017f" and letter.isalpha():
        return letter  # Latin letters with marks, which every LaTeX knows
    plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return plain if plain.isalnum() else f"[U+{ord(letter):04X}]"


def run_tables(runs: Sequence[Run]) -> Iterator[TableFile]:
    """A table for each domain of each problem, and for each way to measure the KL of toy problems."""
    groups = by_problem(runs)
    for group in groups:
        methods, problem = methods_of(group), group[0].problem
        title, prefix = PROBLEMS.get(problem, problem), problem if len(groups) > 1 else ""
        if len(group) == 1 and group[0].evaluation:  # of several runs every label says it
            title += f" ({group[0].evaluation})"
        doubts = "".join(f" {text}" for text, converged in convergence_of(group) if not converged)
        for view in VIEWS:
            if entries := kl_entries(methods, view):
                floors = sorted({entry.floor for entry in entries if entry.floor is not None})
                floor = f" The noise floor of the reference is {listed([significant(one, 2) for one in floors])}."
                about = f"{title}: {view.name}"
                name = slug(prefix, "kl", view.direction, view.region, view.convention)
                yield table(name, about, ["kl"], entries, more=(floor if floors else "") + doubts)
        labels = {
            domain.name: f"{domain.label} ({domain.role}{_size(domain)})" for domain in scored_domains(group, methods)
        }
        if not domains_of(group):
            labels = {name: f"{name} of the training region" for name in ("inside", "outside")}
        convention = listed(sorted({run.results.convention for run in group}))
        for domain, label in labels.items():
            if entries := entries_on(methods, domain):
                names = headline_names(entries)
                yield table(slug(prefix, domain), f"{title}, {label}", names, entries, convention)
                for name in equivalent_names(entries)[:1]:
                    if found := equivalents_on(domain, methods, name):
                        yield equivalent_file(slug(prefix, domain, "equivalents"), f"{title}, {label}", name, found)


def _size(domain: object) -> str:
    images, pixels = getattr(domain, "num_images", None), getattr(domain, "num_pixels", None)
    return (f", {count(images)} images" if images else "") + (f", {count(pixels)} valid pixels" if pixels else "")


def table(
    name: str, about: str, metrics: Sequence[str], entries: Sequence[Entry], convention: str = "", more: str = ""
) -> TableFile:
    """A float with a booktabs table: methods by M, a block for each metric."""
    columns = several_members(entries) if metrics == ["kl"] else all_members(entries)
    rows = {metric: rows_over_members(metric, entries, columns) for metric in metrics}
    spreads = [cell.spread for of_metric in rows.values() for row in of_metric for cell in row["cells"]]
    marks = {mark: any(mark.strip() in spread for spread in spreads) for mark in (OVERLAP_MARK, TIE_MARK)}
    caption = _caption(about, metrics, entries, convention, more, marks)
    what = f"{about}: {listed([metric_info(metric).title for metric in metrics])} over M"
    return TableFile(name, what, _float(name, about, caption, entries, rows, columns))


def equivalent_file(name: str, about: str, metric: str, found: Equivalents) -> TableFile:
    """A float with the deep-ensemble equivalent of every method by M, with its interval."""
    columns = sorted({m for _, by_size in found for m in by_size})
    entries = [entry for entry, _ in found]
    title = metric_info(metric).title
    caption = (
        f"{escaped(about)}. Deep-ensemble equivalent by {escaped(title)}: how many members an ensemble needs to "
        r"score as a method does with $M$, by interpolation in the ensemble's mean curve, linear in $\log M$; "
        r"bounds beyond its ends. In brackets, the 5 to 95\,\% interval of resampled draws."
    )
    rows = {metric: equivalent_rows(found, columns)}
    what = f"{about}: deep-ensemble equivalent by {title} over M"
    return TableFile(name, what, _float(name, about, caption, entries, rows, columns))


Rows = dict[str, list[dict[str, Any]]]  # by metric


def _float(name: str, about: str, caption: str, entries: Sequence[Entry], rows: Rows, columns: Sequence[int]) -> str:
    """The lines of a float; columns that do not fit side by side go below."""
    lines = [
        f"% {_comment(about)}; needs \\usepackage{{booktabs}}",
        r"\begin{table}",
        r"  \centering",
        r"  \footnotesize",
        r"  \setlength{\tabcolsep}{4pt}",
        f"  \\caption{{{caption}}}",
        f"  \\label{{tab:{name}}}",
    ]
    most = _most_columns(entries, [cell for of_metric in rows.values() for row in of_metric for cell in row["cells"]])
    parts = [columns[i : i + most] for i in range(0, len(columns), most)]
    for number, part in enumerate(parts):
        lines += [r"  \par\medskip"] if number else []
        lines += [f"  {line}" for line in _tabular(entries, rows, part, number * most, number == 0)]
    return "\n".join([*lines, r"\end{table}", ""])


def _most_columns(entries: Sequence[Entry], cells: Sequence[TableCell]) -> int:
    """How many columns fit side by side, by the number of letters; two at least."""
    labels = LETTER * (3 + max(len(entry.label) for entry in entries))
    widest = LETTER * max((len(cell.value) + len(cell.spread.rstrip(" ≈°")) for cell in cells), default=1)
    return max(2, int((TEXT_WIDTH - labels) / (widest + SEPARATION)))


def _comment(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _tabular(entries: Sequence[Entry], rows: Rows, columns: Sequence[int], start: int, first: bool) -> Iterator[str]:
    """The lines of one tabular. start: the first of its columns; first: where methods without these M are said."""
    yield rf"\begin{{tabular}}{{@{{}}l{'r' * len(columns)}@{{}}}}"
    yield r"  \toprule"
    yield "  " + " & ".join(["", *(f"$M = {m}$" for m in columns)]) + r" \\"
    for metric, of_metric in rows.items():
        yield r"  \midrule"
        title = escaped(title_with_unit(metric, entries)) + ARROWS[metric_info(metric).better]
        yield rf"  \multicolumn{{{len(columns) + 1}}}{{@{{}}l}}{{{title}}} \\"
        for row in of_metric:
            entry, only, cells = row["entry"], row["only"], row["cells"]
            label = rf"\quad {escaped(entry.label)}"
            if only and first:
                yield rf"  {label} & \multicolumn{{{len(columns)}}}{{l@{{}}}}{{{_number(str(only))}}} \\"
            elif not only:
                shown = [_cell(cell) for cell in itertools.islice(cells, start, start + len(columns))]
                yield "  " + " & ".join([label, *shown]) + r" \\"
    yield r"  \bottomrule"
    yield r"\end{tabular}"


def _cell(cell: TableCell) -> str:
    """A number with its std; bold where the page has it bold."""
    overlap, tied = OVERLAP_MARK in cell.spread, cell.spread.endswith(TIE_MARK.strip())
    spread = cell.spread.removesuffix(TIE_MARK).removesuffix(OVERLAP_MARK)
    value = cell.value.rstrip(FIGURE_SPACE + PUNCTUATION_SPACE)
    if not value or value == "–":
        return escaped(cell.note or cell.spread or value)
    mathematics = _mathematics(value)
    text = rf"$\mathbf{{{mathematics}}}$" if cell.best else f"${mathematics}$"
    if padding := cell.value[len(value) :]:
        text += rf"\phantom{{{padding.replace(PUNCTUATION_SPACE, '.').replace(FIGURE_SPACE, '0')}}}"
    if spread:
        text += f" ${_mathematics(spread)}$" if spread.startswith("±") else f" {escaped(spread)}"
    raised = (r"\circ" if overlap else "") + (r"\approx" if tied else "")
    return text + (rf"\rlap{{$^{{{raised}}}$}}" if raised else "")  # beside the number, which stays aligned


def _mathematics(text: str) -> str:
    """A number of a table in mathematical mode."""
    text = _POWER.sub(lambda power: rf" \times 10^{{{power[1].translate(_PLAIN)}}}", text)
    return text.replace("−", "-").replace("±", r"{\pm}").replace(",", "{,}").replace("<", "{<}")


def _number(text: str) -> str:
    """A text with numbers, as `0.41 ± 0.02 at M = 1`."""
    powers = _POWER.sub(lambda power: rf"$PLACE{power[1].translate(_PLAIN)}E$", text)
    return re.sub(r"\\\$PLACE(-?\d+)E\\\$", r"$\\times 10^{\1}$", escaped(powers))


def _caption(
    about: str, metrics: Sequence[str], entries: Sequence[Entry], convention: str, more: str, marks: dict[str, bool]
) -> str:
    """What is shown, over what, in what convention, and how to read it."""
    parts = [f"{escaped(about)}."]
    spread = any(
        entry.stat(metric, m).std is not None for entry in entries for metric in metrics for m in entry.members
    )
    draws = escaped(listed([f"{entry.label} {_draws(entry)}" for entry in entries]))
    if spread:
        parts.append(rf"Mean $\pm$ standard deviation (of the population) over draws of $M$ members; draws: {draws}.")
    else:
        parts.append(f"One draw of $M$ members; draws: {draws}.")
    if convention:
        parts.append(f"Metrics follow the convention \\texttt{{{escaped(convention)}}}.")
    directions = dict.fromkeys(metric_info(metric).better for metric in metrics)
    parts.append(", ".join(DIRECTIONS[one] for one in directions if one in DIRECTIONS) + ".")
    if len(entries) > 1:
        parts.append("Bold: leads by at least one standard error of the difference of independent draws.")
    if marks[TIE_MARK]:
        parts.append(r"$\approx$: the leaders cannot be told apart.")
    if marks[OVERLAP_MARK]:
        parts.append(r"$^{\circ}$: draws share most of their members, so that their standard deviation says little.")
    return " ".join(parts) + escaped(more)


def _draws(entry: Entry) -> str:
    """How many draws an entry has, over all M."""
    numbers = sorted({entry.num_draws(m) for m in entry.members})
    return count(numbers[0]) if len(numbers) == 1 else f"{count(numbers[0])} to {count(numbers[-1])}"


PREVIEW = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{textcomp}
\usepackage{booktabs}
\begin{document}
%s
\end{document}
"""


def preview(names: Sequence[str]) -> str:
    """A document that shows all tables."""
    return PREVIEW % "\n".join(rf"\input{{{name}.tex}} \clearpage" for name in names)


def tables_of(runs: Sequence[Run]) -> Iterator[TableFile]:
    """Every table of runs, with names that differ."""
    seen: dict[str, int] = {}
    for one in run_tables(runs):
        seen[one.name] = number = seen.get(one.name, 0) + 1
        if number > 1:
            name = f"{one.name}-{number}"
            one = TableFile(name, one.about, one.text.replace(f"{{tab:{one.name}}}", f"{{tab:{name}}}"))
        yield one
