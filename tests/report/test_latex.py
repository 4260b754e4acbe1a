"""LaTeX tables: what they say, that bold is carried, and that a real LaTeX sets them without a complaint."""

import re
import shutil
import subprocess
from pathlib import Path

import fake
import pytest

from epibench.report.entries import Entry
from epibench.report.judge import judge_at
from epibench.report.latex import TableFile, escaped, preview, tables_of
from epibench.report.runs import entries_on, methods_of, read_runs
from epibench.results import Results

SUBJECTS: dict[str, list[Results]] = {
    "depth": [fake.depth()],
    "segmentation": [fake.segmentation()],
    "regression": [fake.regression()],
    "two_runs": [fake.regression(), fake.momentum()],
    "bare": [fake.bare()],
    "hostile_run": [fake.dense_hostile()],
    **{name: [scene()] for name, scene in fake.SCORE_SCENES.items()},
}


def tables(results: list[Results]) -> list[TableFile]:
    return list(tables_of(read_runs(results)))


def lines_of(text: str) -> dict[str, list[list[str]]]:
    """The cells of every row by the title of the metric; the first is the method."""
    found: dict[str, list[list[str]]] = {}
    title = ""
    for line in text.splitlines():
        if heading := re.search(r"\\multicolumn\{\d+\}\{@\{\}l\}\{(.*)\} \\\\$", line):
            title = heading[1]
        elif r"\quad " in line:
            found.setdefault(title, []).append([cell.strip() for cell in line.removesuffix(r"\\").split(" & ")])
    return found


def check_bold(text: str, metric: str, title: str, entries: list[Entry]) -> int:
    """Bold is exactly what the judge calls best; returns how often it is."""
    rows, number = lines_of(text)[title], 0
    for entry, (label, *cells) in zip(entries, rows, strict=True):
        assert entry.label in label
        for m, cell in zip(entry.members, cells, strict=True):
            best = entry.label in judge_at(metric, entries, m).best
            assert (r"\mathbf" in cell) is best, (metric, m, cell)
            number += best
    return number


def test_bold_is_what_the_judge_calls_a_lead_and_nothing_else() -> None:
    runs = read_runs([fake.depth()])
    found = {table.name: table.text for table in tables_of(runs)}
    bold = 0
    for domain in ("clean", "wild"):
        entries = entries_on(methods_of(runs), domain)
        for metric, title in (("ause", "AUSE"), ("auce", "AUCE"), ("rmse", "RMSE (m)")):
            bold += check_bold(found[domain], metric, rf"{title} $\downarrow$", entries)
    assert bold, "a test without any lead tells nothing"


def test_methods_that_cannot_be_told_apart_have_no_bold() -> None:
    same = [fake.scored_file("same.npz", method=name) for name in ("one", "other")]
    (table,) = tables([fake.results(*same)])
    assert r"\mathbf" not in table.text
    assert r"\approx" in table.text


def test_one_draw_leads_nothing() -> None:
    files = [
        fake.scored_file(f"{name}.npz", method=name, quality=quality, members=(4,), draws=1, pool=4)
        for name, quality in (("good", 0.0), ("bad", 1.0))
    ]
    (table,) = tables([fake.results(*files)])
    assert r"\mathbf" not in table.text
    assert "One draw of $M$ members" in table.text


def test_numbers_are_those_of_the_page() -> None:
    results = fake.depth()
    runs = read_runs([results])
    found = {table.name: table.text for table in tables_of(runs)}
    entry = entries_on(methods_of(runs), "clean")[0]
    cell = lines_of(found["clean"])[r"RMSE (m) $\downarrow$"][0][1]
    value, spread = entry.texts("rmse", entry.members[0])
    assert value.strip() in cell
    assert spread.removeprefix("± ") in cell


def test_the_caption_says_convention_draws_spread_unit_and_direction() -> None:
    table = next(table for table in tables([fake.segmentation()]) if table.name == "clean")
    caption = re.search(r"\\caption\{(.*)\}$", table.text, re.MULTILINE)
    assert caption is not None
    for words in (
        r"convention \texttt{pooled}",
        "draws: Ensembling 8, MC-dropout 4 and SGHMC 3",
        r"Mean $\pm$ standard deviation",
        r"$\downarrow$: lower is better, $\uparrow$: higher is better",
        "64 images",
        "at least one standard error",
    ):
        assert words in caption[1]
    assert r"mIoU $\uparrow$" in table.text
    assert r"\label{tab:clean}" in table.text


def test_a_point_estimate_says_its_m() -> None:
    table = next(table for table in tables([fake.regression()]) if table.name.startswith("kl"))
    assert re.search(r"\\quad MAP & \\multicolumn\{\d\}\{l@\{\}\}\{.* at M~=~1\}", table.text)
    assert "noise floor of the reference is 0.018" in table.text


def test_the_caption_names_a_reference_that_has_not_converged() -> None:
    table = next(table for table in tables([fake.regression()]) if table.name.startswith("kl"))
    assert r"Reference: NOT converged: R-hat $\le$ 1.05 at 33 \% of points" in table.text


def test_many_m_go_below_each_other() -> None:
    (table,) = tables([fake.crowded()])
    parts = table.text.split(r"\begin{tabular}")[1:]
    assert len(parts) > 2
    members = [int(m) for m in re.findall(r"\$M = (\d+)\$", table.text)]
    assert members == sorted(set(members))
    assert members[-1] == 33


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("mc_dropout & 50 % {x}", r"mc\_dropout \& 50 \% \{x\}"),
        ("a\\b ~ ^", r"a\textbackslash{}b \textasciitilde{} \textasciicircum{}"),
        ("σ² → λ", r"$\sigma$$^2$ $\to$ $\lambda$"),
        ("Müller, Ł", "Müller, Ł"),
        ("ﬁt", "fit"),
        ("驾", "[U+9A7E]"),
    ],
)
def test_names_are_escaped(text: str, wanted: str) -> None:
    assert escaped(text) == wanted


@pytest.mark.parametrize("name", SUBJECTS)
def test_braces_and_environments_are_balanced(name: str) -> None:
    for table in tables(SUBJECTS[name]):
        text = re.sub(r"^%.*$|\\textbackslash|\\[{}]", "", table.text, flags=re.MULTILINE)
        assert text.count("{") == text.count("}")
        assert text.count("$") % 2 == text.count(r"\$") % 2
        for environment in ("table", "tabular"):
            assert text.count(rf"\begin{{{environment}}}") == text.count(rf"\end{{{environment}}}")
        for part in text.split(r"\begin{tabular}")[1:]:
            columns = part.partition("\n")[0].count("r")
            rows = [line for line in part.splitlines() if line.endswith(r"\\") and r"\multicolumn" not in line]
            assert {line.count(" & ") for line in rows} == {columns}


@pytest.mark.parametrize("name", SUBJECTS)
def test_latex_sets_them_without_a_complaint(name: str, tmp_path: Path) -> None:
    latex = shutil.which("pdflatex")
    if latex is None:
        pytest.skip("pdflatex is not installed")
    made = tables(SUBJECTS[name])
    for table in made:
        (tmp_path / f"{table.name}.tex").write_text(table.text, encoding="utf-8")
    (tmp_path / "preview.tex").write_text(preview([table.name for table in made]), encoding="utf-8")
    command = [latex, "-interaction=nonstopmode", "-halt-on-error", "preview.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", errors="replace")
    assert done.returncode == 0, [line for line in done.stdout.splitlines() if line.startswith("!")]
    assert "Missing character" not in done.stdout
    assert not re.findall(r"Overfull \\hbox.*", done.stdout)
