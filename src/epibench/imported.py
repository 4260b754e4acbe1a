"""A user's own network, method or data set, given as `package.module:name`."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from epibench.errors import InputError


def load_object(text: str, expected: str) -> Callable[..., Any]:
    """The class or function that `package.module:name` names; expected: what it should be, as "a data set".

    The module is looked for among installed packages, then in the current folder.
    """
    module_name, colon, name = text.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module_name.split("."), name]):
        raise InputError(f"'{text}': give {expected} as package.module:name")
    module = _module(module_name, text)
    if not hasattr(module, name):
        known = [each for each in vars(module) if not each.startswith("_")]
        nearest = difflib.get_close_matches(name, known, 1, 0.0)
        meant = f"; the nearest is '{nearest[0]}'" if nearest else ""
        raise InputError(f"'{text}': {getattr(module, '__file__', None) or module_name} has no '{name}'{meant}")
    named = getattr(module, name)
    if not callable(named):
        raise InputError(
            f"'{text}': is {type(named).__name__} and cannot be called; give a class or function that makes {expected}"
        )
    return named  # type: ignore[no-any-return]


def signature_error(function: Callable[..., Any], options: Mapping[str, Any]) -> str | None:
    """Why a function cannot be called with these options; None where it can, or where that is unknown.

    Found before the call, so that what goes wrong within it is not blamed on the options.
    """
    try:
        inspect.signature(function).bind(**options)
    except TypeError as error:
        return str(error)
    except ValueError:  # what is written in C may have no signature
        pass
    return None


def _module(name: str, text: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last: a file of the user's must not hide a module that others need
        importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(missing + "."):
            problem = f"module '{missing}' is not found, neither installed nor in the current folder ({here})"
        else:
            problem = f"module '{name}' needs '{missing}', which is not installed"
    except Exception as error:
        problem = f"module '{name}' cannot be imported: {error_in_words(error)}"
    raise InputError(f"'{text}': {problem}") from None


def error_in_words(error: Exception) -> str:
    """`ValueError in FILE, line 3: what it says`, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename and "<frozen" not in frame.filename]
    last = (own or frames)[-1]
    file, line = (error.filename, error.lineno) if isinstance(error, SyntaxError) else (last.filename, last.lineno)
    return " ".join(f"{type(error).__name__} in {file}, line {line}: {getattr(error, 'msg', error)}".split())
