"""Damaged and hostile files of weights: each is refused in one line, within 2 GB."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from outside_networks import OutsideNetwork, write_folder
from safetensors.torch import save_file
from torch import Tensor

from hostile import Answer, answers, assert_refused

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, of quantised tensors
BIAS = "last.bias"


def saved(change: Callable[[Tensor], Any], **options: Any) -> Callable[[Path], None]:
    """Weights of which one tensor was changed."""

    def make(path: Path) -> None:
        weights = OutsideNetwork().state_dict()
        torch.save({**weights, BIAS: change(weights[BIAS])}, path, **options)

    return make


def packed(path: Path) -> None:
    """Weights and zeros, in a zip that is packed, which torch reads."""
    saved(lambda bias: bias)(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        archive.writestr("archive/data/99", bytes(2**27))


def declares_terabytes(path: Path) -> None:
    """In the earlier format of torch, which allocates what a file declares."""
    saved(lambda _: torch.ones(77), _use_new_zipfile_serialization=False)(path)
    content = path.read_bytes()
    assert content.count(b"KMN") == 1
    path.write_bytes(content.replace(b"KMN", b"\x8a\x06\0\0\0\0\0\1N"))


def safe(change: Callable[[Tensor], Tensor]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        weights = OutsideNetwork().state_dict()
        save_file({**weights, BIAS: change(weights[BIAS])}, path)

    return make


CASES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "empty": (".pt", Path.touch, "not a readable file of torch.save"),
    "empty safetensors": (".safetensors", Path.touch, "not a readable safetensors file"),
    "text": (".pt", lambda path: path.write_text("<html>"), "not a readable file of torch.save"),
    "sparse": (".pt", saved(Tensor.to_sparse), "last.bias is sparse"),
    "without values": (".pt", saved(lambda bias: bias.to("meta")), "last.bias is empty (of the device 'meta')"),
    "complex": (".pt", saved(lambda bias: bias.to(torch.complex64)), "last.bias is complex"),
    "integers": (".pt", saved(Tensor.long), "last.bias is int64 in the file and float32 in the network"),
    "booleans": (".pt", saved(lambda bias: bias > 0), "last.bias is bool in the file and float32 in the network"),
    "integers, safetensors": (".safetensors", safe(Tensor.int), "last.bias is int32 in the file and float32"),
    "quantised": (
        ".pt",
        saved(lambda bias: torch.quantize_per_tensor(bias, 0.1, 0, torch.qint8)),
        "last.bias is quantised",
    ),
    "a number": (".pt", saved(lambda _: 1.0), "it lacks last.bias"),
    "a value repeated": (
        ".pt",
        saved(lambda _: torch.ones(1).expand(10**6, 10**7)),
        "last.bias is (1000000, 10000000)",
    ),
    "packed": (".pt", packed, "a compressed archive"),
    "terabytes": (".pt", declares_terabytes, "needs more memory than there is"),
    "a pipe": (".pt", os.mkfifo, "there is no such file of weights"),
}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    place = tmp_path_factory.mktemp("weights")
    images = write_folder(place / "images", 1, 0.0)
    commands = {}
    for number, (name, (ending, make, _)) in enumerate(CASES.items()):
        path = place / f"{number}{ending}"
        make(path)
        model = f"{path},network=outside_networks:OutsideNetwork"
        data = f'a=folder:{images},images=images,labels=labels,classes=["dark","middle","light"]'
        commands[name] = ["evaluate", "--model", model, "--on", data, "--out", place / f"out{number}"]
    return answers(commands, Path(__file__).parent)


@pytest.mark.parametrize("name", CASES)
def test_hostile_weights_are_refused_in_one_line(name: str, answered: dict[str, Answer]) -> None:
    assert_refused(answered[name], CASES[name][2])
