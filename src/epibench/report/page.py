"""What every page is made of: templates, styles, switches, and a script that the page's own policy names by its hash.

A switch chooses what is seen by style rules alone: layers show when the options of their key, or of one of several, are
checked.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from epibench.report.charts.lines import class_swatch, swatch
from epibench.report.charts.svg import style_class, style_sheet

SCRIPT = "page.js"


@dataclass(frozen=True)
class Option:
    """One setting of a switch; its key is a plain word, as it becomes part of ids and style rules."""

    key: str
    text: str
    chosen: bool = False


@dataclass(frozen=True)
class Switch:
    """A question with options, of which one is chosen."""

    name: str
    legend: str
    options: Sequence[Option]


def layer_key(options: Sequence[Option]) -> str:
    """The key of what is seen when these options, one of each switch, are chosen."""
    return "-".join(option.key for option in options)


def switch_rules(scope: str, switches: Sequence[Switch]) -> list[str]:
    """Style rules that show the layers of the checked options within the element whose id is `scope`."""
    rules = []
    for options in itertools.product(*(switch.options for switch in switches)):
        if all(option.chosen for option in options):
            continue  # seen without a rule, and so also in a browser that knows no :has()
        ids = [f"{scope}-{switch.name}-{option.key}" for switch, option in zip(switches, options, strict=True)]
        when = f"#{scope}" + "".join(f":has(#{identity}:checked)" for identity in ids)
        rules.append(f"{when} .layer[data-m] {{ display: none }}")
        rules.append(f'{when} .layer[data-m~="{layer_key(options)}"] {{ display: revert }}')
    return rules


def render(template: str, styles: Sequence[str], switch_rules: Sequence[str], **context: Any) -> str:
    """A whole page as text: one file that needs nothing else."""
    environment = _environment()
    script = _source(environment, SCRIPT)
    return environment.get_template(template).render(
        style=Markup(style_sheet() + "".join(_source(environment, name) for name in styles)),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        switch_rules=[Markup(rule) for rule in switch_rules],
        **context,
    )


def fragment(template: str, **context: Any) -> Markup:
    """A part of somebody else's page."""
    return Markup(_environment().get_template(template).render(**context))


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
    environment.globals["style_class"] = style_class
    return environment


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
