"""Dropout whose masks depend only on the key of the image and the place.

It works in any network and in any mode. Training mode, the usual way of MC-dropout, makes batch normalisation use the
statistics of the batch and change its own. Its masks come from one generator, so that an image has another mask in
another batch. `SeededDropout` replaces the calls of dropout themselves, and changes nothing else.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from epibench import randomness
from epibench.errors import InputError
from epibench.networks.dropout_kernel import can_fuse, fused_dropout

# Words of a place: 2⁴⁰ hold the mask of 2⁴² elements per image, and 2²³ places fit into the counter.
_PLACE = 2**40
# Words that are made at a time: their temporaries stay in a CPU's cache; a GPU needs few large operations.
_SLICE = {"cpu": 2**19}
_LARGE_SLICE = 2**24
# −λα of SELU (Klambauer et al. 2017): the value of elements that alpha dropout drops.
_SATURATION = -1.7580993408473766


@dataclass(frozen=True)
class _Flavour:
    """The units that one of torch's functions drops. `unbatched`: number of axes of an input without a batch axis."""

    channels: bool = False
    alpha: bool = False
    inplace: bool = False
    unbatched: int | None = None


_FLAVOURS: dict[Callable[..., Any], _Flavour] = {
    functional.dropout: _Flavour(),
    functional.dropout1d: _Flavour(channels=True, unbatched=2),
    functional.dropout2d: _Flavour(channels=True),  # torch takes three axes as (image, channel, length)
    functional.dropout3d: _Flavour(channels=True, unbatched=4),
    functional.alpha_dropout: _Flavour(alpha=True),
    functional.feature_alpha_dropout: _Flavour(channels=True, alpha=True),
    torch.dropout: _Flavour(),
    torch.dropout_: _Flavour(inplace=True),
    torch.feature_dropout: _Flavour(channels=True),
    torch.feature_dropout_: _Flavour(channels=True, inplace=True),
    torch.alpha_dropout: _Flavour(alpha=True),
    torch.alpha_dropout_: _Flavour(alpha=True, inplace=True),
    torch.feature_alpha_dropout: _Flavour(channels=True, alpha=True),
    torch.feature_alpha_dropout_: _Flavour(channels=True, alpha=True, inplace=True),
}
_RECURRENT: set[Callable[..., Any]] = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}


class SeededDropout(TorchFunctionMode):
    """A context in which dropout acts in any mode, with masks of (key of the image, place).

    The place is the number of dropout calls since the context was entered. The context acts on the current thread.

    Args:
        keys: (image,) int64, one for each entry of the batch axis, which is the first axis.
        rate: Overrides every p; None keeps the network's p.
        by_mode: Whether dropout follows the mode of its module. Inserted dropout then acts by its own `always`.
    """

    def __init__(self, keys: Tensor, rate: float | None = None, by_mode: bool = False):
        super().__init__()
        if keys.dim() != 1 or len(keys) == 0 or keys.dtype != torch.int64:
            raise InputError(f"keys: expected int64 of shape (image,), got {keys.dtype} of shape {tuple(keys.shape)}")
        if rate is not None:
            _check_rate(rate)
        self._keys, self._rate, self._by_mode = keys, rate, by_mode
        self._places = self._calls = 0

    @property
    def calls(self) -> int:
        """The number of dropouts with p > 0 that have acted since the context was entered."""
        return self._calls

    def __enter__(self) -> SeededDropout:
        self._places = self._calls = 0
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Replace calls of dropout; run all other functions."""
        kwargs = kwargs or {}
        if func in _FLAVOURS:
            return self._dropout(_FLAVOURS[func], *args, **kwargs)
        if func is functional.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            return self._multi_head_attention(*args, **kwargs)
        if func in _RECURRENT and any(isinstance(value, float) and value > 0 for value in args):
            raise InputError(
                f"the dropout between the layers of torch.{func.__name__} cannot be seeded: "
                "set `dropout` of that module to 0"
            )
        return func(*args, **kwargs)

    def _dropout(
        self,
        flavour: _Flavour,
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
        train: bool = True,
    ) -> Tensor:
        """Return the result of torch's function with a seeded mask, in any mode unless `by_mode` is set."""
        if self._by_mode and not (training and train):
            return input
        rate = p if self._rate is None else self._rate
        _check_rate(rate)
        place = self._places
        self._places += 1
        if rate == 0:
            return input
        self._calls += 1
        unbatched = input.dim() == flavour.unbatched
        windows = self._windows(input[None] if unbatched else input)
        shape = windows.shape[1:]
        if flavour.channels:
            if input.dim() < 2:
                raise InputError(f"dropout of channels: expected (image, channel, …), got shape {tuple(input.shape)}")
            shape = shape[:2] + (1,) * (len(shape) - 2)
        keys = self._keys_on(input.device)
        if inplace or flavour.inplace:
            _drop(windows, _drops(keys, place, tuple(shape), rate), rate, alpha=flavour.alpha, inplace=True)
            return input
        if flavour == _Flavour() and not unbatched:
            return drop_elements(input, keys, place, rate)
        dropped = _drop(windows, _drops(keys, place, tuple(shape), rate), rate, alpha=flavour.alpha)
        return dropped.reshape(input.shape)

    def _windows(self, input: Tensor) -> Tensor:
        """Return a view of (image · window, …) as (image, window, …)."""
        images = len(self._keys)
        if input.dim() == 0 or len(input) % images:
            raise InputError(
                f"dropout on a tensor of shape {tuple(input.shape)} within SeededDropout of {images} keys: the first "
                "axis must be that of the images, or a multiple of it (the windows of each image together)"
            )
        return _in_windows(input, images)

    def _keys_on(self, device: torch.device) -> Tensor:
        if self._keys.device != device:
            self._keys = self._keys.to(device)
        return self._keys

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> Tensor:
        """Return softmax(query · keyᵀ) · value with dropout on the weights; without dropout, torch's result."""
        if dropout_p == 0:
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask=attn_mask, is_causal=is_causal, **options
            )
        if options.get("enable_gqa"):
            key, value = (part.repeat_interleave(query.shape[-3] // part.shape[-3], -3) for part in (key, value))
        scale = options.get("scale")
        scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        # A query without any visible key has weights 0 instead of NaN.
        weights = torch._safe_softmax(scores, -1)
        return self._dropout(_Flavour(), weights, dropout_p) @ value

    def _multi_head_attention(self, *args: Any, **kwargs: Any) -> Any:
        """Run nn.MultiheadAttention, which passes its p in any mode."""
        bound = _MULTI_HEAD_SIGNATURE.bind(*args, **kwargs)
        if bound.arguments["dropout_p"] == 0 or (self._by_mode and not bound.arguments.get("training", True)):
            return functional.multi_head_attention_forward(*args, **kwargs)
        bound.arguments["training"] = True
        super().__enter__()  # type: ignore[no-untyped-call]  # the mode is off in here, but what follows calls dropout
        try:
            return _multi_head_attention(*bound.args, **bound.kwargs)
        finally:
            super().__exit__(None, None, None)  # type: ignore[no-untyped-call]


def _past_the_modes(function: Any) -> FunctionType:
    """Copy a function so that it does not call the context itself; the functions that it calls do."""
    names = {**function.__globals__, "has_torch_function": lambda _: False}
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


_MULTI_HEAD_SIGNATURE = inspect.signature(functional.multi_head_attention_forward)
_multi_head_attention = _past_the_modes(functional.multi_head_attention_forward)


def _check_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise InputError(f"the rate of dropout must be from 0 to 1, not {rate}")


def _drop(values: Tensor, drops: Tensor, rate: float, *, alpha: bool = False, inplace: bool = False) -> Tensor:
    """Return slope · value + shift; dropped elements get a constant."""
    slope, shift, instead = 1 / (1 - rate) if rate < 1 else 0.0, 0.0, 0.0
    if alpha and rate < 1:  # slope · (value, or the saturation of SELU) + shift keeps mean 0 and variance 1
        slope = 1 / math.sqrt((_SATURATION**2 * rate + 1) * (1 - rate))
        shift = -slope * _SATURATION * rate
        instead = slope * _SATURATION + shift
    # The product is new and has the memory layout of the values. Later operations are in place.
    result = values.mul_(slope) if inplace else values.mul(slope)
    if shift:
        result.add_(shift)
    return result.masked_fill_(drops, instead)


def _in_windows(values: Tensor, images: int) -> Tensor:
    return values.view(images, len(values) // images, *values.shape[1:])


def drop_elements(values: Tensor, keys: Tensor, place: int, rate: float) -> Tensor:
    """Drop elements of (image · window, …) values by the masks of `dropout_mask`; 0 < rate.

    `keys`: (image,) int64, on the device of the values. A GPU runs one kernel if Triton exists and no gradient is
    needed.
    """
    if rate < 1 and can_fuse(values):
        return fused_dropout(values, keys, place, _threshold(rate), 1 / (1 - rate))
    windows = _in_windows(values, len(keys))
    return _drop(windows, _drops(keys, place, tuple(windows.shape[1:]), rate), rate).reshape(values.shape)


@torch.library.custom_op("epibench::drop_elements", mutates_args=())
def _opaque_drop(values: Tensor, keys: Tensor, place: int, rate: float) -> Tensor:
    return drop_elements(values, keys, place, rate)


@_opaque_drop.register_fake
def _(values: Tensor, keys: Tensor, place: int, rate: float) -> Tensor:
    return torch.empty_like(values)


def compilable_drop(values: Tensor, keys: Tensor, place: int, rate: float) -> Tensor:
    """Return `drop_elements` as one opaque operation for a compiler."""
    if torch.compiler.is_compiling():
        result: Tensor = _opaque_drop(values, keys, place, rate)
        return result
    return drop_elements(values, keys, place, rate)


def _threshold(rate: float) -> int:
    """Return the bound below which the 16 bits of an element drop it."""
    return round(rate * 2**16)


def _drops(keys: Tensor, place: int, shape: tuple[int, ...], rate: float) -> Tensor:
    """Return which elements are dropped, (image, *shape) bool.

    Element e of an image, counted in the order of its axes and not of its memory, has 16 bits: piece e mod 4 of word
    place · 2⁴⁰ + ⌊e / 4⌋, lowest bits first. It is dropped if these bits, as a signed number plus 32,768, are below
    round(rate · 65,536), so that the probability is the rate to within 2⁻¹⁷.
    """
    below = _threshold(rate)
    if below == 2**16:
        return torch.ones((), dtype=torch.bool, device=keys.device).expand(len(keys), *shape)
    size = math.prod(shape)
    words = -(-size // 4)
    drops = torch.empty((len(keys), 4 * words), dtype=torch.bool, device=keys.device)
    step = max(1, _SLICE.get(keys.device.type, _LARGE_SLICE) // len(keys))
    for first in range(0, words, step):
        last = min(first + step, words)
        pieces = randomness.bits(keys, place * _PLACE + first, last - first).view(torch.int16)
        torch.lt(pieces, below - 2**15, out=drops[:, 4 * first : 4 * last])  # pieces are signed: from −32,768
    return drops[:, :size].view(len(keys), *shape)


def dropout_mask(
    keys: Tensor,
    place: int,
    shape: tuple[int, ...],
    rate: float,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return the factors of dropout, (image, *shape): 0 with probability rate, otherwise 1 / (1 − rate).

    The probability is the rate rounded to a multiple of 2⁻¹⁶. Masks are equal on every device.

    Args:
        keys: (image,) int64.
        place: Number of the place, below 2²³.
        shape: Shape of an image's mask, up to 2⁴² elements.
        rate: Dropout rate.
        dtype: Type of the factors.
        device: Device of the factors; None: the device of the keys.
    """
    _check_rate(rate)
    drops = _drops(keys if device is None else keys.to(device), place, shape, rate)
    ones = torch.ones(drops.shape, dtype=dtype, device=drops.device)
    return _drop(ones, drops, rate, inplace=True)


def insert_dropout(
    network: nn.Module, places: Sequence[str], rate: float, always: bool = True
) -> list[RemovableHandle]:
    """Insert dropout after the named modules, in every mode of the network, until the handles are removed.

    Args:
        network: Network to change.
        places: Names of modules.
        rate: Dropout rate.
        always: Whether dropout acts in every mode; otherwise only in training mode, as `nn.Dropout`.

    Returns:
        Handles that remove the dropout.

    Raises:
        InputError: The network has no such module.
    """
    _check_rate(rate)
    modules = {name: each for name, each in network.named_modules(remove_duplicate=False) if _returns(name, each)}
    for place in places:
        if place not in modules:
            nearest = difflib.get_close_matches(place, [name for name in modules if name], n=3, cutoff=0)
            raise InputError(
                f"no module {place!r} in {type(network).__name__} to insert dropout after; "
                f"the nearest names are {', '.join(map(repr, nearest))}"
            )
    return [modules[place].register_forward_hook(_dropout_hook(place, rate, always)) for place in places]


def _returns(name: str, module: nn.Module) -> bool:
    """Return whether a module is called. Lists of modules never are, so that dropout cannot follow them."""
    return bool(name) and not isinstance(module, nn.ModuleList | nn.ModuleDict)


def _dropout_hook(place: str, rate: float, always: bool) -> Callable[[nn.Module, Any, Any], Tensor]:
    def hook(module: nn.Module, inputs: Any, output: Any) -> Tensor:
        if not isinstance(output, Tensor):
            raise InputError(
                f"dropout after {place!r}: {type(module).__name__} returns {type(output).__name__}, not a tensor; "
                "choose a module inside of it or after it"
            )
        return functional.dropout(output, rate, training=always or module.training)

    return hook


@contextmanager
def dropout_after(network: nn.Module, places: Sequence[str], rate: float) -> Iterator[None]:
    """Insert dropout after the named modules within the context.

    Within `SeededDropout` its masks are seeded, too. Otherwise they come from torch's generator.
    """
    handles = insert_dropout(network, places, rate)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
