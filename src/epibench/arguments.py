"""Arguments of the public functions: how each is checked, and how it is written in a shell."""

from __future__ import annotations

import functools
import inspect
import json
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    Strict,
    ValidationError,
    validate_call,
)

from epibench import mirror
from epibench.devices import check_device, check_executor
from epibench.errors import ArgumentError
from epibench.progress import Reporter
from epibench.views import parse_views

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
VARIADIC = inspect.Parameter.VAR_POSITIONAL
AnyPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Argument:
    """What to give instead of a wrong value, and how a shell writes the argument.

    metavar: its place in the help. read: its text as a value. typed: `wanted` for a shell. mirrored: a URL stands for
    the folder that mirrors it, with `all` files, or the `results` alone.
    """

    wanted: str
    metavar: str = ""
    read: Callable[[str], Any] = str
    typed: str = ""
    repeated: bool = False
    mirrored: str = ""


def checked(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Check the arguments of a function with pydantic; a wrong one is an `ArgumentError`."""

    @functools.cache
    def validator() -> Callable[..., tuple[Any, Any]]:
        @functools.wraps(function)
        def arguments(*given: Any, **named: Any) -> tuple[Any, Any]:
            return given, named

        arguments.__annotations__ = _annotations(function)
        return validate_call(arguments)  # not of the function itself: errors within it are its own

    @functools.wraps(function)
    def call(*given: Parameters.args, **named: Parameters.kwargs) -> Returned:
        inspect.signature(function).bind(*given, **named)  # a TypeError, as of every function
        try:
            given, named = validator()(*given, **named)
        except ValidationError as error:
            raise _in_words(error, function) from None
        return function(*given, **named)

    return call


def arguments_of(function: Callable[..., Any]) -> dict[str, Argument]:
    """The arguments of a function that have a description, by name."""
    plain = inspect.unwrap(function)
    annotated: Any = SimpleNamespace(__annotations__=_annotations(plain))
    hints = get_type_hints(annotated, plain.__globals__, include_extras=True)
    found = {name: _described(hint) for name, hint in hints.items()}
    return {name: described[-1] for name, described in found.items() if described}


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function returns is left out: its type may not be imported yet."""
    return {name: text for name, text in function.__annotations__.items() if name != "return"}


def _described(hint: Any) -> list[Argument]:
    own = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Argument)]
    return own or [each for inner in get_args(hint) for each in _described(inner)]


def _in_words(error: ValidationError, function: Callable[..., Any]) -> ArgumentError:
    """The first complaint of pydantic."""
    first = error.errors()[0]
    if isinstance(reason := first.get("ctx", {}).get("error"), ArgumentError):
        return reason
    name, *_ = first["loc"]
    if isinstance(name, int):  # it was given by its place
        parameters = list(inspect.signature(function).parameters.values())
        parameter = parameters[0 if parameters[0].kind == VARIADIC else name]
        name = f"{parameter.name} {name}" if parameter.kind == VARIADIC else parameter.name
    argument = arguments_of(function)[name.partition(" ")[0]]
    return unfit(name, first["input"], argument.wanted, argument.typed)


def unfit(name: str, given: Any, wanted: str, typed: str = "") -> ArgumentError:
    """The error that an argument cannot be this, in one line."""
    kind = "" if given is None else f" ({type(given).__name__})"
    shown = " ".join(reprlib.repr(given).split())
    return ArgumentError(
        f"{name}: cannot be {shown}{kind}. Fix: give {wanted}.",
        f"{name}: cannot be {shown}. Fix: give {typed or wanted}.",
    )


def _number(given: Any) -> Any:
    """A number of NumPy or torch as one of Python."""
    return given.item() if getattr(given, "ndim", None) == 0 else given


def _items(given: Any) -> Any:
    """Any iterable but a text or a dict as a tuple."""
    try:
        return given if isinstance(given, str | bytes | Mapping) else tuple(given)
    except TypeError:
        return given


def _texts(given: Any) -> Any:
    """One text or several."""
    return (given,) if isinstance(given, str) else _items(given)


def _path(given: Any) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise ValueError
    text = os.fsdecode(given)
    if mirror.is_url(text) or b"\0" in os.fsencode(text):  # which refuses halves of surrogate pairs
        raise ValueError
    return Path(text)


def _paths(given: Any) -> list[Path]:
    """One path or several."""
    return [_path(each) for each in ([given] if isinstance(given, str | os.PathLike) else _items(given))]


def _classes(given: Any) -> Any:
    """A table by its name or file, or the names of classes."""
    names = given if isinstance(given, str | os.PathLike) else _items(given)
    if isinstance(names, str | os.PathLike) or (isinstance(names, tuple) and all(isinstance(n, str) for n in names)):
        return names
    raise ValueError


def _device(given: Any) -> Any:
    """The name of a device of torch."""
    return str(given) if type(given).__name__ == "device" else given


def _of(*kinds: Any) -> PlainValidator:
    """Takes what is of one of these types, and leaves it as it is."""

    def check(given: Any) -> Any:
        if not isinstance(given, kinds):
            raise ValueError
        return given

    return PlainValidator(check)


def _recipe(given: Any) -> Any:
    """A name or a path as a text; recipes are the only models of pydantic that a function takes."""
    if not isinstance(given, str | os.PathLike | BaseModel):
        raise ValueError
    return given if isinstance(given, BaseModel) else os.fspath(given)


def _views(names: Sequence[str]) -> Sequence[str]:
    try:
        parse_views(names)
    except ValueError as error:
        raise ArgumentError(f"views {','.join(names)}: {error}") from None
    return names


def as_texts(given: Any) -> list[str]:
    """Settings as a shell has them: `key=value`, the value in JSON."""
    if isinstance(given, str):
        raise ArgumentError(f"settings: {given!r} is one text. Fix: give a dict, or a list of texts, e.g. ['seed=3'].")
    if isinstance(given, Mapping):
        return [f"{key}={_json(key, value)}" for key, value in given.items()]
    texts = _items(given)
    for each in texts if isinstance(texts, tuple) else [texts]:
        if not isinstance(each, str):
            raise unfit("settings", each, "a dict, e.g. {'seed': 3}, or a list of texts, e.g. ['seed=3']")
    return list(texts)


def _json(key: str, value: Any) -> str:
    """The value of a setting; numbers and arrays of NumPy and torch are written as numbers, and paths as texts."""
    try:
        return json.dumps(value, default=lambda each: each.tolist() if hasattr(each, "tolist") else os.fspath(each))
    except (TypeError, ValueError):
        raise unfit(f"settings: {key}", value, "a number, a text, or a list or dict of these") from None


def reads(*kinds: type[int | float]) -> Callable[[str], Any]:
    """Read a number. Another text stays, and the function refuses it."""

    def read(text: str) -> Any:
        for kind in kinds:
            with suppress(ValueError):
                return kind(text)
        return text

    return read


def _read_sizes(text: str) -> Any:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        return text


def _read_texts(text: str) -> list[str]:
    return text.split(",")


# What pydantic checks, then the description.
_Int = Annotated[int, Strict(), BeforeValidator(_number)]
_Str = Annotated[str, Strict()]
Whole = Annotated[_Int, Argument("a whole number, e.g. 16", "N", reads(int))]
Natural = Annotated[_Int, Field(ge=0), Argument("a whole number of at least 0, e.g. 3", "N", reads(int))]
Positive = Annotated[_Int, Field(ge=1), Argument("a whole number of at least 1, e.g. 16", "N", reads(int))]
Number = Annotated[float, Strict(), BeforeValidator(_number), Argument("a number, e.g. 0.1", "X", reads(int, float))]
Flag = Annotated[bool, Strict(), BeforeValidator(_number), Argument("True or False")]
Text = Annotated[str, Strict(), Argument("a text")]
Texts = Annotated[Sequence[_Str], BeforeValidator(_texts), Argument("a text or a list of texts", repeated=True)]
Sizes = Annotated[
    Sequence[_Int],
    BeforeValidator(_items),
    Argument("a list of whole numbers, e.g. [1, 2, 4]", "M,…", _read_sizes, "whole numbers, e.g. 1,2,4"),
]
Views = Annotated[
    Sequence[_Str],
    AfterValidator(_views),
    BeforeValidator(_texts),
    Argument("a list of texts, e.g. ['flip']", "VIEWS", _read_texts),
]
Device = Annotated[
    str, Strict(), AfterValidator(check_device), BeforeValidator(_device), Argument("'auto', 'cpu' or 'cuda'", "DEVICE")
]
Executor = Annotated[str, Strict(), AfterValidator(check_executor), Argument("'local' or 'ray'", "NAME")]
Settings = Annotated[
    Mapping[str, Any] | Sequence[str],
    PlainValidator(as_texts),
    Argument("a dict, e.g. {'seed': 3}, or a list of texts, e.g. ['seed=3']", "KEY=VALUE", repeated=True),
]
File = Annotated[AnyPath, PlainValidator(_path), Argument("a local file, e.g. 'runs/mine.json'", "FILE")]
Folder = Annotated[AnyPath, PlainValidator(_path), Argument("a local folder, e.g. 'runs/mine'", "FOLDER")]
FolderOfRun = Annotated[
    AnyPath,
    PlainValidator(_path),
    Argument("a local folder, e.g. 'runs/mine'; a URL is for the command", "FOLDER", mirrored="all"),
]
RecipeOrRun = Annotated[
    Any,
    PlainValidator(_recipe),
    Argument(
        "the name of a recipe, e.g. 'toy-regression-quick', a recipe file (.json), the folder of a run, or a recipe",
        mirrored="all",
    ),
]
FinishedRun = Annotated[AnyPath, PlainValidator(_path), Argument("the folder of a run", "RUN", mirrored="all")]
AnyResults = Annotated[
    Sequence[AnyPath],
    PlainValidator(_paths),
    Argument(
        "the folder of a run or a file of results, or a list of these",
        repeated=True,
        mirrored="results",
    ),
]
Progress = Annotated[bool | Reporter, _of(bool, Reporter), Argument("True, False, or a reporter with 'step' and 'say'")]
Stores = Annotated[
    Any,
    _of(str, os.PathLike, Mapping),
    Argument("a store, e.g. 'ensemble.zarr', or a dict of arrays, e.g. {'mean': …, 'target': …}", "FILE"),
]
Classes = Annotated[Any, PlainValidator(_classes), Argument("names, e.g. ['road', 'sky'], or a table, e.g. 'camvid'")]
Models = Annotated[Any, Argument("models", "SPEC", repeated=True)]
Data = Annotated[Any, Argument("data sets", "NAME=KIND:PATH", repeated=True)]
Size = Annotated[Text, Argument("height and width, e.g. '256x512'", "HxW")]
Span = Annotated[Text, Argument("a text, e.g. '20:69'", "N")]
Shard = Annotated[Text, Argument("a text, e.g. '2/8'", "K/N")]
Label = Annotated[Whole, Field(ge=-(2**31), le=2**31 - 1), Argument("a whole number, e.g. 255", "LABEL", reads(int))]
SamplerSeed = Annotated[Natural, Field(lt=2**32), Argument("a whole number from 0 to 4294967295", "N", reads(int))]
FramesPerSecond = Annotated[Positive, Field(le=60), Argument("a whole number from 1 to 60", "N", reads(int))]
PositiveNumber = Annotated[
    Number, Field(gt=0, allow_inf_nan=False), Argument("a number greater than 0", "X", reads(int, float))
]
