"""A network of the user's in a recipe."""

import sys
from pathlib import Path

import pytest
from torch import nn

from epibench.errors import InputError
from epibench.recipes.dense import OwnNetwork

MODULE = """
from torch import nn

class Garden(nn.Conv2d):
    def __init__(self, num_classes, width=8):
        super().__init__(width, num_classes, 1)

class Broken(nn.Module):
    def __init__(self, num_classes):
        num_classes()

def number(num_classes):
    return 3
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The module of a user in the current folder, forgotten after a test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("garden_network.py").write_text(MODULE)
    yield
    sys.modules.pop("garden_network", None)


def test_it_is_called_with_its_options_and_the_number_of_classes() -> None:
    network = OwnNetwork(name="garden_network:Garden", options={"width": 12}).build(5)
    assert isinstance(network, nn.Conv2d)
    assert (network.in_channels, network.out_channels) == (12, 5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "Garden",
            {"widht": 3},
            "network.options: garden_network:Garden cannot be called with num_classes, widht (got an",
        ),
        ("number", {}, "network.name: garden_network:number gives int; a network is an nn.Module"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError) as caught:
        OwnNetwork(name=f"garden_network:{name}", options=options).build(5)
    assert message in str(caught.value)


def test_what_goes_wrong_within_it_is_not_blamed_on_the_options() -> None:
    with pytest.raises(InputError, match=r"cannot be made: TypeError in .*'int' object is not callable"):
        OwnNetwork(name="garden_network:Broken").build(5)
