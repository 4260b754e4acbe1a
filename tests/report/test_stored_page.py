"""The page of stored predictions, alone and beside runs."""

import errno
import os
import re

import fake
import pytest
from page_checks import plain, texts

from epibench.cli.tables import print_tables
from epibench.report import write_run_page
from epibench.report.metric_info import metric_info
from epibench.report.runs import read_runs
from epibench.results import Stat, Tally


def number(text):
    mantissa, _, exponent = plain(text).replace(",", "").partition("×10")
    return float(mantissa) * 10 ** int(exponent.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or 0)


def cells(document):
    """Every cell of the metric tables by metric title, method and M."""
    found = {}
    for table in document.find_all("table", "metrics"):
        if {"classes", "class-shift"} & {*table.classes}:
            continue
        columns = [int(text.removeprefix("M = ")) for text in texts(table.find_all("thead")[0], "th")[1:]]
        for body in table.find_all("tbody"):
            title = texts(body, "span", "name")[0]
            for row in body.find_all("tr")[1:]:
                label = texts(row, "span", "ellipsis")[0]
                found |= {(title, label, m): cell for m, cell in zip(columns, row.find_all("td"), strict=True)}
    return found


def visible(document):
    return "".join(part.text for tag in ("header", "main", "footer") for part in document.find_all(tag))


def test_a_failed_write_keeps_the_old_page(tmp_path, monkeypatch) -> None:
    path = write_run_page([fake.single()], tmp_path / "new" / "score.html")
    assert [p.name for p in path.parent.iterdir()] == ["score.html"]
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as caught:
        write_run_page([fake.bare()], path)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["score.html"]


def numbers_of(score):
    """Every metric with a value that tables show: its title, M, numbers and numerical bound."""
    for m, metrics in score.summary.items():
        for name, stat in metrics.items():
            companion = re.search("_bound|_standard_error|_infinite|_per_class", name)
            if companion is None and isinstance(stat, Stat) and stat.mean is not None:
                info, bound = metric_info(name), metrics.get(f"{name}_bound")
                title = f"{info.title} ({score.unit})" if info.in_unit else info.title
                yield title, m, stat, float(bound.mean) if bound else 0.0


@pytest.mark.parametrize("scene", ["two_gaussian", "three_categorical", "crowded"])
def test_tables_hold_the_numbers(scene, scene_document) -> None:
    found, checked = cells(scene_document(scene)), 0
    for score in fake.SCENES[scene]()[0].scores:
        for title, m, stat, bound in numbers_of(score):
            cell = found[title, score.method, m]
            shown, spread = (cell.find_all("span", part)[0].text for part in ("value", "spread"))
            tolerance = max(bound, stat.std / 10 if stat.std else abs(stat.mean) * 1e-3)
            assert number(shown) == pytest.approx(stat.mean, abs=tolerance), (title, m)
            if stat.std:
                assert number(spread.strip("±°≈< ")) == pytest.approx(stat.std, rel=0.1, abs=bound)
            else:
                assert spread.strip("≈ ") == ""
            checked += 1
    assert checked > 80


def test_best_is_bold_in_its_direction(scene_document) -> None:
    found = cells(scene_document("two_gaussian"))
    assert "best" in found["AUSE", "ensemble", 16].classes
    assert "best" not in found["AUSE", "mc_dropout", 16].classes
    assert not any("best" in cell.classes for (title, *_), cell in found.items() if "interval length" in title)
    found = cells(scene_document("three_categorical"))
    assert "best" in found["mIoU", "ensemble", 16].classes
    assert plain(found["NLL", "mc_dropout", 1].text) == "infinite 1,287 values"


def test_everything_undefined_still_makes_a_page(run_document) -> None:
    results = fake.two_gaussian()
    for score in results.scores:
        fake.undefined(score).curves = {}
    assert "No values" in run_document(results).text


def test_one_m_and_one_draw_have_values_without_lines(scene_document) -> None:
    document = scene_document("single")
    assert not document.find_all("fieldset")
    assert "from one draw" in document.text
    assert texts(document, "p", "eyebrow") == ["epibench score"]
    shown = [number(text) for text in texts(document, "p", "big")]
    assert fake.single().scores[0].summary[4]["rmse"].mean == pytest.approx(shown[2], rel=1e-3)


def test_kinds_and_units_have_sections_of_their_own(scene_document) -> None:
    regression, classes = scene_document("mixed").find_all("section", "kind")
    assert "Scored predictions: regression" in texts(regression, "h2")[0]
    assert "Reliability" not in regression.text
    assert "Coverage" not in classes.text
    assert len(classes.find_all("svg", "strip")) >= 2 * 3  # one M: dots
    (table,) = [table for table in classes.find_all("table", "classes") if "class-shift" not in table.classes]
    assert len(table.find_all("tr")[1:]) == 150
    assert texts(table.find_all("tr")[150], "th") == ["class name number 149"]
    files = fake.scored_file("a", unit="mm", members=(1, 2)), fake.scored_file("b", members=(1, 2))
    found = [(run.problem, run.unit) for run in read_runs([fake.results(*files)])]
    assert found == [("scored-gaussian in mm pixels", "mm"), ("scored-gaussian in m pixels", "m")]


def test_a_new_metric_simply_appears_and_companions_have_no_figure(run_document) -> None:
    results = fake.two_gaussian()
    for metrics in (metrics for score in results.scores for metrics in score.summary.values()):
        metrics["sharpness_of_tails"] = Stat(mean=7.25, std=0.5, n=16)
    document = run_document(results)
    assert plain(cells(document)["sharpness_of_tails", "ensemble", 4].text) == "7.25 ± 0.50"
    titles = [texts(n, "span", "name")[0] for n in document.find_all("figcaption")]
    assert not [title for title in titles if re.search("bound|standard_error|infinite", title)]
    assert "Numerical error: at most 0.00014, standard error 1.1×10⁻⁶." in document.text


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_samples_are_not_called_pixels(kind, run_document) -> None:
    results = fake.results(fake.scored_file("a", kind=kind, members=(1, 2), counted="samples"))
    text = visible(run_document(results))
    assert "pixel" not in text
    assert "valid samples" in text


def test_a_ranking_has_no_word_on_calibration(run_document) -> None:
    file = fake.scored_file("a", members=(1, 2))
    for m, metrics in file.score.summary.items():
        file.score.summary[m] = {name: stat for name, stat in metrics.items() if name.startswith(("ause", "rmse"))}
    file.score.kind, file.score.curves = "ranking", {"sparsification": file.score.curves["sparsification"]}
    text = visible(run_document(fake.results(file)))
    assert not re.search("[Cc]alibrat|Over- or under-confident|AUCE", text)
    assert "Sparsification" in text


def test_files_say_path_members_pixels_uncertainty_and_notes(run_document) -> None:
    notes = ["12,034 pixels had a variance of 0."]
    first = fake.scored_file("data/a.zarr", members=(1, 2), notes=notes)
    pixels = Tally(valid=8_500_000, masked=7, ignored=6, skipped=5)
    second = fake.scored_file("b.npz", members=(1, 2), pixels=pixels, pool=26)
    document = run_document(fake.results(first, second))
    paths, about = (texts(document.find_all("ul", "files")[0], "p", part) for part in ("path", "about"))
    assert paths == ["data/a.zarr", "b.npz"]
    assert about == [
        "wild · 33 members · M = 1, 2 · draws: random · 9,000,000 valid pixels · 1,000,000 masked · uncertainty: total",
        "wild · 26 members · M = 1, 2 · draws: random · 8,500,000 valid pixels · 7 masked · 6 with the ignored label · "
        "5 skipped · uncertainty: total",
    ]
    assert texts(document, "p", "note") == notes
    assert "1 note on stored predictions" in texts(document, "p", "pointer")
    assert "different numbers of valid pixels (8,500,000, 9,000,000)" in plain(document.text)


def test_overlap_is_said_and_every_m_can_be_chosen(scene_document) -> None:
    text = plain(scene_document("three_categorical").text)
    assert "two draws share more than 50 % of their members (62 % at M = 16)" in text
    document = scene_document("two_gaussian")
    assert "two draws share" not in plain(document.text)
    layers = [g for g in document.find_all("g", "layer") if g.attributes.get("data-m")]
    assert {g.attributes["data-m"] for g in layers} == {"1", "2", "4", "8", "16"}
    assert {g.attributes["data-m"] for g in layers if "chosen" in g.classes} == {"16"}


def test_files_with_the_same_method_get_labels_of_their_own(run_document) -> None:
    two = [fake.scored_file(f"{folder}/x.zarr", method="ensemble", members=(1, 2)) for folder in "ab"]
    found = cells(run_document(fake.results(*two)))
    assert {label for _, label, _ in found} == {"ensemble (a/x.zarr)", "ensemble (b/x.zarr)"}


def test_only_with_an_in_domain_the_cost_of_the_hardest_shift_is_said(scene_document, run_document, capsys) -> None:
    (results,) = fake.SCENES["shifted_scores"]()
    assert [facts.role for facts in results.domains.values()] == ["in-domain", "shifted", "shifted"]
    print_tables(results)
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("day → fog, the hardest shift: its effect")
    assert all(re.search(r"RMSE \(m\) .* → .*, worse\)", line) for line in lines[start + 1 : start + 3])
    assert "Effect of the shift day → fog" in texts(scene_document("shifted_scores"), "h4")
    assert "Effect of the shift" not in run_document(fake.two_gaussian("day", "night")).text


def test_report_puts_runs_and_stored_predictions_on_one_page(tmp_path, command, save) -> None:
    run = fake.small()
    labels = [facts.label for facts in run.domains.values()]
    files = (fake.scored_file(label, method="theirs", domain=label, members=(1, 2)) for label in labels)
    scores = fake.results(*files)
    ours, theirs = read_runs([run, scores])
    assert (theirs.problem, list(theirs.domains)) == (ours.problem, list(ours.domains))
    assert [facts.role for facts in theirs.domains.values()] == [facts.role for facts in ours.domains.values()]
    out, markdown = tmp_path / "report.html", tmp_path / "tables.md"
    paths = save(run, tmp_path / "run"), save(scores, tmp_path / "theirs.json")
    said = command("report", *paths, "--out", out, "--markdown", markdown)
    page = out.read_text(encoding="utf-8")
    assert "what their methods were trained on is not known here" in page
    assert "is not the same data in all runs" in page  # other numbers of pixels
    assert "trained on different data" not in page
    for text in (page, said.out, markdown.read_text(encoding="utf-8")):
        assert "theirs · scored predictions" in text
    refused = command("report", paths[1], "--out", paths[1])
    assert refused.status == 2
    assert "written over" in refused.err
