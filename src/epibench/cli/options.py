"""Options that commands share. Their values are checked before anything large is imported."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from epibench import devices
from epibench.errors import InputError


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


def at_least(smallest: int, largest: int | None = None) -> Callable[[int | None], int | None]:
    """A check of whole numbers. typer's own would put its limits into the help of every option."""

    def check(value: int | None) -> int | None:
        if value is not None and (value < smallest or (largest is not None and value > largest)):
            limits = f"{smallest} or more" if largest is None else f"{smallest} to {largest}"
            raise typer.BadParameter(f"{value} is not in its range; give {limits}")
        return value

    return check


def make_folder(folder: Path) -> None:
    """Make a folder to write to, or refuse it before hours are spent on what it is to hold."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot make this folder ({error.strerror})") from None
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder}: this folder cannot be written to")


def parse_sizes(text: str | None) -> tuple[int, ...] | None:
    """Values of M, as `1,2,4,8`."""
    try:
        return None if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--members '{text}': give whole numbers with commas between, as 1,2,4,8") from None


def check_device(name: str) -> str:
    """Refuse words that name no device, without torch."""
    return devices.check_device(name, "--device")


def resolve_device(name: str) -> str:
    """The device to compute on; `auto` takes a GPU if there is one."""
    return devices.resolve_device(name, "--device")


Device = Annotated[str, typer.Option(metavar="DEVICE", callback=check_device, help="auto, cpu or cuda.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting, as seed=3 or sgld.num_epochs=9600; may be given several times."
    ),
]
