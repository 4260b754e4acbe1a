"""LaTeX tables: what they say, that bold is carried, and that a real LaTeX sets them without a complaint."""

import re
import shutil
import subprocess

import fake
import pytest

from epibench.report.runs import read_runs
from epibench.report.table_files import preview, tables_of

NAMES = ("depth", "segmentation", "regression", "two_runs", "bare", "dense_hostile", *fake.SCORE_SCENES)
SCENES = {name: fake.SCENES[name]() for name in NAMES}


def tables(results):
    return {table.name: table for table in tables_of(read_runs(results))}


def test_one_draw_leads_nothing() -> None:
    about = {"members": (4,), "draws": 1, "pool": 4}
    files = [fake.scored_file(f"{name}.npz", quality=quality, **about) for name, quality in (("a", 0.0), ("b", 1.0))]
    (table,) = tables([fake.results(*files)]).values()
    assert r"\mathbf" not in table.latex
    assert "One draw of $M$ members" in table.latex


@pytest.mark.parametrize(
    ("scene", "name", "words"),
    [
        (
            "segmentation",
            "clean",
            [
                r"\\caption\{.*convention \\texttt\{pooled\}.*\}\n",
                r"\\caption\{.*draws: Ensembling 8, MC-dropout 4 and SGHMC 3.*\}\n",
                r"\\caption\{.*Mean \$\\pm\$ standard deviation.*\}\n",
                r"\\caption\{.*\$\\downarrow\$: lower is better, \$\\uparrow\$: higher is better.*\}\n",
                r"\\caption\{.*64 images.*\}\n",
                r"\\caption\{.*at least one standard error.*\}\n",
                r"mIoU \$\\uparrow\$",
                r"\\label\{tab:clean\}",
            ],
        ),
        (
            "regression",
            "kl-reference-to-method-grid-pooled",
            [
                r"  MAP & \\multicolumn\{\d\}\{l@\{\}\}\{.* at M~=~1\}",
                r"noise floor of the reference is 0\.018",
                r"Reference: NOT converged: R-hat \$\\le\$ 1\.05 at 33 \\% of points",
            ],
        ),
    ],
)
def test_captions_say_convention_draws_spread_unit_direction_and_doubts(scene, name, words) -> None:
    text = tables(SCENES[scene])[name].latex
    assert [part for part in words if not re.search(part, text)] == []


@pytest.mark.parametrize("name", SCENES)
def test_braces_and_environments_are_balanced(name) -> None:
    for table in tables(SCENES[name]).values():
        text = re.sub(r"^%.*$|\\textbackslash|\\[{}]", "", table.latex, flags=re.MULTILINE)
        assert text.count("{") == text.count("}")
        assert text.count("$") % 2 == text.count(r"\$") % 2
        for environment in ("table", "tabular"):
            assert text.count(rf"\begin{{{environment}}}") == text.count(rf"\end{{{environment}}}")
        for part in text.split(r"\begin{tabular}")[1:]:
            columns = part.partition("\n")[0].count("r")
            rows = [line for line in part.splitlines() if line.endswith(r"\\") and r"\multicolumn" not in line]
            assert {line.count(" & ") for line in rows} == {columns}


@pytest.mark.parametrize("name", SCENES)
def test_latex_sets_them_without_a_complaint(name, tmp_path) -> None:
    latex = shutil.which("pdflatex")
    if latex is None:
        pytest.skip("pdflatex is not installed")
    made = tables(SCENES[name])
    for table in made.values():
        (tmp_path / f"{table.name}.tex").write_text(table.latex, encoding="utf-8")
    (tmp_path / "preview.tex").write_text(preview([*made]), encoding="utf-8")
    command = [latex, "-interaction=nonstopmode", "-halt-on-error", "preview.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", errors="replace")
    assert done.returncode == 0, [line for line in done.stdout.splitlines() if line.startswith("!")]
    assert "Missing character" not in done.stdout
    assert not re.findall(r"Overfull \\hbox.*", done.stdout)
