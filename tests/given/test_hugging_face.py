"""Models of Hugging Face come out as their own processor and post-processing have it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hf_networks import save_folder
from outside_networks import NAMES, write_folder
from PIL import Image
from torch import Tensor

import epibench
from epibench import evaluate
from epibench.data.sets.folder import FolderSource
from epibench.errors import InputError
from epibench.metrics import ece
from epibench.results import Results
from epibench.street import StreetDataset
from street_files import write_street

transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")
pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("pictures"), 4, 0.3)


def text(images: Path) -> str:
    return f'folder:{images},images=images,labels=labels,classes=["dark","middle","light"]'


def by_hand(folder: Path, images: Path) -> tuple[Tensor, Tensor]:
    """Probabilities and classes of all labelled pixels, with the model's own processor and post-processing."""
    model = transformers.SegformerForSemanticSegmentation.from_pretrained(folder).eval()
    processor = transformers.SegformerImageProcessorPil.from_pretrained(folder)
    probs, targets = [], []
    for file in sorted((images / "images").iterdir()):
        target = torch.from_numpy(np.asarray(Image.open(images / "labels" / file.name)).astype(np.int64))
        with torch.inference_mode():
            output = model(**processor(images=Image.open(file), return_tensors="pt"))
        size = tuple(target.shape)
        logits = torch.nn.functional.interpolate(output.logits, size=size, mode="bilinear", align_corners=False)[0]
        (own,) = processor.post_process_semantic_segmentation(output, target_sizes=[size])
        assert torch.equal(own, logits.argmax(0))
        probs.append(logits.double().softmax(0)[:, target != 255].T)
        targets.append(target[target != 255])
    return torch.cat(probs), torch.cat(targets)


@pytest.mark.parametrize("size", [(32, 48), None], ids=["resized", "as it is"])
def test_a_segformer_scores_as_a_loop_with_its_own_post_processing(
    size: tuple[int, int] | None, images: Path, tmp_path: Path
) -> None:
    folder = save_folder(tmp_path / "model", 0, NAMES, size)
    results = evaluate(f"hf:{folder}", {"pictures": text(images)})
    probs, target = by_hand(folder, images)
    found = results.score("given", "pictures").summary[1]
    one_hot = torch.nn.functional.one_hot(target, 3)
    assert found["brier"].mean == pytest.approx(float((probs - one_hot).square().sum(1).mean()), abs=1e-6)
    assert found["nll"].mean == pytest.approx(-float(probs.gather(1, target[:, None]).log().mean()), abs=1e-6)
    assert found["ece"].mean == pytest.approx(float(ece(probs, target)), abs=1e-6)
    assert found["miou"].mean == pytest.approx(miou(probs.argmax(1), target), abs=1e-6)
    assert results.domains["pictures"].class_names == list(NAMES)


def miou(predicted: Tensor, target: Tensor) -> float:
    shares = []
    for number in range(3):
        union = ((predicted == number) | (target == number)).sum()
        if union:
            shares.append(float(((predicted == number) & (target == number)).sum() / union))
    return float(np.mean(shares))


def test_its_classes_are_matched_by_their_names(images: Path, tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "model", 0, ("light", "dark", "middle", "other"), None)
    results = evaluate(f"hf:{folder}", {"pictures": text(images)})
    assert sorted(results.domains["pictures"].class_names or []) == sorted(NAMES)
    assert "left out: other of the model" in (results.domains["pictures"].classes or "")


def test_several_models_with_dropout_of_their_own_and_views_of_images(images: Path, tmp_path: Path) -> None:
    folders = [save_folder(tmp_path / str(seed), seed, NAMES, None) for seed in range(2)]
    models, data = [f"hf:{folder}" for folder in folders], {"pictures": text(images)}
    results = evaluate(models, data, mc_dropout=2, views=["flip"])
    assert results.score("given", "pictures").pool.num_members == 2
    assert results.score("mc_dropout", "pictures").pool.num_members == 4
    assert results.score("views", "pictures").pool.num_members == 4
    first, both = (results.score("views", "pictures").summary[size]["nll"].mean for size in (1, 2))
    assert first == results.score("given", "pictures").summary[1]["nll"].mean != both


def test_a_relative_depth_is_refused(tmp_path: Path, images: Path) -> None:
    config = transformers.DepthAnythingConfig(depth_estimation_type="relative")
    config.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="relative depth"):
        evaluate(f"hf:{tmp_path}", {"kitti": "kitti:nowhere"}, task="depth")


def depth_model(folder: Path) -> Any:
    """A small network of depth, written into a folder."""
    torch.manual_seed(0)
    config = transformers.GLPNConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=8
    )
    model = transformers.GLPNForDepthEstimation(config).eval()
    model.save_pretrained(folder)
    return model


def test_data_says_what_a_model_is_for(tmp_path: Path) -> None:
    depth_model(tmp_path / "model")
    write_street(StreetDataset("depth", length=2, size=(64, 96)), "kitti", tmp_path / "kitti")
    data = f"kitti:{tmp_path}/kitti,crop=null"
    results = evaluate(f"hf:{tmp_path}/model,image_max=1", {"val": data}, pictures=0)
    assert (results.problem, results.scores[0].unit) == ("depth-completion", "m")


def test_numbers_that_are_metres_are_for_a_network_of_depth(tmp_path: Path) -> None:
    depth_model(tmp_path)
    data = [(torch.zeros(3, 64, 96, dtype=torch.uint8), torch.ones(64, 96))]
    results = evaluate(f"hf:{tmp_path},image_max=1", data, depth=True, pictures=0)
    assert results.problem == "depth-completion"


def test_a_metric_depth_is_evaluated_as_a_loop_has_it(tmp_path: Path) -> None:
    model = depth_model(tmp_path)
    images = torch.randint(0, 256, (3, 3, 64, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        predicted = model(pixel_values=images.float() / 255).predicted_depth
    fine = torch.nn.functional.interpolate(predicted[:, None], (64, 96), mode="bilinear", align_corners=False)[:, 0]
    target = fine + torch.randn(fine.shape, generator=torch.Generator().manual_seed(2))
    data = [
        ({"image": image, "sparse_depth": 0 * image[:1].float()}, y) for image, y in zip(images, target, strict=True)
    ]
    results = evaluate(f"hf:{tmp_path},image_max=1", data, task="depth")
    expected = float((fine - target).double().square().mean().sqrt())
    assert results.score("given", "data").summary[1]["rmse"].mean == pytest.approx(expected, rel=1e-5)
    assert results.scores[0].unit == "m"
    assert "abs_rel" in results.score("given", "data").summary[1]


@pytest.mark.parametrize(
    "name", ["./net", "/nowhere/net", "~/nowhere/net", "models/", "a/b/c", "", "a b", "a--b", "-a"]
)
def test_what_is_no_folder_and_no_name_of_the_hub_is_refused_without_a_request(
    name: str, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: pytest.fail("asked the hub"))
    with pytest.raises(InputError, match=r"^hf:.*Fix: give the folder of a model, or its name on the hub"):
        evaluate(f"hf:{name}", {"pictures": text(images)})


def test_a_hub_that_does_not_answer_is_tried_once(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[str]()

    def unreachable(url: str, **options: float) -> None:
        tried.append(url)
        raise ConnectionError

    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: SimpleNamespace(head=unreachable))
    with pytest.raises(InputError, match="hf:nobody/none: not in the local cache, and the hub could not be reached"):
        evaluate("hf:nobody/none", {"pictures": text(images)})
    assert len(tried) == 1


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path, images: Path) -> None:
    with pytest.raises(InputError, match="hf:"):
        evaluate(f"hf:{tmp_path}", {"pictures": text(images)})


def test_a_recipe_trains_it_as_a_network_of_one_s_own_and_evaluates_it_with_its_corners(
    images: Path, tmp_path: Path
) -> None:
    source = {"kind": "folder", "root": str(images), "classes": list(NAMES)}
    settings = (
        "network=hf_networks:SegFormer",
        f"data.train={json(source)}",
        f'data.domains={{"pictures": {json(source)}}}',
        *('methods=["ensemble"]', "members=[1, 2]", "ensemble.num_members=2"),
        *("training.epoch_steps=2", "ensemble.num_epochs=1", "ensemble.batch_size=2"),
        *("training.crop=[16, 16]", "training.pad=false", "evaluation.pictures=0", "training.class_weights=null"),
    )
    results = epibench.run("folder-segmentation", tmp_path / "run", settings, device="cpu", jobs=1)
    # The same members as given models, through a second way.
    given = evaluate(f"run:{tmp_path / 'run'}", {"pictures": text(images)}, pictures=0)
    for metric in ("brier", "nll", "miou"):
        expected = mean(results, "ensemble", metric)
        assert mean(given, "given", metric) == pytest.approx(expected, rel=1e-6)
    aligned = evaluate(f"run:{tmp_path / 'run'},align_corners=true", {"pictures": text(images)}, pictures=0)
    assert mean(aligned, "given", "brier") != mean(given, "given", "brier")


def mean(results: Results, method: str, metric: str) -> float:
    value = results.score(method, "pictures").summary[2][metric].mean
    assert isinstance(value, float)
    return value


def json(source: dict[str, object]) -> str:
    import json as library

    return library.dumps(FolderSource.model_validate(source).model_dump(mode="json"))
