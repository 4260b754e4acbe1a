"""Pages from templates: styles, switches, and a script that the policy of the page names by its hash.

A switch works by style rules alone: a layer shows if the options in its key, or in one of its keys, are checked.
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
from epibench.report.numbers import count, duration


@dataclass(frozen=True)
class Option:
    """A setting of a switch; its key becomes a part of ids and style rules."""

    key: str
    text: str
    chosen: bool = False


@dataclass(frozen=True)
class Switch:
    """A question with options, of which one is chosen."""

    name: str
    legend: str
    options: Sequence[Option]


def switch_rules(scope: str, switches: Sequence[Switch]) -> list[Markup]:
    """Style rules that show the layers of the checked options within the element with the id `scope`."""
    rules = []
    for options in itertools.product(*(switch.options for switch in switches)):
        if all(option.chosen for option in options):
            continue  # seen without a rule, and so also in a browser without :has()
        ids = [f"{scope}-{switch.name}-{option.key}" for switch, option in zip(switches, options, strict=True)]
        when, key = f"#{scope}" + "".join(f":has(#{one}:checked)" for one in ids), "-".join(one.key for one in options)
        rules.append(Markup(f"{when} .layer[data-m] {{ display: none }}"))
        rules.append(Markup(f'{when} .layer[data-m~="{key}"] {{ display: revert }}'))
    return rules


def render(template: str, styles: Sequence[str], **context: Any) -> str:
    """A whole page as text: one file without links to other files."""
    environment = _environment()
    assert environment.loader is not None
    script, *sources = (environment.loader.get_source(environment, name)[0] for name in ("page.js", *styles))
    return environment.get_template(template).render(
        style=Markup(style_sheet() + "".join(sources)),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        rules=[],  # the templates add the rules of each switch
        **context,
    )


def fragment(template: str, **context: Any) -> Markup:
    """A part of another page."""
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
    functions = (swatch, class_swatch, style_class, count, duration, switch_rules)
    environment.globals.update({function.__name__: function for function in functions})
    return environment
