"""Files of weights: tensors by name. Files may be from other software, and nothing in them is executed."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from epibench.errors import InputError, lacks_memory, some_of

WRAPPERS = ("state_dict", "model_state_dict", "model", "network", "ema_state_dict")
COUNTER = "num_batches_tracked"  # batch norm needs it only for averages over all batches
KEYS_SHOWN = 3  # keys that a message names


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a file of torch.save, also within a wrapper as `state_dict`."""
    if not path.is_file():
        raise InputError(f"{path}: no such file of weights")
    safe = path.suffix == ".safetensors"
    try:
        if not safe and zipfile.is_zipfile(path):  # packed files may need any amount of memory
            with zipfile.ZipFile(path) as archive:
                if any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist()):
                    raise InputError(f"{path}: a compressed archive, which torch.save never writes. Fix: unpack it.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about protocols of pickle, and kinds of tensors that are refused
            content = safetensors.torch.load_file(path) if safe else torch.load(path, "cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # a damaged file can raise anything
        if lacks_memory(error):
            raise InputError(f"{path}: needs more memory than there is, or is damaged. Fix: save it again.") from None
        if needed := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise InputError(
                f"{path}: needs {needed[1]} to be read, and nothing in a file is executed; "
                "save the weights alone: torch.save(network.state_dict(), …)"
            ) from None
        kind = "safetensors file" if safe else "file of torch.save"
        # PyTorch's own message may advise to execute code.
        raise InputError(
            f"{path}: not a readable {kind} ({type(error).__name__}). Fix: download the file again, or save the "
            "weights with torch.save(network.state_dict(), FILE)."
        ) from None
    while isinstance(content, Mapping) and any(isinstance(content.get(name), Mapping) for name in WRAPPERS):
        content = next(content[name] for name in WRAPPERS if isinstance(content.get(name), Mapping))
    if not isinstance(content, Mapping):
        raise InputError(f"{path}: holds a {type(content).__name__}, not tensors by name; save a state_dict")
    weights = {str(name): tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}
    for name, tensor in weights.items():
        kinds = {"nested": tensor.is_nested, "quantised": tensor.is_quantized, "complex": tensor.is_complex()}
        kinds |= {"sparse": tensor.layout != torch.strided, "empty (of the device 'meta')": tensor.is_meta}
        if unusual := [kind for kind, applies in kinds.items() if applies]:
            raise InputError(f"{path}: {name} is {unusual[0]}. Fix: save weights as dense real numbers.")
    return weights


def check_dtype(where: str, name: str, given: Tensor, expected: Tensor) -> None:
    """Refuse integers where a network has floating-point weights: they would be cast without a word."""
    if expected.is_floating_point() and not given.is_floating_point():
        there, here = (str(each.dtype).removeprefix("torch.") for each in (given, expected))
        raise InputError(f"{where}: {name} is {there} in the file and {here} in the network. Fix: save it as {here}.")


def check_fit(
    path: Path, weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], kind: str, hints: Sequence[str] = ()
) -> None:
    """Refuse weights with missing, unexpected or misshapen tensors, or with NaN or infinite values.

    kind: the name of the expected network; hints: further remarks on a misfit. Counters may be missing.
    """
    shapes = [
        f"{name} {tuple(weights[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    missing = [name for name in expected if name not in weights and not name.endswith(COUNTER)]
    unexpected = [name for name in weights if name not in expected]
    kinds = (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
    if problems := [f"{problem}: {some_of(keys, KEYS_SHOWN)}" for problem, keys in kinds if keys]:
        raise InputError(f"{path}: not the weights of {kind}; {'; '.join((*hints, *problems))}")
    for name, tensor in expected.items():
        if name in weights:
            check_dtype(str(path), name, weights[name], tensor)
        if name in weights and not name.endswith(COUNTER) and not bool(torch.isfinite(weights[name].float()).all()):
            raise InputError(f"{path}: {name} holds NaN or infinite values; the file is damaged")
