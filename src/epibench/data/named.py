"""Domains as texts, `NAME=KIND:PATH[,key=value …]`, or in a JSON or TOML file."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import ValidationError

from epibench.data.sets import DATA_SETS
from epibench.errors import ArgumentError, InputError
from epibench.files import NAME

Role = Literal["in-domain", "shifted"]
EXAMPLE = "val=camvid:DIR,split=val"
FILES = (".json", ".toml")
PATHS = {"street": "domain", "own": "name"}  # the option that PATH sets, unless it is a folder


@dataclass(frozen=True)
class NamedDomain:
    """A domain with the settings of its source, as in a recipe. `role`: None if it was not given."""

    name: str
    source: dict[str, Any]
    role: Role | None = None


def parse_domains(texts: Sequence[str], name: str = "data") -> list[NamedDomain]:
    """The domains that are given, in their order. name: of the argument."""
    domains: dict[str, NamedDomain] = {}
    for text in texts:
        for domain in _parse(text, f"{name} {text}"):
            if domain.name in domains:
                raise ArgumentError(
                    f"{name} {text}: '{domain.name}' is given twice; give each domain a name of its own"
                )
            domains[domain.name] = domain
    return list(domains.values())


def _parse(text: str, place: str) -> Iterator[NamedDomain]:
    """Yield the domain of a text, or all domains of a file."""
    name, equals, rest = (part.strip() for part in text.partition("="))
    if text.lower().endswith(FILES) and (not equals or Path(text).is_file()):
        for each, content in _read(Path(text)).items():
            yield make_domain(each, content, f"{text}: {each}")
        return
    first, given = split_settings(rest, place)
    if not equals or not first:
        raise ArgumentError(
            f"{place}: give NAME=KIND:PATH, as {EXAMPLE}, or a .json or .toml file with several domains"
        )
    kind, colon, path = first.partition(":")
    settings: dict[str, Any] = {"kind": kind}
    if kind not in DATA_SETS and first.lower().endswith(FILES):
        settings = _read(Path(first))
    elif colon and path:
        settings[PATHS.get(kind, "root")] = path
    yield make_domain(name, {**settings, **given}, place)


def split_settings(text: str, place: str) -> tuple[str, dict[str, Any]]:
    """Split a text into the part before the first comma and the settings `key=value` after it."""
    first, *pairs = _split(text, place)
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, given, value = (part.strip() for part in pair.partition("="))
        if not given or not key:
            raise ArgumentError(f"{place}: '{pair}' is no setting; give key=value after each comma, as {EXAMPLE}")
        settings[key] = _value(value)
    return first, settings


def make_domain(name: str, settings: Any, place: str) -> NamedDomain:
    """Return a domain with these settings; raise an InputError if they are invalid.

    Args:
        name: Name of the domain.
        settings: Settings of its source.
        place: Origin of the settings, for messages.
    """
    if not NAME.fullmatch(name):
        raise ArgumentError(f"{place}: '{name}' cannot be a name: give letters, digits, '-' and '_'")
    if not isinstance(settings, Mapping) or "kind" not in settings:
        raise ArgumentError(f"{place}: has no kind of data set; give kind as one of {', '.join(DATA_SETS)}")
    given = dict(settings)
    role = given.pop("role", None)
    if role is not None and role not in get_args(Role):
        raise ArgumentError(f"{place}: role is {role!r}; give {' or '.join(get_args(Role))}")
    kind = str(given["kind"])
    if kind not in DATA_SETS:
        raise ArgumentError(
            f"{place}: there is no kind of data set '{kind}'; the nearest is {nearest(kind, DATA_SETS)} "
            f"(there are {', '.join(DATA_SETS)})"
        )
    fields = DATA_SETS[kind].model_fields
    for key in given:
        if key not in fields:
            raise ArgumentError(
                f"{place}: '{kind}' has no setting '{key}'; the nearest is {nearest(key, fields)} "
                f"(there are {', '.join((*list(fields)[1:], 'role'))})"
            )
    try:
        DATA_SETS[kind].model_validate(given)
    except ValidationError as error:
        raise ArgumentError(f"{place}: {_complaint(error, kind)}") from None
    return NamedDomain(name, given, cast(Role | None, role))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the most similar known name."""
    return difflib.get_close_matches(name, list(known), 1, 0.0)[0]


def _complaint(error: ValidationError, kind: str) -> str:
    """The first complaint of pydantic, as a message."""
    first = error.errors()[0]
    key, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return f"'{kind}' needs {key}; give {kind}:package.module:name" if kind == "own" else f"'{kind}' needs {key}=…"
    return f"{key}: {message[:1].lower()}{message[1:]}, not {first['input']!r}"


def _split(text: str, place: str) -> list[str]:
    """The parts between commas outside of brackets and quotation marks."""
    parts, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter == '"'
        depth += 0 if quoted else (letter in "[{") - (letter in "]}")
        if letter == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    if depth or quoted:
        raise ArgumentError(f"{place}: a bracket or a quotation mark has no counterpart; close it")
    return [part.strip() for part in parts]


def _value(text: str) -> Any:
    """Parse JSON; other text is returned unchanged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a JSON or TOML file."""
    try:
        text = path.expanduser().read_text(encoding="utf-8")
        content = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: give an object with the settings of a data set, or with one for each domain")
    return content
