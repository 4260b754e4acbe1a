"""`epibench report` and `epibench score`: their tables in the terminal and in Markdown, and where files go."""

import re

import fake
import pytest

from epibench.cli.tables import print_tables


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("given", [".", "results.json"])
def test_one_run_gets_its_page_in_its_folder(given, here, command, save) -> None:
    assert command("report", save(fake.bare(), here / "a") / given).status == 0
    assert (here / "a" / "report.html").is_file()


def test_several_runs_get_one_page_here_or_where_it_is_asked_for(here, command, save) -> None:
    runs = [save(fake.bare(), here / name) for name in "ab"]
    assert command("report", *runs).status == 0
    assert sorted(path.name for path in here.iterdir()) == ["a", "b", "report.html"]
    assert "report:  new/page.html" in command("report", *runs, "--out", "new/page.html").err
    assert (here / "new" / "page.html").is_file()
    for out, message in ((".", "is a folder"), ("a/results.json", "written over")):
        said = command("report", *runs, "--out", out)
        assert said.status == 2
        assert message in said.err


def test_missing_and_broken_files_are_refused(here, command) -> None:
    def refused(path: str) -> str:
        said = command("report", path)
        assert said.status == 2
        return said.err

    assert "no such file or folder" in refused("nowhere")
    assert "holds no results.json" in refused(".")
    (here / "results.json").write_text("{", encoding="utf-8")
    assert "damaged, or of another version: it does not end in a checksum" in refused(".")


def test_each_headline_metric_has_a_table_of_all_domains_and_m(reported) -> None:
    text = reported("depth").out
    lines = text.splitlines()
    titles = [line for line in lines if line.startswith("depth-completion")]
    assert [title.split(": ")[1].split(",")[0] for title in titles] == ["AUSE", "AUCE", "RMSE (m)"]
    assert lines[1].split() == ["M", "=", "1", "M", "=", "2", "M", "=", "4", "M", "=", "8"]
    assert lines[2] == "street, clean"
    assert lines[3].split()[:4] == ["Ensembling", "0.4548", "±", "0.0070"]
    findings = [line for line in lines if "At M" in line]
    assert findings[0].startswith("street, clean (in-domain): ")
    assert "Ensembling ranks errors best (AUSE)" in findings[0]
    assert findings[1].startswith("street, wild (severity 5) (shifted): ")
    assert not re.search("…|left out|reference", text)  # without a terminal nothing is cut
    assert len(re.findall(r"[\d,.e-]+ ± [<\d,.e-]+", text)) == 3 * 4 * 2 * 4  # metrics, domains, methods, M


def test_kls_stand_beside_the_floor_at_every_m(reported) -> None:
    lines = reported("classification").out.splitlines()
    assert lines[1].split() == ["floor", *(word for m in fake.MEMBERS for word in ("M", "=", str(m)))]
    assert lines[2].split()[:5] == ["Ensembling", "0.00090", "0.135", "±", "0.053"]
    assert "Ensembling is closest." in lines
    assert not [
        line
        for scene in ("classification", "depth")
        for line in reported(scene).out.splitlines()
        if line != line.rstrip()
    ]


def test_holes_are_dashes_or_empty(reported) -> None:
    lines = reported("partial").out.splitlines()
    assert [line.split() for line in lines if "–" in line] == [["Ensembling", "–", "–"]] * 2


@pytest.mark.parametrize(
    ("scene", "texts", "absent"),
    [
        ("toy_failed", ["sgld failed: the loss is not finite", "No method was finished"], "reference"),
        ("dense_failed", ["ensemble failed: CUDA out of memory", "No method was finished"], "reference"),
        ("no_kl", ["no reference"], "KL("),
        ("classification", ["Reference: converged: R-hat ≤ 1.05 at 100 % of points (goal 95 %)"], "KLs to it may"),
        ("regression", ["Reference: NOT converged: R-hat ≤ 1.05 at 33 % of points (goal 95 %). KLs to it may"], "…"),
        ("dropout_rates", ["of 18 published cells 9 have a value of ours; 9 within one", "quick variant"], "…"),
        ("kitti", ["kitti-depth: of 36 published cells 18 have a value of ours", "different conventions"], "…"),
    ],
)
def test_failures_doubts_and_published_cells_are_printed(scene, texts, absent, reported) -> None:
    said = reported(scene).out
    assert [text for text in texts if text.lower() not in said.lower()] == []
    assert absent not in said


def test_scores_are_printed_with_notes(capsys) -> None:
    print_tables(fake.crowded())
    text = capsys.readouterr().out
    assert "…" not in text
    assert "had a variance of 0" in text
    assert "draws share more than half of their members" in text


def test_markdown_has_a_table_for_each_domain(reported) -> None:
    text = reported("depth").markdown
    assert text.count("### Depth completion, ") == 4
    assert "### Depth completion, street, wild (severity 5) (shifted, " in text
    assert "| metric | method | M = 1 | M = 2 | M = 4 | M = 8 |" in text
    assert "| AUSE ↓ | Ensembling | **0.4548 ± 0.0070** |" in text


@pytest.mark.parametrize(
    ("scene", "line"),
    [
        ("regression", r"Reference: NOT converged"),
        ("kitti", r"\| RMSE \[mm\], Ensembling \| 1 \| 2,241 ± 71 \| 32 \| 2,732 ± 44 \| 2,714 \| 8 \| \+491 \|"),
        ("samples", r"### Scored predictions: regression, wild \(9,000,000 valid samples\)\n"),
        ("segmentation", r"#### IoU per class at M\u00a0=\u00a08"),
        ("segmentation", r"\| class \| share of pixels \| Ensembling \| MC-dropout \|"),
        ("segmentation", r"\| road \| 30\u00a0% \| \*\*0\.\d+ ± 0\.\d+\*\* \| 0\.\d+ ± 0\.\d+ \|"),
    ],
)
def test_markdown_has_doubts_published_cells_and_classes(scene, line, reported) -> None:
    assert re.search(line, reported(scene).markdown)
