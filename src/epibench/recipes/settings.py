"""Settings over a recipe, as `key=value` with dotted keys.

Values are JSON if they parse, otherwise text. The last setting of a key wins.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from epibench.data.source import FOLDERS
from epibench.errors import InputError

DESCRIPTIVE = ("about", "minutes", "machine")
Model = TypeVar("Model", bound=BaseModel)


def apply_settings(recipe: Model, settings: Sequence[str]) -> Model:
    """Return the recipe with these settings.

    Raises:
        InputError: A key is unknown, or a value does not fit.
    """
    usual = recipe.model_dump(mode="json")
    values = copy.deepcopy(usual)
    for setting in settings:
        key, value = parse_setting(setting)
        _put(values, recipe, key, value)
        # Add the defaults of a new entry, so that further settings can name its keys, unless it is not valid yet.
        with suppress(ValidationError, UnicodeEncodeError):
            values = type(recipe).model_validate(values).model_dump(mode="json")
    return validated(type(recipe), values, usual, {parse_setting(setting)[0] for setting in settings})


def parse_setting(text: str) -> tuple[str, Any]:
    """Return key and value of `sgld.num_epochs=9600`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set '{text}': give key=value, as seed=3")
    try:
        return key.strip(), json.loads(value)
    except ValueError:
        return key.strip(), value
    except RecursionError:
        raise InputError(f"--set {key.strip()}: nested too deeply") from None


def validated(
    model: type[Model], values: Mapping[str, Any], usual: Mapping[str, Any] | None = None, given: Set[str] = frozenset()
) -> Model:
    """Return the model of these values.

    Args:
        model: Type of the model.
        values: Values of its fields.
        usual: Valid values, as examples of their format.
        given: Keys that the user has set.

    Raises:
        InputError: A value does not fit. The message names the first such key.
    """
    try:
        return model.model_validate(values, context=given)
    except ValidationError as error:
        raise InputError(describe(error, values, usual)) from None
    except UnicodeEncodeError:
        raise InputError("a setting holds half of a character (a lone surrogate)") from None


def describe(error: ValidationError, values: Any = None, usual: Mapping[str, Any] | None = None) -> str:
    """Return pydantic's first error about these values as `key: problem (given value)`.

    If a value may be of several kinds, pydantic has an error for each, and the text has all of them.
    """
    paths = [tuple(_key(each["loc"], values, each["type"] == "missing")) for each in error.errors()]
    same = [each for path, each in zip(paths, error.errors(), strict=True) if path == paths[0]]
    key, first = ".".join(paths[0]), same[0]
    messages = [_message(each, key, _value_at(paths[0], usual)) for each in same]
    message = ", or ".join(dict.fromkeys(f"{each[:1].lower()}{each[1:]}" for each in messages))
    given = "" if first["type"] == "value_error" or first["type"] == "missing" else f", not {first['input']!r}"
    more = f" (and {len(paths) - len(same)} more)" if len(paths) > len(same) else ""
    return f"{key + ': ' if key else ''}{message}{given}{more}"


def _message(complaint: Any, key: str, usual: Any) -> str:
    """Return pydantic's message; for lists with an example of their format."""
    if complaint["type"] not in ("tuple_type", "list_type"):
        text: str = complaint["msg"]
        return text.removeprefix("Value error, ").removeprefix("Input ")
    given = complaint["input"]
    example = usual if isinstance(usual, list) else [given] if isinstance(given, str) else None
    return "should be a list" + ("" if example is None else f", as {key}={json.dumps(example, separators=(',', ':'))}")


def _value_at(path: Sequence[str], values: Any) -> Any:
    """Return the value at a key, or None."""
    for part in path:
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _key(path: Sequence[str | int], values: Any, missing: bool) -> Iterator[str]:
    """Yield the parts of a key for --set, without the kinds that pydantic inserts or appends.

    Args:
        path: Pydantic's path.
        values: The values.
        missing: Whether the last part of the path is missing in the values.
    """
    known = values is not None
    for number, part in enumerate(path):
        if known and (values is None or isinstance(values, str | int | float)):
            return
        inside, lacked = isinstance(values, Mapping), missing and number == len(path) - 1
        if known and not lacked and (part not in values if inside else isinstance(part, str)):
            continue  # a kind
        known = inside and part in values
        values = values.get(part) if inside else None
        yield str(part)


def _put(values: dict[str, Any], recipe: BaseModel, key: str, value: Any) -> None:
    """Set a key of the recipe's type. In dictionaries whose keys users name, a new key adds an entry."""
    *path, last = key.split(".")
    inner: Any = values
    types: list[Any] = [type(recipe)]
    for part in path:
        types = list(_entry_types(types, inner, part))
        if isinstance(inner, dict) and any(get_origin(each) is dict for each in types):
            inner.setdefault(part, {})  # e.g. the options of a variant that is not valid yet
        inner = inner.get(part) if isinstance(inner, dict) else None
    if not any(_entry_types(types, inner, last)):
        nearest = difflib.get_close_matches(key, sorted(set(known_keys(values))), 1, 0.0)
        name = getattr(recipe, "name", type(recipe).__name__)
        raise InputError(f"--set {key}: recipe '{name}' has no such setting; the nearest is {nearest[0]}")
    inner[last] = value


def _entry_types(types: Sequence[Any], values: Any, name: str) -> Iterator[Any]:
    """Yield the possible types of an entry; nothing if no type has an entry of that name."""
    if not isinstance(values, dict):
        return
    for each in types:
        origin, arguments = get_origin(each), get_args(each)
        if origin in (Union, UnionType, Annotated):
            yield from _entry_types(arguments[:1] if origin is Annotated else arguments, values, name)
        elif origin is dict:
            yield arguments[1]
        elif each is Any:
            yield Any
        elif isinstance(each, type) and issubclass(each, BaseModel) and name in each.model_fields:
            kind = each.model_fields.get("kind")
            if kind is None or values.get("kind", kind.default) == kind.default:
                yield each.model_fields[name].annotation


def known_keys(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield every dotted key."""
    for name, value in values.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from known_keys(value, f"{prefix}{name}.")


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield every key with different values, and both values."""
    for name in dict.fromkeys((*old, *new)):
        before, now = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            yield from differences(before, now, f"{prefix}{name}.")
        elif before != now:
            yield f"{prefix}{name}", before, now


def fixed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that decide a run's numbers, without descriptions and folders of data."""
    kept = {name: value for name, value in values.items() if name not in DESCRIPTIVE}
    return {**kept, "data": _without_folders(kept["data"])} if "data" in kept else kept


def _without_folders(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    return {name: _without_folders(value) for name, value in data.items() if name not in (*FOLDERS, "cache")}
