import contextlib
import io
import re
from collections.abc import Callable

import fake
import pytest

from epibench.cli.report import print_run_tables
from epibench.cli.tables import print_tables
from epibench.report.runs import read_runs
from epibench.report.table_files import render_markdown
from epibench.results import Results


def stdout_of(print_results: Callable[[], None]) -> str:
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as stream:
        patch.setenv("COLUMNS", "40")  # no terminal, so the width does not count
        patch.delenv("FORCE_COLOR", raising=False)
        print_results()
    return stream.getvalue()


def printed(*results: Results) -> str:
    return stdout_of(lambda: print_run_tables(results))


def words(line: str) -> list[str]:
    return line.split()


def whole_numbers(text: str) -> list[str]:
    """Every mean ± std in a text."""
    return re.findall(r"[\d,.e-]+ ± [<\d,.e-]+", text)


def test_each_headline_metric_has_a_table_of_all_domains_and_m() -> None:
    lines = printed(fake.depth()).splitlines()
    titles = [line for line in lines if line.startswith("depth-completion")]
    assert [title.split(": ")[1].split(",")[0] for title in titles] == ["AUSE", "AUCE", "RMSE (m)"]
    assert words(lines[1]) == ["M", "=", "1", "M", "=", "2", "M", "=", "4", "M", "=", "8"]
    assert lines[2] == "street, clean"
    assert words(lines[3])[:4] == ["Ensembling", "0.4548", "±", "0.0070"]


def test_without_a_terminal_nothing_is_cut_or_left_out() -> None:
    text = printed(fake.depth())
    assert "…" not in text
    assert "left out" not in text
    assert len(whole_numbers(text)) == 3 * 4 * 2 * 4  # metrics, domains, methods, M


def test_lines_end_where_their_text_ends() -> None:
    text = printed(fake.depth(), fake.classification())
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_the_finding_is_printed_for_the_domain_trained_for_and_the_hardest_shift() -> None:
    last = [line for line in printed(fake.depth()).splitlines() if "At M" in line]
    assert last[0].startswith("street, clean (in-domain): ")
    assert "Ensembling ranks errors best (AUSE)" in last[0]
    assert last[1].startswith("street, wild (severity 5) (shifted): ")


def test_no_word_on_a_reference() -> None:
    assert "reference" not in printed(fake.depth())


def test_holes_are_dashes_or_empty() -> None:
    lines = printed(fake.partial()).splitlines()
    assert [words(line) for line in lines if "–" in line] == [["Ensembling", "–", "–"]] * 2


@pytest.mark.parametrize("results", [fake.toy_failed(), fake.dense_failed()])
def test_a_run_whose_only_method_failed_says_so(results: Results) -> None:
    text = printed(results)
    (name, reason), *_ = results.failed.items()
    assert f"{name} failed: {reason}" in text
    assert "no method was finished" in text.lower()
    assert "reference" not in text


def test_kls_stand_beside_the_floor_at_every_m() -> None:
    lines = printed(fake.classification()).splitlines()
    assert words(lines[1]) == ["floor", *(word for m in fake.MEMBERS for word in ("M", "=", str(m)))]
    assert words(lines[2])[:5] == ["Ensembling", "0.00090", "0.135", "±", "0.053"]
    assert "Ensembling is closest." in lines


def test_published_counts_and_caveats_are_printed() -> None:
    text = printed(fake.dropout_rates())
    assert "of 18 published cells 9 have a value of ours; 9 within one published std" in text
    assert "quick variant" in text
    dense = printed(fake.kitti())
    assert "kitti-depth: of 36 published cells 18 have a value of ours" in dense
    assert "different conventions" in dense


def test_a_run_without_a_reference_says_so() -> None:
    without = fake.bare(kl=False)
    assert "no reference" in printed(without)


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        (fake.classification, "Reference: converged: R-hat ≤ 1.05 at 100 % of points (goal 95 %)"),
        (fake.regression, "Reference: NOT converged: R-hat ≤ 1.05 at 33 % of points (goal 95 %). KLs to it may"),
    ],
)
def test_the_verdict_on_the_reference_stands_below_the_kls(results: Callable[[], Results], verdict: str) -> None:
    assert verdict in printed(results())


def test_markdown_names_a_reference_that_has_not_converged() -> None:
    assert "Reference: NOT converged" in render_markdown(read_runs([fake.regression()]))


def test_scores_are_printed_with_notes() -> None:
    text = stdout_of(lambda: print_tables(fake.crowded()))
    assert "…" not in text
    assert "had a variance of 0" in text
    assert "draws share more than half of their members" in text


def test_markdown_has_a_table_for_each_domain() -> None:
    text = render_markdown(read_runs([fake.depth()]))
    assert text.count("### Depth completion, ") == 4
    assert "### Depth completion, street, wild (severity 5) (shifted, " in text
    assert "| metric | method | M = 1 | M = 2 | M = 4 | M = 8 |" in text
    assert "| AUSE ↓ | Ensembling | **0.4548 ± 0.0070** |" in text


def test_markdown_says_no_role_where_none_is_known() -> None:
    file = fake.scored_file("a.npz", members=(1,), counted="samples", num_images=9)
    text = render_markdown(read_runs([fake.results(file)]))
    assert "### Scored predictions: regression, wild (9,000,000 valid samples)\n" in text


def test_markdown_has_the_published_cells() -> None:
    text = render_markdown(read_runs([fake.kitti()]))
    assert "| RMSE [mm], Ensembling | 1 | 2,241 ± 71 | 32 | 2,732 ± 44 | 2,714 | 8 | +491 |" in text
