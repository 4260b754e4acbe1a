"""The paper's two dense recipes, end to end on scenes in the official layouts, with small networks on small images."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_reporter import run_in

from epibench.errors import InputError
from street_files import write_scenes, write_synscapes

SHORT = (
    *("members=[1, 2]", "training.epoch_steps=2", "training.crop=[32, 32]", "ensemble.num_members=2"),
    *("ensemble.num_epochs=1", "ensemble.batch_size=2", "mc_dropout.num_networks=2", "mc_dropout.num_passes=2"),
    *("mc_dropout.num_epochs=1", "mc_dropout.batch_size=2", "network.width=8"),
)
PUBLISHED = {"depth": ("ause", "rmse"), "segmentation": ("ause", "ece", "miou")}


def check(results: dict, domains: dict[str, str], metrics: tuple[str, ...]) -> None:
    """Both methods have scores on every domain, under both conventions."""
    assert results["failed"] == {}
    assert {name: facts["role"] for name, facts in results["domains"].items()} == domains
    for method in ("ensemble", "mc_dropout"):
        for domain in domains:
            values = results["summary"][method][domain]["2"]
            assert all(values[name]["mean"] is not None for name in metrics)
            assert all(values[f"{name}_gustafsson2020"]["mean"] is not None for name in metrics)
    assert results["methods"]["mc_dropout"]["num_groups"] == 2


def test_kitti_depth(tmp_path: Path) -> None:
    write_scenes("virtual_kitti", tmp_path / "virtual_kitti", 50)
    write_scenes("kitti", tmp_path / "kitti", 5, "wild")
    smaller = ("network.blocks=[1, 1, 1, 1]", "data.train.crop=[48, 112]", "data.domains.kitti.crop=[48, 112]")
    smaller += ("data.domains.virtual-kitti.crop=[48, 112]", "data.domains.virtual-kitti.num_images=4")
    results = run_in(tmp_path / "run", "kitti-depth", settings=(f"data.root={tmp_path}", *SHORT, *smaller))
    check(results, {"virtual-kitti": "in-domain", "kitti": "shifted"}, PUBLISHED["depth"])
    values = results["summary"]["ensemble"]["kitti"]["2"]
    # Five images are a group of four and one of one: their mean is not the error of all pixels together.
    assert values["rmse_gustafsson2020"]["mean"] != pytest.approx(values["rmse"]["mean"], rel=1e-9)


def test_kitti_in_domain(tmp_path: Path) -> None:
    write_scenes("kitti", tmp_path / "kitti", 4, split="train")
    smaller = ("network.blocks=[1, 1, 1, 1]", "data.train.crop=[48, 112]", "data.domains.kitti.crop=[48, 112]")
    results = run_in(tmp_path / "run", "kitti-in-domain", settings=(f"data.root={tmp_path}", *SHORT, *smaller))
    check(results, {"kitti": "in-domain"}, PUBLISHED["depth"])


def small_segmentation(root: Path, name: str, *more: str) -> dict:
    smaller = ("network.depth=18", "network.head_width=8", "network.rates=[1, 2]", f"data.root={root}")
    return run_in(root / "run", name, settings=(*SHORT, *smaller, *more))


def test_cityscapes_segmentation(tmp_path: Path) -> None:
    absent = write_synscapes(tmp_path)
    write_scenes("cityscapes", tmp_path / "cityscapes", 2, "wild")
    with pytest.raises(InputError, match=r"network.backbone_weights: this recipe starts from weights of ImageNet"):
        small_segmentation(tmp_path, "cityscapes-segmentation")
    few = "data.domains.synscapes.num_images=2"
    results = small_segmentation(tmp_path, "cityscapes-segmentation", few, "network.backbone_weights=null")
    check(results, {"synscapes": "in-domain", "cityscapes": "shifted"}, PUBLISHED["segmentation"])
    for notes, split in ((results["training_notes"], "train"), (results["domains"]["synscapes"]["notes"], "val")):
        (note,) = notes
        assert note.startswith("26 absent of the ")
        assert note.endswith(f": {', '.join(map(str, absent[split]))}.")


def test_cityscapes_in_domain(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("val", 2)):
        write_scenes("cityscapes", tmp_path / split, count, split=split)
    root = tmp_path / "cityscapes"
    for kind in ("leftImg8bit", "gtFine"):
        (root / kind).mkdir(parents=True)
        for split in ("train", "val"):
            (tmp_path / split / kind / split).rename(root / kind / split)
    results = small_segmentation(tmp_path, "cityscapes-in-domain", "network.backbone_weights=null")
    check(results, {"cityscapes": "in-domain"}, PUBLISHED["segmentation"])
