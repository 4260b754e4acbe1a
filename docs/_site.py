"""Hooks of mkdocs.yml: pages that are made from files outside of docs/, and the reference of the public API.

Links to code have no page on the site: their text stands without a link.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import epibench
from epibench import metrics

ROOT = Path(__file__).resolve().parents[1]
# Files outside of docs/ that are pages, and the pages that they become.
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
# Functions that have the names of packages.
PREPARING = [
    ("report", "reading"),
    *((name, "preparing") for name in ("recipes", "reference", "check", "preview", "export_scenes")),
]
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add what is not in docs/."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=as_page(text)))
    files.append(File.generated(config, "api-reference.md", content=api_reference()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links from docs/ to the files that are pages, and to code."""
    return LINK.sub(lambda link: from_docs(link, page.file.src_uri.count("/")), markdown)


def as_page(text: str) -> str:
    """A file beside docs/ as a page within it."""
    return re.sub(r"\]\(docs/", "](", LINK.sub(from_root, text))


def from_root(link: re.Match[str]) -> str:
    """A link of a file beside docs/."""
    text, (path, anchor, place) = link[1], link[2].partition("#")
    if path in PAGES:
        return f"[{text}]({PAGES[path]}{anchor}{place})"
    return link[0] if path.startswith(("docs/", "http")) or not path else text


def from_docs(link: re.Match[str], depth: int) -> str:
    """A link of a page; depth: folders that it is below docs/."""
    text, (path, anchor, place) = link[1], link[2].partition("#")
    out = "../" * (depth + 1)
    if not path.startswith(out):
        return link[0]
    name = path.removeprefix(out)
    return f"[{text}]({'../' * depth}{PAGES[name]}{anchor}{place})" if name in PAGES else text


def api_reference() -> str:
    """One page with everything that is public: the functions of epibench, then its metrics, by file."""
    parts = ["# API reference", "What a user of the library calls. [Public API](api.md) has examples.", "## epibench"]
    parts += [f"::: epibench.{module}.{name}" for name, module in (*epibench._MODULES.items(), *PREPARING)]
    for module, names in metrics._NAMES.items():
        parts.append(f"## epibench.metrics: {module.replace('_', ' ')}")
        parts += [f"::: epibench.metrics.{module}.{name}" for name in names.split()]
    return "\n\n".join(parts) + "\n"
