"""Numbers and lists as text: as many digits as spread and numerical error support, points aligned."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

MISSING = "–"
NO_BREAK_SPACE = "\u00a0"
FIGURE_SPACE = "\u2007"
PUNCTUATION_SPACE = "\u2008"
MAX_DECIMALS = 8
MAX_SIGNIFICANT = 6
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PLAIN = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def magnitude(value: float) -> int:
    """The power of ten of the leading digit."""
    return math.floor(math.log10(abs(value)))


def _decimals(value: float, std: float | None, bound: float) -> int:
    """Decimals for two significant digits of the std, or four of the value; no digit is below the bound."""
    decimals = 3 - magnitude(value) if value else 0
    if std:
        decimals = 1 - magnitude(std)
        if value:
            decimals = min(decimals, MAX_SIGNIFICANT - 1 - magnitude(value))
    return min(decimals, -magnitude(bound)) if bound else decimals


def fixed(value: float, decimals: int) -> str:
    """A number with thousands separators and a true minus sign."""
    text = f"{round(value, decimals):,.{max(decimals, 0)}f}"
    return text.replace("-", "−") if text.strip("-0.,") else text.lstrip("-")


def scientific(value: float, digits: int = 2) -> str:
    """A number as 1.2×10⁻⁷."""
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa.replace('-', '−')}×10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def plain_powers(text: str) -> str:
    """A text with powers of ten as 1.2e-5, for terminals."""
    return re.sub("×10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda power: "e" + power[1].translate(_PLAIN), text)


def _spelled(value: float, decimals: int, digits: int) -> str:
    """A number in plain notation, or in powers of ten instead of many zeros."""
    if value and (magnitude(value) < -4 or magnitude(value) >= 9):
        return scientific(value, digits)
    return fixed(value, min(decimals, MAX_DECIMALS))


def significant(value: float | None, digits: int = 3) -> str:
    """A number with this many significant digits."""
    if value is None:
        return MISSING
    return _spelled(value, digits - 1 - magnitude(value) if value else 0, digits)


def value_text(mean: float | None, std: float | None, bound: float = 0.0) -> str:
    """A mean with two significant digits of its std; `< bound` if it is below its numerical error."""
    if mean is None:
        return MISSING
    if abs(mean) < bound:  # rounded up to one digit
        step = 10.0 ** magnitude(bound)
        return f"< {significant(math.ceil(bound / step - 1e-9) * step, 1)}"
    return _spelled(mean, _decimals(mean, std, bound), 4)


def spread_text(mean: float | None, std: float | None, bound: float = 0.0) -> str:
    """A std with the decimals of its mean, e.g. ± 0.012; empty without a std or a mean."""
    if mean is None or std is None or abs(mean) < bound:
        return ""
    decimals = _decimals(mean, std, bound)
    if std and round(std, decimals) == 0 and bound:
        return f"± <{fixed(10.0**-decimals, decimals)}"
    hidden = mean != 0 and magnitude(mean) < -4  # the mean is in powers of ten: so is its std
    if std and (hidden or round(std, decimals) == 0):
        return f"± {scientific(std)}"
    return f"± {_spelled(std, decimals, 2)}"


def measured(mean: float | None, std: float | None, bound: float = 0.0) -> str:
    """A mean with its std, e.g. 0.512 ± 0.012."""
    return f"{value_text(mean, std, bound)} {spread_text(mean, std, bound)}".rstrip()


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
    """The number of members as M = 8, without line breaks."""
    return f"M{NO_BREAK_SPACE}={NO_BREAK_SPACE}{m}"


def percent(fraction: float, digits: int = 2) -> str:
    """A fraction in per cent, with a sign only if negative."""
    return f"{significant(100 * fraction, digits) if fraction else 0}{NO_BREAK_SPACE}%"


def signed_percent(fraction: float, decimals: int = 0) -> str:
    """A fraction in per cent with its sign."""
    return f"{'+' if fraction > 0 else ''}{fixed(100 * fraction, decimals)}{NO_BREAK_SPACE}%"


def change(before: float, after: float) -> str:
    """A relative change, e.g. −37 % or × 4.2; the difference if zero lies between."""
    if before == 0 or before * after < 0:
        return f"{'+' if after > before else ''}{significant(after - before, 2)}"
    if after / before >= 3:
        return f"×{NO_BREAK_SPACE}{significant(after / before, 2)}"
    ratio = after / before - 1
    return "unchanged" if abs(ratio) < 0.0005 else signed_percent(ratio, 1 if abs(ratio) < 0.1 else 0)


def aligned(texts: list[str]) -> list[str]:
    """The texts, padded after the decimal point, so that points line up when right-aligned."""
    fractions = [len(t.partition(".")[2]) if "×" not in t and t != MISSING else 0 for t in texts]
    width, padded = max(fractions, default=0), []
    for text, digits in zip(texts, fractions, strict=True):
        point = PUNCTUATION_SPACE if digits == 0 else ""
        unaligned = width == 0 or "×" in text or text == MISSING
        padded.append(text if unaligned else text + point + FIGURE_SPACE * (width - digits))
    return padded


def listed(words: Sequence[str], most: int | None = None) -> str:
    """Words as a, b and c; beyond the most as a, b and 3 more."""
    if most is not None and len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
