"""What every page is made of: templates, styles, and a script that the page's own policy names by its hash."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from epibench.report.charts import swatch
from epibench.report.class_styles import class_swatch

SCRIPT = "page.js"


def render(template: str, styles: Sequence[str], switch_rules: Sequence[str], **context: Any) -> str:
    """A whole page as text: one file that needs nothing else."""
    environment = _environment()
    script = _source(environment, SCRIPT)
    return environment.get_template(template).render(
        style=Markup("".join(_source(environment, name) for name in styles)),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        switch_rules=[Markup(rule) for rule in switch_rules],
        **context,
    )


def listed(words: Sequence[str]) -> str:
    """Words as a, b and c."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("epibench.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["swatch"] = swatch
    environment.globals["class_swatch"] = class_swatch
    return environment


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
