"""The page in a real browser: its script runs under its own policy, its switches work, and nothing sticks out."""

import re
from collections.abc import Callable
from pathlib import Path

import fake
import pytest
from browser import dump, on_a_phone, seen_at
from html_tree import Rendered

from epibench.report import write_run_page

RenderedScene = Callable[[str], Rendered]
SEEN = """const shown = (e) => view.getComputedStyle(e).display !== "none";
  const seen = (parts) => [...parts].filter(shown).map((e) => e.dataset.m);
  const point = (chart) => {
    const at = { clientX: chart.getBoundingClientRect().right - 20, clientY: 20, bubbles: true };
    chart.dispatchEvent(new view.PointerEvent("pointermove", at));
    return page.getElementById("readout").innerText;
  };"""
TOY = f"""(view, page) => {{ {SEEN}
  for (const end of ["convention-gustafsson2020", "direction-method_to_reference", "region-train"])
    page.querySelector(`[id$='-kl-${{end}}']`).checked = true;
  return {{ seen: seen(page.querySelectorAll("div.layer")) }};
}}"""
DENSE = f"""(view, page) => {{ {SEEN}
  for (const end of ["-scales-scale-own", "-pictures0-1-image-1"])
    page.querySelector(`[id$='${{end}}']`).checked = true;
  const readout = point(page.querySelector("#problem0-scales .layer[data-m='own'] svg.chart"));
  const m = page.getElementById("problem0-at-m-m-2");
  if (m) m.checked = true;
  return {{
    readout,
    curves: [...new Set(seen(page.querySelectorAll("#problem0-at-m g.layer")))],
    scales: seen(page.querySelectorAll("#problem0-scales div.layer")),
    images: seen(page.querySelectorAll("#problem0-pictures0-1 div.layer")),
  }};
}}"""
STORED = f"""(view, page) => {{ {SEEN}
  page.getElementById("problem0-at-m-m-2").checked = true;
  const readout = point(page.querySelector("#problem0-scales svg.chart"));
  return {{ readout, curves: [...new Set(seen(page.querySelectorAll("#problem0-at-m g.layer")))] }};
}}"""
CLASSES = """(view, page) => {
  page.querySelector("[id$='-per-class-metric-3']").checked = true;
  const layers = [...page.querySelectorAll("#problem0-per-class > .layer")];
  const seen = layers.filter((e) => view.getComputedStyle(e).display !== "none");
  const scrolls = seen[0].querySelector(".scroll");
  return { seen: seen.map((e) => e.querySelector(".lead").innerText.split(",")[0]), cut: scrolls.scrollWidth > 366 };
}"""
CARDS = """(view, page) => {
  const rows = {};
  for (const card of page.querySelectorAll(".cards .card")) {
    const box = card.getBoundingClientRect(), row = (rows[Math.round(box.top)] ??= {});
    for (const part of [".meaning", ".headline", ".bars, .big", ".words"]) {
      const found = card.querySelector(part);
      if (found) (row[part] ??= []).push(Math.round(found.getBoundingClientRect().top - box.top));
    }
  }
  return { rows: Object.values(rows) };
}"""


@pytest.mark.parametrize("scene", ["toy_hostile", "classification", "dense_hostile", "class_hostile", "hostile_scores"])
def test_script_runs_without_errors_under_the_page_policy(scene: str, chromium: str, tmp_path: Path) -> None:
    page = write_run_page(fake.SCENES[scene](), tmp_path / "report.html")
    document, log = dump(chromium, page, tmp_path / "profile")
    assert "CONSOLE" not in log, log
    assert "<figure>" in document
    assert not re.search(r'class="chart"[^>]*><title>', document)  # the script takes titles off charts


@pytest.mark.parametrize(
    ("scene", "look", "wanted"),
    [
        ("two_runs", TOY, {"seen": ["gustafsson2020-method_to_reference-train"]}),
        ("classification", TOY, {"seen": ["gustafsson2020-method_to_reference-train"]}),
        ("depth", DENSE, {"scales": ["own"], "images": ["1"], "curves": ["2"]}),
        ("two_dense_runs", DENSE, {"scales": ["own"], "images": ["1"], "curves": []}),
        ("depth_and_segmentation", DENSE, {"scales": ["own"], "images": ["1"], "curves": ["2"]}),
        ("crowded", STORED, {"curves": ["2"]}),
        ("twice_evaluated", "() => ({})", {}),
        ("segmentation", CLASSES, {"seen": ["ECE"], "cut": True}),  # the table scrolls within the page
    ],
)
def test_a_page_fits_a_phone_and_its_switches_and_read_outs_work(
    scene: str, look: str, wanted: dict[str, object], chromium: str, tmp_path: Path, rendered_scene: RenderedScene
) -> None:
    facts = on_a_phone(chromium, rendered_scene(scene).page, look, tmp_path)
    assert facts["scroll"] <= facts["inner"] == 400
    assert {key: facts[key] for key in wanted} == wanted
    if look in (DENSE, STORED):
        assert ("M\u00a0=\u00a08" if look == DENSE else "M\u00a0=\u00a0") in facts["readout"]
        assert look == DENSE or "mc_dropout" in facts["readout"]


@pytest.mark.parametrize("width", [800, 1000])
def test_what_cards_of_a_row_have_in_common_stands_on_one_line(width: int, chromium: str, tmp_path: Path) -> None:
    results = fake.two_gaussian()
    first, second = (score.summary for score in results.scores)
    for m in first:  # so that a long headline stands beside a short one
        first[m]["auce"], second[m]["auce"] = second[m]["auce"], first[m]["auce"]
    results.methods["ensemble"].label = "an ensemble that has a long name"
    text = write_run_page([results], tmp_path / "report.html").read_text(encoding="utf-8")
    rows = seen_at(width, chromium, text, CARDS, tmp_path)["rows"]
    assert max(len(row[".meaning"]) for row in rows) > 1
    for row in rows:
        assert all(len(set(tops)) == 1 for tops in row.values()), row
