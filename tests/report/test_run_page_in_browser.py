"""The run's page in a real browser: its script runs under its own policy, its pictures load, its switches work."""

from pathlib import Path

import fake_dense_run
import fake_run
import pytest
from browser import dump, on_a_phone

from epibench.report import write_run_page

SWITCHED = """(view, page) => {
  for (const end of ["convention-gustafsson2020", "direction-method_to_reference", "region-train"])
    page.querySelector(`[id$='-kl-${end}']`).checked = true;
  const layers = [...page.querySelectorAll("div.layer")];
  return { seen: layers.filter((e) => view.getComputedStyle(e).display !== "none").map((e) => e.dataset.m) };
}"""


SCENES = {**fake_run.SCENES, **fake_dense_run.SCENES}
DENSE = """(view, page) => {
  for (const end of ["-scales-scale-own", "-pictures0-1-image-1"]) page.querySelector(`[id$='${end}']`).checked = true;
  const seen = (part) => [...part.querySelectorAll("div.layer")]
    .filter((e) => view.getComputedStyle(e).display !== "none").map((e) => e.dataset.m);
  const chart = page.querySelector("#problem0-scales .layer[data-m='own'] svg.chart");
  const at = { clientX: chart.getBoundingClientRect().right - 20, clientY: 20, bubbles: true };
  chart.dispatchEvent(new view.PointerEvent("pointermove", at));
  const m = page.getElementById("problem0-at-m-m-2");
  if (m) m.checked = true;
  const curves = [...page.querySelectorAll("#problem0-at-m g.layer")];
  return {
    curves: [...new Set(curves.filter((e) => view.getComputedStyle(e).display !== "none").map((e) => e.dataset.m))],
    scales: seen(page.querySelector("#problem0-scales")),
    images: seen(page.querySelector("#problem0-pictures0-1")),
    readout: page.getElementById("readout").innerText,
  };
}"""


@pytest.mark.parametrize(
    "scene", ["regression", "classification", "hostile", "depth", "dense_hostile", "class_hostile"]
)
def test_script_runs_without_errors_under_the_page_policy(scene: str, chromium: str, tmp_path: Path) -> None:
    page = write_run_page(SCENES[scene](), tmp_path / "report.html")
    document, log = dump(chromium, page, tmp_path / "profile")
    assert "CONSOLE" not in log, log
    assert "<figure>" in document


@pytest.mark.parametrize("scene", ["two_runs", "classification"])
def test_fits_a_phone_and_shows_the_chosen_view(scene: str, chromium: str, tmp_path: Path) -> None:
    text = write_run_page(fake_run.SCENES[scene](), tmp_path / "report.html").read_text(encoding="utf-8")
    facts = on_a_phone(chromium, text, SWITCHED, tmp_path)
    assert facts["inner"] == 400
    assert facts["scroll"] <= 400
    assert facts["seen"] == ["gustafsson2020-method_to_reference-train"]


@pytest.mark.parametrize("scene", ["depth", "two_dense_runs", "depth_and_segmentation"])
def test_a_dense_page_fits_a_phone_and_its_switches_work(scene: str, chromium: str, tmp_path: Path) -> None:
    text = write_run_page(SCENES[scene](), tmp_path / "report.html").read_text(encoding="utf-8")
    facts = on_a_phone(chromium, text, DENSE, tmp_path)
    assert facts["scroll"] <= facts["inner"] == 400
    assert facts["scales"] == ["own"]
    assert facts["images"] == ["1"]
    assert facts["curves"] == ([] if scene == "two_dense_runs" else ["2"])
    assert "M\u00a0=\u00a08" in facts["readout"]


CLASSES = """(view, page) => {
  page.querySelector("[id$='-per-class-metric-3']").checked = true;
  const layers = [...page.querySelectorAll("#problem0-per-class > .layer")];
  const seen = layers.filter((e) => view.getComputedStyle(e).display !== "none");
  const scrolls = seen[0].querySelector(".scroll");
  return { seen: seen.map((e) => e.querySelector(".lead").innerText.split(",")[0]), cut: scrolls.scrollWidth > 366 };
}"""


def test_the_metric_of_classes_can_be_chosen_on_a_phone(chromium: str, tmp_path: Path) -> None:
    text = write_run_page(SCENES["segmentation"](), tmp_path / "report.html").read_text(encoding="utf-8")
    facts = on_a_phone(chromium, text, CLASSES, tmp_path)
    assert facts["scroll"] <= facts["inner"] == 400
    assert facts["seen"] == ["ECE"]
    assert facts["cut"]  # the table scrolls within the page
