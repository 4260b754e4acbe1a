"""Domains of scenes: `clean`, `wild`, or single factors of the shift between them.

A factor has a level from 0 (as in clean) to 1 (as in wild). A severity s from 0 to 5 sets all levels to s / 5.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field, fields

from epibench.errors import InputError
from epibench.street.arrays import generator

MAX_SEVERITY = 5.0


def _factor(effect: str) -> float:
    level: float = field(default=0.0, metadata={"effect": effect})
    return level


@dataclass(frozen=True)
class Domain:
    """The level of every factor, each from 0 to 1.

    mixed: a scene has at most one of haze, rain and night. Otherwise a scene has all three, each at its level.
    """

    layout: float = _factor("other roads, proportions and traffic; people drive on the left in some scenes")
    objects: float = _factor("kinds of objects that clean never shows")
    texture: float = _factor("grain, stains and patterns on surfaces; clouds")
    shadows: float = _factor("shadows that the sun casts")
    colour: float = _factor("colour casts and saturation")
    exposure: float = _factor("over- and underexposure, contrast, darker corners")
    haze: float = _factor("haze and fog")
    rain: float = _factor("streaks, wet roads, a grey sky")
    night: float = _factor("dusk and night, with lamps and head lights")
    blur: float = _factor("lens and motion blur")
    noise: float = _factor("noise of the camera")
    compression: float = _factor("JPEG compression")
    lidar: float = _factor("sparse depth in scan lines, with drop-outs and mixed returns")
    target: float = _factor("semi-dense depth with the errors of accumulated scans")
    mixed: bool = False

    def __post_init__(self) -> None:
        for name in FACTORS:
            given = getattr(self, name)
            try:
                level = float(given)  # from NumPy's as well
            except (TypeError, ValueError):
                level = math.nan
            if not 0 <= level <= 1:
                raise InputError(f"street domain: level {given!r} of '{name}' is not between 0 and 1")
            object.__setattr__(self, name, level)
        object.__setattr__(self, "mixed", bool(self.mixed))

    def without(self, *factors: str) -> Domain:
        """The same domain with these factors as in clean."""
        for factor in factors:
            if factor not in FACTORS:
                raise InputError(f"street factor '{factor}' is unknown; there are {', '.join(FACTORS)}")
        return dataclasses.replace(self, **dict.fromkeys(factors, 0.0))  # type: ignore[arg-type]


FACTORS: dict[str, str] = {each.name: each.metadata["effect"] for each in fields(Domain) if each.metadata}


def make_domain(name: str = "clean", severity: float | None = None) -> Domain:
    """Return the domain `clean`, `wild`, or of factors like `haze` or `night+noise`.

    The severity goes from 0 to 5. The default is 5; clean has only 0.
    """
    if severity is not None and not 0 <= severity <= MAX_SEVERITY:
        raise InputError(f"street severity {severity:g}: give a number from 0 (clean) to {MAX_SEVERITY:g}")
    if name == "clean":
        if severity:
            raise InputError(f"street domain 'clean' has severity 0, not {severity:g}: take 'wild'")
        return Domain()
    level = (MAX_SEVERITY if severity is None else severity) / MAX_SEVERITY
    if name == "wild":
        return Domain(**dict.fromkeys(FACTORS, level), mixed=True)
    factors = name.split("+")
    for factor in factors:
        if factor not in FACTORS:
            raise InputError(f"street domain '{factor}' is unknown; there are clean, wild, {', '.join(FACTORS)}")
    return Domain(**dict.fromkeys(factors, level))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Conditions:
    """The strength of each factor in one scene, from 0 to 1.

    `toss` has a number in [0, 1) for each factor, which chooses its variant.
    """

    strength: dict[str, float]
    toss: dict[str, float]

    def __getitem__(self, factor: str) -> float:
        return self.strength[factor]


def draw_conditions(domain: Domain, seed: int, index: int) -> Conditions:
    """Return the conditions of a scene: random, but proportional to the level, so that they grow with severity."""
    rng = generator(seed, index, "conditions")
    shares = dict(zip(FACTORS, rng.uniform(0.6, 1.0, len(FACTORS)).tolist(), strict=True))
    toss = dict(zip(FACTORS, rng.random(len(FACTORS)).tolist(), strict=True))
    if domain.mixed:
        weather = ("haze", "rain", "night", "")
        chosen = weather[int(rng.choice(4, p=(0.15, 0.15, 0.2, 0.5)))]
        shares |= {name: shares[name] * (name == chosen) for name in weather[:3]}
    return Conditions({name: shares[name] * getattr(domain, name) for name in FACTORS}, toss)
