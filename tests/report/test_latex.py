"""LaTeX tables: what they say, that bold is carried, and that a real LaTeX sets them without a complaint."""

import re
import shutil
import subprocess
from pathlib import Path

import fake
import pytest

from epibench.report.runs import read_runs
from epibench.report.table_files import TableFile, preview, tables_of
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


def test_one_draw_leads_nothing() -> None:
    files = [
        fake.scored_file(f"{name}.npz", method=name, quality=quality, members=(4,), draws=1, pool=4)
        for name, quality in (("good", 0.0), ("bad", 1.0))
    ]
    (table,) = tables([fake.results(*files)])
    assert r"\mathbf" not in table.latex
    assert "One draw of $M$ members" in table.latex


def test_the_caption_says_convention_draws_spread_unit_and_direction() -> None:
    table = next(table for table in tables([fake.segmentation()]) if table.name == "clean")
    caption = re.search(r"\\caption\{(.*)\}$", table.latex, re.MULTILINE)
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
    assert r"mIoU $\uparrow$" in table.latex
    assert r"\label{tab:clean}" in table.latex


def test_a_point_estimate_says_its_m() -> None:
    table = next(table for table in tables([fake.regression()]) if table.name.startswith("kl"))
    assert re.search(r"  MAP & \\multicolumn\{\d\}\{l@\{\}\}\{.* at M~=~1\}", table.latex)
    assert "noise floor of the reference is 0.018" in table.latex


def test_the_caption_names_a_reference_that_has_not_converged() -> None:
    table = next(table for table in tables([fake.regression()]) if table.name.startswith("kl"))
    assert r"Reference: NOT converged: R-hat $\le$ 1.05 at 33 \% of points" in table.latex


@pytest.mark.parametrize("name", SUBJECTS)
def test_braces_and_environments_are_balanced(name: str) -> None:
    for table in tables(SUBJECTS[name]):
        text = re.sub(r"^%.*$|\\textbackslash|\\[{}]", "", table.latex, flags=re.MULTILINE)
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
        (tmp_path / f"{table.name}.tex").write_text(table.latex, encoding="utf-8")
    (tmp_path / "preview.tex").write_text(preview([table.name for table in made]), encoding="utf-8")
    command = [latex, "-interaction=nonstopmode", "-halt-on-error", "preview.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", errors="replace")
    assert done.returncode == 0, [line for line in done.stdout.splitlines() if line.startswith("!")]
    assert "Missing character" not in done.stdout
    assert not re.findall(r"Overfull \\hbox.*", done.stdout)
