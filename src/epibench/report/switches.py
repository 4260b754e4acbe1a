"""Switches that choose what is seen, by style rules alone: layers show when the options of their key are checked."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


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
        rules.append(f'{when} .layer[data-m="{layer_key(options)}"] {{ display: revert }}')
    return rules
