"""Numbers and lists as text: as many digits as spread and numerical error support, points aligned."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

MISSING = "–"
NO_BREAK_SPACE = "\u00a0"
FIGURE_SPACE = "\u2007"
PUNCTUATION_SPACE = "\u2008"
MAX_DECIMALS = 6
MAX_SIGNIFICANT = 6
_POWER = re.compile("×10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_PLAIN = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def magnitude(value: float) -> int:
    """The power of ten of the leading digit."""
    return math.floor(math.log10(abs(value)))


def decimals_for(value: float, std: float | None, bound: float = 0.0) -> int:
    """Decimals that show two significant digits of the std, or four of the value where there is none.

    bound: of the numerical error; no digit is shown that is smaller than its first.
    """
    decimals = 3 - magnitude(value) if value else 0
    if std:
        decimals = 1 - magnitude(std)
        if value:
            decimals = min(decimals, MAX_SIGNIFICANT - 1 - magnitude(value))
    return min(decimals, -magnitude(bound)) if bound else decimals


def fixed(value: float, decimals: int) -> str:
    """A number with so many decimals, thousands separators and a true minus sign."""
    text = f"{round(value, decimals):,.{max(decimals, 0)}f}"
    return text.replace("-", "−") if text.strip("-0.,") else text.lstrip("-")


def scientific(value: float, digits: int = 2) -> str:
    """A number as 1.2×10⁻⁷."""
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa.replace('-', '−')}×10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def plain_powers(text: str) -> str:
    """A text with powers of ten as 1.2e-5, which is shorter and known to every terminal."""
    return _POWER.sub(lambda power: "e" + power[1].translate(_PLAIN), text)


def spelled(value: float, decimals: int, digits: int) -> str:
    """A number in plain notation, or in powers of ten where that would be mostly zeros."""
    if value and (magnitude(value) < -4 or magnitude(value) >= 9):
        return scientific(value, digits)
    return fixed(value, min(decimals, MAX_DECIMALS + 2))


def significant(value: float | None, digits: int = 3) -> str:
    """A number to some significant digits."""
    if value is None:
        return MISSING
    return spelled(value, digits - 1 - magnitude(value) if value else 0, digits)


def value_text(mean: float | None, std: float | None, bound: float = 0.0) -> str:
    """A mean, rounded to two significant digits of its std; below the bound of its numerical error, that bound."""
    if mean is None:
        return MISSING
    if abs(mean) < bound:
        return f"< {_rounded_up(bound)}"
    return spelled(mean, decimals_for(mean, std, bound), 4)


def spread_text(mean: float | None, std: float | None, bound: float = 0.0) -> str:
    """A std with the decimals of its mean, as ± 0.012; empty where there is none, or no mean that it is of."""
    if mean is None or std is None or abs(mean) < bound:
        return ""
    decimals = decimals_for(mean, std, bound)
    if std and round(std, decimals) == 0 and bound:
        return f"± <{fixed(10.0**-decimals, decimals)}"
    hidden = mean != 0 and magnitude(mean) < -4  # the mean is in powers of ten: so is its std
    if std and (hidden or round(std, decimals) == 0):
        return f"± {scientific(std)}"
    return f"± {spelled(std, decimals, 2)}"


def measured(mean: float | None, std: float | None, bound: float = 0.0) -> str:
    """A mean with its std, as 0.512 ± 0.012."""
    return f"{value_text(mean, std, bound)} {spread_text(mean, std, bound)}".rstrip()


def _rounded_up(bound: float) -> str:
    """A bound to one digit that is no smaller."""
    step = 10.0 ** magnitude(bound)
    return significant(math.ceil(bound / step - 1e-9) * step, 1)


def count(number: float | None) -> str:
    """A whole number with thousands separators."""
    return MISSING if number is None else fixed(number, 0)


def duration(seconds: float | None) -> str:
    """A time as 4.2 s, 7 min 12 s or 3 h 5 min."""
    if seconds is None:
        return MISSING
    if seconds < 60:
        return f"{significant(seconds, 2)}{NO_BREAK_SPACE}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{NO_BREAK_SPACE}min {rest}{NO_BREAK_SPACE}s"
    return f"{minutes // 60}{NO_BREAK_SPACE}h {minutes % 60}{NO_BREAK_SPACE}min"


def m_equals(m: int) -> str:
    """The number of members as M = 8, which does not break over lines."""
    return f"M{NO_BREAK_SPACE}={NO_BREAK_SPACE}{m}"


def percent(fraction: float, digits: int = 2) -> str:
    """A fraction in per cent, with a sign only if negative."""
    return f"{significant(100 * fraction, digits) if fraction else 0}{NO_BREAK_SPACE}%"


def signed_percent(fraction: float) -> str:
    """A fraction in whole per cent with its sign."""
    return f"{'+' if fraction > 0 else ''}{fixed(100 * fraction, 0)}{NO_BREAK_SPACE}%"


def probability_text(p: float) -> str:
    """A probability to two digits; what is smaller than a thousandth only so."""
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def told_apart(shares: tuple[float, float] | None) -> str:
    """From which shares on, below and above, a difference would be seen; one below −100 % is out of reach."""
    if shares is None:
        return MISSING
    low, high = shares
    return f"{MISSING if low <= -1 else signed_percent(low)}, {signed_percent(high)}"


def change(before: float, after: float) -> str:
    """A relative change, as −37 % or × 4.2; the difference where zero lies between."""
    if before == 0 or before * after < 0:
        return f"{'+' if after > before else ''}{significant(after - before, 2)}"
    if after / before >= 3:
        return f"×{NO_BREAK_SPACE}{significant(after / before, 2)}"
    ratio = after / before - 1
    if abs(ratio) < 0.0005:
        return "unchanged"
    return f"{'+' if ratio > 0 else ''}{fixed(100 * ratio, 1 if abs(ratio) < 0.1 else 0)}{NO_BREAK_SPACE}%"


def aligned(texts: list[str]) -> list[str]:
    """The texts, padded after the decimal point so that points line up when right-aligned."""
    fractions = [len(t.partition(".")[2]) if "×" not in t and t != MISSING else 0 for t in texts]
    width = max(fractions, default=0)
    padded = []
    for text, digits in zip(texts, fractions, strict=True):
        if width == 0 or "×" in text or text == MISSING:
            padded.append(text)
        else:
            point = PUNCTUATION_SPACE if digits == 0 else ""
            padded.append(text + point + FIGURE_SPACE * (width - digits))
    return padded


def listed(words: Sequence[str], most: int | None = None) -> str:
    """Words as a, b and c; those beyond the most that are named as a, b and 3 more."""
    if most is not None and len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
