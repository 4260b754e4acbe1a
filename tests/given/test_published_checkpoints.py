"""Checkpoints by the authors' names are the authors' networks, and any other file is refused in one line."""

from __future__ import annotations

import hashlib
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from author_networks import (
    KEYS,
    SHAPES,
    Masks,
    Weights,
    counted,
    depth_network,
    identity,
    random_weights,
    segmentation_network,
)
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from epibench import evaluate
from epibench.data.cityscapes_classes import CITYSCAPES_LABEL_IDS
from epibench.errors import InputError
from epibench.networks.dropout import SeededDropout
from epibench.published.checkpoints import load_checkpoint, read_checkpoint
from epibench.results import Results, load_results
from epibench.runs.given_inputs import published_model, with_convention
from epibench.street import StreetDataset
from named_recipes import recipe_of
from street_files import write_street

RECIPE = {"depth": "kitti-depth", "segmentation": "cityscapes-segmentation"}
SIZE = (32, 64)
Command = Callable[..., str]


@pytest.fixture(scope="module")
def authors() -> dict[str, Weights]:
    return {task: random_weights(task) for task in SHAPES}


@pytest.fixture(scope="module")
def checkpoints(authors: dict[str, Weights], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two checkpoints of each task; the first of depth as DataParallel saved it, without counters."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for task, last in (("depth", "convtf_mean.0.bias"), ("segmentation", "cls.bias")):
        prefix = "module." if task == "depth" else ""
        torch.save({prefix + name: each for name, each in authors[task].items()}, folder / f"{task}_0.pth")
        torch.save({**authors[task], last: authors[task][last].flip(0) + 0.01}, folder / f"{task}_1.pth")
    return folder


@pytest.fixture(scope="module")
def networks(checkpoints: Path) -> dict[str, nn.Module]:
    return {task: published_model(checkpoints / f"{task}_0.pth", None).open().eval() for task in SHAPES}


def make_inputs(height: int, width: int) -> dict[str, Tensor]:
    """Without pixels whose grey lies in the middle between two whole numbers, where either is right."""
    generator = torch.Generator().manual_seed(height)
    image = torch.randint(0, 256, (2, 3, height, width), generator=generator, dtype=torch.uint8)
    weighted = (image.long() * torch.tensor([299, 587, 114]).view(3, 1, 1)).sum(1)
    image[:, 2] ^= (weighted % 1000 == 500).byte()
    known = torch.rand(2, 1, height, width, generator=generator) < 0.05
    return {"image": image, "sparse_depth": torch.where(known, 80 * torch.rand(known.shape, generator=generator), 0.0)}


def assert_equal(found: Tensor, expected: Tensor) -> None:
    """To 1e-5 of the largest value."""
    assert float((found - expected).abs().max()) <= 1e-5 * float(expected.abs().max())
    assert float(expected.std()) > 1e-2 * float(expected.abs().max())  # something is predicted


@pytest.mark.parametrize("dropped", [False, True], ids=["plain", "dropout"])
@pytest.mark.parametrize("size", [(32, 48), (64, 32)])
def test_depth_checkpoint_is_the_network_of_the_authors(
    authors: dict[str, Weights], networks: dict[str, nn.Module], size: tuple[int, int], dropped: bool
) -> None:
    inputs, drop = make_inputs(*size), Masks(stem_place=6) if dropped else identity
    with torch.inference_mode():
        expected = depth_network(authors["depth"], inputs["image"], inputs["sparse_depth"], drop)
        with SeededDropout(KEYS, by_mode=not dropped) as mode:
            found = networks["depth"](inputs)
    assert mode.calls == (7 if dropped else 0)
    for channel in range(2):
        assert_equal(found[:, channel], expected[:, channel])


@pytest.mark.parametrize("dropped", [False, True], ids=["plain", "dropout"])
@pytest.mark.parametrize("size", [(48, 64), (65, 33)])
def test_segmentation_checkpoint_is_the_network_of_the_authors(
    authors: dict[str, Weights], networks: dict[str, nn.Module], size: tuple[int, int], dropped: bool
) -> None:
    inputs, drop = make_inputs(*size), Masks() if dropped else identity
    with torch.inference_mode():
        expected = segmentation_network(authors["segmentation"], inputs["image"], drop)
        with SeededDropout(KEYS, by_mode=not dropped) as mode:
            found = functional.interpolate(networks["segmentation"](inputs), size, mode="bilinear", align_corners=True)
    assert mode.calls == (4 if dropped else 0)
    assert_equal(found, expected)


# Names and shapes


@pytest.mark.parametrize(("task", "digest"), [("depth", "54fd730e4313d316"), ("segmentation", "6e63dc69d091cf2d")])
def test_names_and_shapes_are_the_listed_ones(task: str, digest: str) -> None:
    """By the SHA-256 of the list made from the authors' networks, whose depth network has counters of batch norm."""
    shapes = counted(SHAPES[task]()) if task == "depth" else SHAPES[task]()
    lines = sorted(f"{name} {'x'.join(map(str, shape)) or 'scalar'}\n" for name, shape in shapes.items())
    assert hashlib.sha256("".join(lines).encode()).hexdigest()[:16] == digest


def blank(task: str, counters: bool = False) -> dict[str, Tensor]:
    """A checkpoint that is a small file: each tensor repeats one number."""
    shapes = counted(SHAPES[task]()) if counters else SHAPES[task]()
    return {name: torch.ones(()).expand(shape) for name, shape in shapes.items()}


def written(folder: Path, content: object) -> Path:
    torch.save(content, folder / "checkpoint.pth")
    return folder / "checkpoint.pth"


@cache
def network_of(task: str) -> nn.Module:
    network: nn.Module = recipe(task).network.build(None if task == "depth" else 19)
    return network


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("counters", [False, True], ids=["without counters", "counters"])
@pytest.mark.parametrize("task", list(SHAPES))
def test_prefix_and_counters_may_be_there_or_not(task: Any, counters: bool, prefix: str, tmp_path: Path) -> None:
    path = written(tmp_path, {prefix + name: each for name, each in blank(task, counters).items()})
    assert read_checkpoint(path)[0] == task
    load_checkpoint(network_of(task), path, task)


class Code:
    def __reduce__(self) -> Any:
        return print, ("executed",)


def changed(**tensors: Tensor | None) -> dict[str, Tensor]:
    """A depth checkpoint with other tensors, or without some."""
    weights: dict[str, Any] = {**blank("depth"), **{name.replace("__", "."): each for name, each in tensors.items()}}
    return {name: each for name, each in weights.items() if each is not None}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({**blank("depth"), "more": Code()}, "print to be read, and nothing in a file is executed"),
        ([1, 2], "holds a list, not tensors by name"),
        ({}, "no checkpoint of the authors (it has no tensors); expected the depth network"),
        ({"fc.weight": torch.ones(3)}, "no checkpoint of the authors (fc.weight); expected the depth network"),
        (blank("segmentation"), "a checkpoint of the segmentation network; expected one of the depth network"),
        (changed(conv6__0__weight=None), "not the weights of the published depth network; missing: conv6.0.weight"),
        (changed(conv7__weight=torch.ones(3)), "unexpected: conv7.weight"),
        (changed(conv1_img__0__weight=torch.ones(32, 3, 3, 3)), "conv1_img.0.weight (32, 3, 3, 3) instead of (32, 1,"),
        (changed(convtf_var__0__bias=torch.tensor([float("nan")])), "convtf_var.0.bias holds NaN or infinite values"),
        (changed(convtf_var__0__bias=torch.tensor([1e300], dtype=torch.float64)), "bias holds NaN or infinite"),
    ],
)
def test_other_files_are_refused_in_one_line(content: object, words: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InputError) as refused:
        load_checkpoint(network_of("depth"), path, "depth")
    assert str(refused.value).startswith(f"{path}: ")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"no weights\n", pickle.dumps(Code()), b"PK\x03\x04"])
def test_a_file_that_cannot_be_read_is_refused_without_advice_to_execute_it(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pth"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"not a readable file of torch.save \(\w+\)\. Fix: download") as refused:
        read_checkpoint(path)
    assert "weights_only" not in str(refused.value)


def test_a_compressed_archive_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + b"}0" * 10**6)
        archive.writestr("archive/version", "3")
    with pytest.raises(InputError, match=r"checkpoint.pth: a compressed archive, which torch.save never writes"):
        read_checkpoint(path)


# Evaluation


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two scenes each in the layouts of KITTI and Cityscapes."""
    folder = tmp_path_factory.mktemp("data")
    for layout in ("kitti", "cityscapes"):
        write_street(StreetDataset("depth", "clean", 2, seed=3, size=SIZE), layout, folder / layout, "val")
    return {
        "depth": f"kitti:{folder}/kitti,crop=[{SIZE[0]},{SIZE[1]}]",
        "segmentation": f"cityscapes:{folder}/cityscapes",
    }


def test_an_ensemble_and_passes_from_the_command_line(
    checkpoints: Path, data: dict[str, str], tmp_path: Path, command: Command
) -> None:
    models = ("--model", f"paper:{checkpoints}/depth_*.pth", "--mc-dropout", 2, "--members", 2)
    command("evaluate", *models, "--on", f"val={data['depth']},num_images=1", "--out", tmp_path / "out")
    results = load_results(tmp_path / "out")
    assert isinstance(results, Results)
    assert results.convention == "gustafsson2020"
    assert {one.method: (one.pool.num_members, one.pool.num_groups) for one in results.scores} == {
        "given": (2, None),
        "mc_dropout": (4, 2),
    }
    nll = {results.score(name, "val").summary[2]["nll"].mean for name in results.methods}
    assert len(nll) == 2
    assert None not in nll
    assert (tmp_path / "out" / "report.html").is_file()


def frames(folder: str, *names: str) -> Iterator[list[np.ndarray]]:
    """The files of each frame."""
    root = Path(folder.split(":", 1)[1].split(",")[0])
    for files in zip(*(sorted(root.glob(name)) for name in names), strict=True):
        yield [np.asarray(Image.open(file)) for file in files]


def test_segmentation_networks_are_scored_as_the_authors_networks(checkpoints: Path, data: dict[str, str]) -> None:
    models, on = f"paper:{checkpoints}/segmentation_*.pth", f"{data['segmentation']},num_images=1"
    results = evaluate(models, {"val": on}, members=[2], mc_dropout=2, pictures=0)
    image, labels = next(frames(data["segmentation"], "leftImg8bit/**/*.png", "gtFine/**/*_labelIds.png"))
    inputs = torch.from_numpy(image.copy()).movedim(-1, 0)[None]
    networks = [torch.load(path) for path in sorted(checkpoints.glob("segmentation_*.pth"))]
    with torch.inference_mode():
        logits = [segmentation_network(each, inputs)[0] for each in networks]
    classes = torch.tensor([dict(CITYSCAPES_LABEL_IDS.values)[int(label)] for label in labels.flat])
    probs = torch.stack(logits).softmax(1).mean(0).flatten(1).T[classes != 255]
    expected = (probs - nn.functional.one_hot(classes[classes != 255], 19)).square().sum(1).double().mean()
    assert results.score("given", "val").summary[2]["brier"].mean == pytest.approx(float(expected), rel=1e-5)
    assert results.score("mc_dropout", "val").pool.num_members == 4


def test_one_depth_network_is_scored_as_the_authors_network(
    authors: dict[str, Weights], checkpoints: Path, data: dict[str, str]
) -> None:
    results = evaluate(f"paper:{checkpoints}/depth_0.pth", {"val": data["depth"]}, pictures=0)
    errors = []
    folder = "depth_selection/val_selection_cropped"
    for image, *depths in frames(
        data["depth"], f"{folder}/image/*", f"{folder}/velodyne_raw/*", f"{folder}/groundtruth_depth/*"
    ):
        sparse, target = (torch.from_numpy(depth.astype(np.float32) / 256) for depth in depths)
        inputs = torch.from_numpy(image.copy()).movedim(-1, 0)[None]
        with torch.inference_mode():
            mean = depth_network(authors["depth"], inputs, sparse[None, None])[0, 0]
        errors.append((mean - target)[target > 0].abs())
    found = results.score("given", "val").summary[1]["mae"].mean
    assert found == pytest.approx(float(torch.cat(errors).double().mean()), rel=1e-5)


def test_a_checkpoint_says_the_task_where_data_may_have_either(checkpoints: Path) -> None:
    street = f"street:clean,num_images=1,size=[{SIZE[0]},{SIZE[1]}]"
    results = evaluate([f"paper:{checkpoints}/depth_0.pth"], {"street": street}, pictures=0)
    assert (results.problem, results.scores[0].unit) == ("depth-completion", "m")


@pytest.mark.parametrize("task", ["segmentation", None])
def test_a_depth_network_is_refused_for_classes(
    task: str | None, checkpoints: Path, data: dict[str, str], tmp_path: Path, command: Command
) -> None:
    given = ("--model", f"paper:{checkpoints}/depth_0.pth", *(("--task", task) if task else ()))
    errors = command("evaluate", *given, "--on", f"val={data['segmentation']}", "--out", tmp_path / "out", status=2)
    assert "a checkpoint of the depth network; expected one of the segmentation network" in errors
    assert errors.count("\n") == 1


def test_settings_are_refused(checkpoints: Path, data: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"published networks have no settings; leave order out"):
        evaluate(f"paper:{checkpoints}/depth_0.pth,order=bgr", {"val": data["depth"]})


def test_a_missing_file_is_named(data: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"paper:none.pth: there is no such file"):
        evaluate("paper:none.pth", {"val": data["depth"]})


@pytest.mark.parametrize(
    ("conventions", "given", "expected"),
    [
        (["gustafsson2020", "gustafsson2020"], {}, "gustafsson2020"),
        (["gustafsson2020", "pooled"], {}, "pooled"),
        (["gustafsson2020"], {"convention": "pooled"}, "pooled"),
    ],
)
def test_the_published_convention_is_the_default_of_published_networks(
    conventions: list[str], given: Mapping[str, Any], expected: str, checkpoints: Path
) -> None:
    model = published_model(checkpoints / "depth_0.pth", "depth")
    models = [replace(model, convention=each) for each in conventions]  # type: ignore[arg-type]
    options = type(recipe("depth").evaluation)(**given)
    assert with_convention(options, {"given": models}).convention == expected


# Training


def recipe(task: str, *settings: str) -> Any:
    return recipe_of(RECIPE[task], *settings)


@pytest.mark.parametrize("task", list(SHAPES))
def test_training_starts_from_a_checkpoint(task: str, checkpoints: Path, networks: dict[str, nn.Module]) -> None:
    started = recipe(task, f"network.weights=paper:{checkpoints}/{task}_0.pth")
    network = started.builder(None if task == "depth" else 19, pretrained=True)()
    expected = networks[task].state_dict()
    assert all(torch.equal(each, expected[name]) for name, each in network.state_dict().items())


@pytest.mark.parametrize(
    ("task", "settings", "words"),
    [
        ("depth", ["network.width=16"], "weights: the published network has width=32; set this as well"),
        ("depth", ["network.grey=false"], "weights: the published network has grey=true; set this as well"),
        ("segmentation", ["network.normalisation=imagenet"], 'has normalisation="gustafsson2020"'),
        ("segmentation", ["network.backbone_weights=a.pth"], "hold the backbone, too; leave backbone_weights out"),
        ("depth", ["network.weights=a.pth"], "'a.pth' is no checkpoint of the authors; give paper:FILE"),
    ],
)
def test_other_networks_cannot_start_from_a_checkpoint(task: str, settings: list[str], words: str) -> None:
    with pytest.raises(InputError) as refused:
        recipe(task, "network.weights=paper:a.pth", *settings)
    assert words in str(refused.value)


def test_what_training_may_change_is_not_refused() -> None:
    settings = ("network.weights=paper:a.pth", "network.head_dropout=0", "network.dropout_places=blocks")
    network = recipe("segmentation", *settings).network
    assert (network.weights, network.head_dropout, network.dropout_places) == ("paper:a.pth", 0, "blocks")
