"""Commands from functions: options from the signature, help from the docstring, values from texts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand

from epibench import mirror
from epibench.arguments import VARIADIC, Argument, arguments_of
from epibench.console import ConsoleReporter
from epibench.errors import ArgumentError, InputError

DESCRIBED = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)
Show = Callable[..., None]


class Command(TyperCommand):
    """A command whose help has the names of arguments and options, and not their types in Python."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] NAME`."""
        return ["[OPTIONS]", *(argument.metavar for argument in self._arguments(ctx))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options, each with its help."""
        if arguments := [(argument.metavar, argument.help or "") for argument in self._arguments(ctx)]:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        options = [each.get_help_record(ctx) for each in self.get_params(ctx) if each.param_type_name == "option"]
        with formatter.section("Options"):
            formatter.write_dl([option for option in options if option is not None])

    def _arguments(self, ctx: Any) -> list[Any]:
        return [each for each in self.get_params(ctx) if each.param_type_name == "argument"]


class ShellReporter(ConsoleReporter):
    """The console, which prints results, too."""

    show: Show

    def __init__(self, show: Show | None):
        super().__init__()
        if show is not None:
            self.show = show


def add_command(
    app: typer.Typer,
    function: Callable[..., Any],
    show: Show | None = None,
    *,
    name: str | None = None,
    positional: str = "",
    names: Mapping[str, str] | None = None,
    without: tuple[str, ...] = (),
    **usual: Any,
) -> None:
    """Add the command of a function to an app.

    Args:
        app: The command line.
        function: A function whose arguments are `checked`; `progress` makes it report.
        show: Prints the results that the function shows.
        name: The command, by default that of the function.
        positional: The argument without an option, by default the first.
        names: Options with other names than their arguments.
        without: Arguments for Python alone.
        usual: Defaults of the command alone.
    """
    about, _, sections = inspect.cleandoc(function.__doc__ or "").replace("`", "").partition("\n\nArgs:\n")
    helps = {text[1]: " ".join(text[2].split()).partition(" In Python ")[0] for text in DESCRIBED.finditer(sections)}
    parameters = inspect.signature(function).parameters
    arguments = arguments_of(function)
    arguments = {each: arguments[each] for each in helps if each in arguments and each not in ("progress", *without)}
    called = {"settings": "set", **(names or {})}
    positional = positional or next(iter(parameters))
    options = {each: f"--{called.get(each, each).replace('_', '-')}" for each in arguments if each != positional}

    def command(**texts: Any) -> None:
        values = {each: _value(arguments[each], text) for each, text in texts.items() if text not in (None, [])}
        several = next((values.pop(each) for each in texts if parameters[each].kind == VARIADIC), ())
        try:
            results = function(*several, **values, progress=ShellReporter(show))
        except ArgumentError as error:
            raise InputError(re.sub(r"^\w+(?=[ :])", lambda word: options.get(word[0], word[0]), error.typed)) from None
        if failed := getattr(results, "failed", None):
            raise InputError("; ".join(failed.values()))
        if results is False:
            raise typer.Exit(1)

    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                each,
                inspect.Parameter.KEYWORD_ONLY,
                default=_parameter(each, argument, parameters[each], options.get(each), helps[each], usual.get(each)),
                annotation=bool
                if isinstance(parameters[each].default, bool)
                else list[str]
                if argument.repeated or parameters[each].kind == VARIADIC
                else str,
            )
            for each, argument in arguments.items()
        ]
    )
    command.__annotations__ = {each.name: each.annotation for each in command.__signature__.parameters.values()}  # type: ignore[attr-defined]
    app.command(name or function.__name__, help=about, short_help=about.splitlines()[0], cls=Command)(command)


def _parameter(
    name: str, argument: Argument, parameter: inspect.Parameter, option: str | None, text: str, usual: Any
) -> Any:
    """typer's description of an argument or an option."""
    several, default = parameter.kind == VARIADIC or argument.repeated, parameter.default
    metavar = argument.metavar or (name.upper() if option is None else "NAME")
    if option is None:
        optional = default is None
        metavar = f"[{metavar}]" if optional else f"{metavar}..." if several else metavar
        return typer.Argument(None if optional else ..., metavar=metavar, help=text)
    if isinstance(default, bool):
        return typer.Option(False, option, help=text)
    if default is parameter.empty:
        return typer.Option(..., option, metavar=metavar, help=text)
    text = f"{text} May be given several times." if several else text
    shown = usual if usual is not None else default if isinstance(default, str | int | float) else None
    return typer.Option(None if shown is None else str(shown), option, metavar=metavar, help=text)


def _value(argument: Argument, given: Any) -> Any:
    """A text, or several, as the function takes them; of a URL the folder that mirrors it."""
    if isinstance(given, bool):
        return given
    if isinstance(given, list):
        return [_value(argument, each) for each in given]
    if not argument.mirrored or not mirror.is_url(given):
        return argument.read(given)
    from epibench.data.source import default_cache

    page = argument.mirrored == "results"
    folder = mirror.open_mirror(given, default_cache(), mirror.is_shown if page else bool)
    ConsoleReporter().say(f"{given} is mirrored in {folder}")
    return str(folder)
