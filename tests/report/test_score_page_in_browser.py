"""The page in a real browser: its script runs under its own policy, and nothing sticks out on a phone."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import fake_results
import pytest

from epibench.report import write_score_page

OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --enable-logging=stderr"
)
# A browser window has a least width, a frame has none; a frame made from text may be looked into.
FRAME = """<!DOCTYPE html><iframe width="400" height="900" style="border: 0" srcdoc="{page}"></iframe>
<script>addEventListener("load", () => {{
  const view = document.querySelector("iframe").contentWindow, page = view.document;
  const chart = page.querySelector("svg.chart"), box = chart.getBoundingClientRect();
  const at = {{ clientX: box.right - 20, clientY: box.top + 20, bubbles: true }};
  chart.dispatchEvent(new view.PointerEvent("pointermove", at));
  const readout = page.getElementById("readout").innerText;
  page.querySelector("[id$='-m-2']").checked = true;
  const layers = [...page.querySelectorAll(".layer[data-m]")];
  const seen = layers.filter((g) => view.getComputedStyle(g).display !== "none").map((g) => g.dataset.m);
  const expected = layers.filter((g) => g.dataset.m === "2").length;
  const facts = {{ inner: view.innerWidth, scroll: page.documentElement.scrollWidth, readout, seen, expected }};
  const out = document.createElement("pre");
  out.id = "facts";
  out.textContent = JSON.stringify(facts);
  document.body.append(out);
}});</script>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs the program chromium on the PATH (Debian: apt-get install chromium)")
    return found


def dump(chromium: str, page: Path, profile: Path) -> tuple[str, str]:
    """The page's document after its scripts, and what the browser logged."""
    command = [chromium, *OPTIONS.split(), f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr


def test_script_runs_without_errors_under_the_page_policy(chromium: str, tmp_path: Path) -> None:
    page = write_score_page(fake_results.hostile(), tmp_path)
    document, log = dump(chromium, page, tmp_path / "profile")
    assert "CONSOLE" not in log, log
    assert '<svg viewBox="0 0 360' in document
    assert not re.search(r'class="chart"[^>]*><title>', document)  # the script takes titles off charts


def test_fits_a_phone_and_answers_the_pointer(chromium: str, tmp_path: Path) -> None:
    text = write_score_page(fake_results.crowded(), tmp_path).read_text(encoding="utf-8")
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(FRAME.format(page=html.escape(text)), encoding="utf-8")
    document, log = dump(chromium, wrapper, tmp_path / "profile")
    assert "CONSOLE" not in log, log
    (facts_text,) = re.findall(r'<pre id="facts">(.*?)</pre>', document)
    facts = json.loads(html.unescape(facts_text))
    assert facts["inner"] == 400
    assert facts["scroll"] <= 400
    assert "M\u00a0=\u00a0" in facts["readout"]
    assert "mc_dropout" in facts["readout"]
    assert facts["seen"] == ["2"] * facts["expected"]
    assert facts["expected"] > 0
