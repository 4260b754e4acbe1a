"""Networks that a method cannot use are refused before any network is trained, those to start from included."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from small_dense_recipe import small_dense
from small_segmentation_recipe import small_segmentation
from torch import Tensor, nn

import epibench
from epibench.errors import InputError
from epibench.recipes import Recipe


class WideLastLayer(nn.Module):
    """A network of the user's whose last convolution is no map of single pixels, and which has no stages."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(4, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2, 3, padding=1))

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Mean and log variance."""
        outputs: Tensor = self.layers(torch.cat((inputs["image"].float() / 255, inputs["sparse_depth"] / 10), 1))
        return outputs


OWN = f"network={json.dumps({'kind': 'own', 'name': 'test_refused_networks:WideLastLayer'})}"


def refused(recipe: Recipe, folder: Path) -> str:
    with pytest.raises(InputError) as error:
        epibench.run(recipe, folder, device="cpu", jobs=1)
    assert not list(folder.glob("members/*/*.safetensors"))
    return str(error.value)


def test_laplace_without_a_last_layer(tmp_path: Path) -> None:
    recipe = small_dense(tmp_path / "cache", OWN, 'methods=["ensemble", "laplace"]')
    told = refused(recipe, tmp_path / "run")
    assert told.startswith("laplace: WideLastLayer: its last layer 'layers.2' is Conv2d(")
    assert "give the network an attribute `last_layers`" in told


@pytest.mark.parametrize("frozen", ["true", "false"])
def test_a_shared_trunk_without_stages_is_named_once(frozen: str, tmp_path: Path) -> None:
    settings = ('methods=["ensemble", "shared_trunk"]', f"shared_trunk.frozen={frozen}", "shared_trunk.shared=-1")
    told = refused(small_dense(tmp_path / "cache", OWN, *settings), tmp_path / "run")
    assert told == "shared_trunk: WideLastLayer has no stages() that could be shared (docs/networks.md)"


def variant(method: str, **network: object) -> tuple[str, str]:
    given = {"other": {"method": method, "network": network}}
    return 'methods=["ensemble", "other"]', f"variants={json.dumps(given)}"


def test_options_that_the_network_of_a_variant_does_not_take(tmp_path: Path) -> None:
    recipe = small_dense(tmp_path / "cache", OWN, *variant("ensemble", options={"wdth": 8}))
    told = refused(recipe, tmp_path / "run")
    assert told.startswith("variants.other.network.options: test_refused_networks:WideLastLayer cannot be called with")


def test_pretrained_weights_that_a_variant_cannot_load(tmp_path: Path) -> None:
    settings = variant("ensemble", backbone_weights=str(tmp_path / "none.pth"))
    told = refused(small_segmentation(tmp_path / "cache", *settings), tmp_path / "run")
    assert told.startswith(f"variants.other.network: {tmp_path / 'none.pth'}: no such file")
