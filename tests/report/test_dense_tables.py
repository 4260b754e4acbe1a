import io
import re
from typing import Any

import fake_dense_run
import pytest
from rich.console import Console

from epibench.cli.report import print_run_tables
from epibench.report.markdown import render_markdown
from epibench.report.runs import read_runs


def printed(results: dict[str, Any], width: int = 110) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    print_run_tables(results, console)
    return console.export_text()


def test_each_headline_metric_has_a_table_of_all_domains_and_m() -> None:
    lines = printed(fake_dense_run.depth()).splitlines()
    titles = [line for line in lines if line.startswith("depth-completion")]
    assert [title.split(": ")[1] for title in titles] == [
        "AUSE, lower is better",
        "AUCE, lower is better",
        "RMSE (m), lower is better",
    ]
    assert lines[1].split() == ["M", "=", "1", "M", "=", "2", "M", "=", "4", "M", "=", "8"]
    assert lines[2] == "street, clean"
    assert lines[3].split()[:4] == ["Ensembling", "0.4548", "±", "0.0070"]


@pytest.mark.parametrize(("width", "text"), [(110, "0.4548 ± 0.0070"), (80, "0.455 ± 0.007"), (50, "  0.455  ")])
def test_tables_fit_the_terminal(width: int, text: str) -> None:
    found = printed(fake_dense_run.depth(), width)
    tables = found.split("street, clean (in-domain)")[0].splitlines()
    assert max(len(line) for line in tables) <= width
    assert text in found


def test_the_finding_is_printed_for_the_domain_trained_for_and_the_hardest_shift() -> None:
    last = [line for line in printed(fake_dense_run.depth()).splitlines() if "At M" in line]
    assert last[0].startswith("street, clean (in-domain): At M\u00a0=\u00a08, Ensembling ranks errors best (AUSE)")
    assert last[1].startswith("street, wild (severity 5) (shifted): ")


def test_best_values_are_green() -> None:
    console = Console(width=110, force_terminal=True, color_system="standard", file=io.StringIO(), record=True)
    print_run_tables(fake_dense_run.run(domains=("clean",), members=(1, 2)), console)
    styled = console.export_text(styles=True)
    assert re.search(r"\x1b\[1;32m +0\.4548 ", styled)
    assert not re.search(r"\x1b\[1;32m +0\.4812 ", styled)


def test_no_word_on_a_reference() -> None:
    assert "reference" not in printed(fake_dense_run.depth())


def test_holes_are_dashes() -> None:
    lines = printed(fake_dense_run.partial()).splitlines()
    assert [line.split() for line in lines if "–" in line] == [["Ensembling", "–", "–"]] * 2


def test_published_counts_are_printed() -> None:
    text = printed(fake_dense_run.kitti())
    assert "kitti-depth: of 36 published cells 18 have a value of ours" in text
    assert "different conventions" in text


def test_markdown_has_a_table_for_each_domain() -> None:
    text = render_markdown(read_runs([fake_dense_run.depth()]))
    assert text.count("### depth-completion: ") == 4
    assert "### depth-completion: street, wild (severity 5) (shifted)" in text
    assert "| metric | method | M = 1 | M = 2 | M = 4 | M = 8 |" in text
    assert "| AUSE | Ensembling | **0.4548 ± 0.0070** |" in text


def test_markdown_has_the_published_cells() -> None:
    text = render_markdown(read_runs([fake_dense_run.kitti()]))
    assert "| RMSE [mm] | Ensembling | 1 | 2241 ± 71 | 32 | 2732 ± 44 | 8 | +491 |" in text
