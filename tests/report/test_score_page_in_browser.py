"""The page in a real browser: its script runs under its own policy, and nothing sticks out on a phone."""

import re
from pathlib import Path

import fake_results
import pytest
from browser import dump, on_a_phone, seen_at

from epibench.report import write_score_page

LOOK = """(view, page) => {
  const chart = page.querySelector("svg.chart"), box = chart.getBoundingClientRect();
  const at = { clientX: box.right - 20, clientY: box.top + 20, bubbles: true };
  chart.dispatchEvent(new view.PointerEvent("pointermove", at));
  const readout = page.getElementById("readout").innerText;
  page.querySelector("[id$='-m-2']").checked = true;
  const layers = [...page.querySelectorAll(".layer[data-m]")];
  const seen = layers.filter((g) => view.getComputedStyle(g).display !== "none").map((g) => g.dataset.m);
  return { readout, seen, expected: layers.filter((g) => g.dataset.m === "2").length };
}"""


def test_script_runs_without_errors_under_the_page_policy(chromium: str, tmp_path: Path) -> None:
    page = write_score_page(fake_results.hostile(), tmp_path)
    document, log = dump(chromium, page, tmp_path / "profile")
    assert "CONSOLE" not in log, log
    assert '<svg viewBox="0 0 360' in document
    assert not re.search(r'class="chart"[^>]*><title>', document)  # the script takes titles off charts


def test_fits_a_phone_and_answers_the_pointer(chromium: str, tmp_path: Path) -> None:
    text = write_score_page(fake_results.crowded(), tmp_path).read_text(encoding="utf-8")
    facts = on_a_phone(chromium, text, LOOK, tmp_path)
    assert facts["inner"] == 400
    assert facts["scroll"] <= 400
    assert "M\u00a0=\u00a0" in facts["readout"]
    assert "mc_dropout" in facts["readout"]
    assert facts["seen"] == ["2"] * facts["expected"]
    assert facts["expected"] > 0


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


@pytest.mark.parametrize("width", [800, 1000])
def test_what_cards_of_a_row_have_in_common_stands_on_one_line(width: int, chromium: str, tmp_path: Path) -> None:
    results = fake_results.two_gaussian()
    first, second = (file.summary for file in results.files)
    for m in first:  # so that a long headline stands beside a short one
        first[m]["auce"], second[m]["auce"] = second[m]["auce"], first[m]["auce"]
    results.files[0].method = "an ensemble that has a long name"
    text = write_score_page(results, tmp_path).read_text(encoding="utf-8")
    rows = seen_at(width, chromium, text, CARDS, tmp_path)["rows"]
    assert max(len(row[".meaning"]) for row in rows) > 1
    for row in rows:
        assert all(len(set(tops)) == 1 for tops in row.values()), row
