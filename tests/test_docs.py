"""The code in README.md and docs/*.md runs, and prints what the text says it prints.

The ```python blocks of a file run in order, in one namespace and an empty folder. A line that ends in `# → text` must
print that text. What takes too long to run each time is fenced as ```py, with what it printed.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTS = re.compile(r"# → (.*)$", re.MULTILINE)


def blocks(text: str) -> list[tuple[int, str]]:
    """Each python block with the number of its first line."""
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in BLOCK.finditer(text)]


def run(text: str, name: str) -> list[tuple[list[str], list[str]]]:
    """What each block says it prints, and what it does print."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    found = []
    for line, source in blocks(text):
        code = compile("\n" * (line - 1) + source, name, "exec")  # tracebacks name the line of the document
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, namespace)
        if expected := PRINTS.findall(source):
            found.append((expected, printed.getvalue().splitlines()))
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_code_runs_and_prints_what_the_text_says(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for expected, printed in run(path.read_text(encoding="utf-8"), str(path)):
        assert printed == expected


def test_a_wrong_number_is_found() -> None:
    assert run("```python\nx = 1\n```\n\n```python\nprint(x + 1)  # → 3\n```\n", "") == [(["3"], ["2"])]


def test_a_block_that_fails_names_its_line() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run("text\n\n```python\n1 / 0\n```\n", "document.md")
    assert (str(caught.traceback[-1].path), caught.traceback[-1].lineno + 1) == ("document.md", 4)
