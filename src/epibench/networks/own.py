"""A user's network, named as `package.module:name`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from epibench.errors import InputError
from epibench.imported import error_in_words, load_object, signature_error


def make_network(name: str, options: Mapping[str, Any], said: str, options_said: str) -> nn.Module:
    """Make the network. `said` and `options_said` are prefixes of messages about it and its options."""
    make = load_object(name, "a network")
    if problem := signature_error(make, options):
        raise InputError(f"{options_said} cannot be called with {', '.join(options) or 'nothing'} ({problem})")
    try:
        network = make(**options)
    except Exception as error:
        raise InputError(f"{said} cannot be made: {error_in_words(error)}") from None
    if not isinstance(network, nn.Module):
        raise InputError(f"{said} gives {type(network).__name__}; a network is an nn.Module")
    return network
