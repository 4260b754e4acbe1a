"""A headless browser for tests: the document after its scripts, and what was logged."""

import html
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --enable-logging=stderr"
)
# A browser window has a least width, a frame has none; a frame made from text may be looked into.
FRAME = """<!DOCTYPE html><iframe width="{width}" height="900" style="border: 0" srcdoc="{page}"></iframe>
<script>addEventListener("load", () => {{
  const view = document.querySelector("iframe").contentWindow, page = view.document;
  const look = {look};
  const facts = {{ inner: view.innerWidth, scroll: page.documentElement.scrollWidth, ...look(view, page) }};
  const out = document.createElement("pre");
  out.id = "facts";
  out.textContent = JSON.stringify(facts);
  document.body.append(out);
}});</script>"""


def dump(chromium: str, page: Path, profile: Path) -> tuple[str, str]:
    """The page's document after its scripts, and what the browser logged."""
    command = [chromium, *OPTIONS.split(), f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    # Chromium starts only with a home it may write to and a temporary folder short enough for its socket.
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as home:
        environment = os.environ | {"HOME": home, "TMPDIR": home}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    return done.stdout, done.stderr


def on_a_phone(chromium: str, text: str, look: str, folder: Path) -> dict[str, Any]:
    """What the function `look(view, page)` finds in the page, 400 pixels wide, and its widths; nothing is logged."""
    return seen_at(400, chromium, text, look, folder)


def seen_at(width: int, chromium: str, text: str, look: str, folder: Path) -> dict[str, Any]:
    """The same, so many pixels wide."""
    wrapper = folder / "wrapper.html"
    wrapper.write_text(FRAME.format(page=html.escape(text), look=look, width=width), encoding="utf-8")
    document, log = dump(chromium, wrapper, folder / "profile")
    assert "CONSOLE" not in log, log
    (found,) = re.findall(r'<pre id="facts">(.*?)</pre>', document, flags=re.DOTALL)
    facts: dict[str, Any] = json.loads(html.unescape(found))
    return facts
