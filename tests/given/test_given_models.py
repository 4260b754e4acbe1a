"""Models that were trained elsewhere are evaluated alike, whichever way they are given."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from outside_networks import NAMES, SIZE, OutsideData, OutsideNetwork, make_picture, write_folder
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import epibench
from epibench import evaluate
from epibench.errors import InputError
from epibench.members.given import GivenPool
from epibench.results import Results, load_results
from epibench.store import write_store

NAMED = list(NAMES)
Networks = list[OutsideNetwork]
Folders = dict[str, Path]
Command = Callable[..., str]


def texts(folders: Folders) -> dict[str, str]:
    names = '["dark","middle","light"]'
    return {name: f"folder:{folder},images=images,labels=labels,classes={names}" for name, folder in folders.items()}


def domains(folders: Folders) -> list[str]:
    return [part for name, text in texts(folders).items() for part in ("--on", f"{name}={text}")]


def numbers(results: Results, method: str = "given") -> dict[tuple[str, int, str], float]:
    """Every metric of every M on every domain."""
    return {
        (score.domain, size, metric): stat.mean
        for score in results.scores
        if score.method == method
        for size, metrics in score.summary.items()
        for metric, stat in metrics.items()
        if isinstance(stat.mean, int | float)
    }


def assert_same(found: Results, expected: Results, tolerance: float = 1e-6, method: str = "given") -> None:
    ours, theirs = numbers(found, method), numbers(expected, method)
    assert ours.keys() == theirs.keys()
    assert len(ours) > 10
    for key, value in theirs.items():
        # Rounding moves pixels to neighbouring bins, and AUSE within its bound.
        allowed = theirs[*key[:2], "ause_bound"] if key[2].startswith("ause") and tolerance else tolerance
        assert ours[key] == pytest.approx(value, rel=tolerance, abs=allowed), key


@pytest.fixture(scope="module")
def by_module(networks: Networks, folders: Folders) -> Results:
    return evaluate(networks, texts(folders), pictures=0)


def test_functions_give_the_same_numbers_as_modules(networks: Networks, folders: Folders, by_module: Results) -> None:
    functions: list[Callable[[Tensor], Tensor]] = [lambda image, own=own: own(image) for own in networks]
    assert_same(evaluate(functions, texts(folders), pictures=0), by_module)


def test_state_dicts_give_the_same_numbers_from_the_command_line(
    networks: Networks, folders: Folders, by_module: Results, tmp_path: Path, command: Command
) -> None:
    for number, network in enumerate(networks):
        weights = network.state_dict()
        if number == 1:  # as DistributedDataParallel saves them
            weights = {f"module.{key}": value for key, value in weights.items()}
        if number == 2:  # as Lightning saves them
            weights = {"state_dict": {f"net.{key}": value for key, value in weights.items()}, "epoch": 3}
        torch.save(weights, tmp_path / f"{number}.pt")
    models = f"{tmp_path}/*.pt,network=outside_networks:OutsideNetwork"
    command("evaluate", "--model", models, *domains(folders), "--set", "pictures=0", "--out", tmp_path / "out")
    assert_same(load_results(tmp_path / "out"), by_module)
    assert (tmp_path / "out" / "report.html").is_file()


def test_onnx_files_give_the_same_numbers_without_any_code(
    networks: Networks, folders: Folders, by_module: Results, tmp_path: Path, command: Command
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra onnx)")
    pytest.importorskip("onnxscript", reason="onnxscript, which exports ONNX files, is not installed")
    for number, network in enumerate(networks):
        export(network, tmp_path / f"{number}.onnx")
    models = ("--model", f"onnx:{tmp_path}/*.onnx")
    command("evaluate", *models, *domains(folders), "--tta", "flip", "--out", tmp_path / "out")
    results = load_results(tmp_path / "out")
    assert_same(results, by_module, tolerance=2e-6)
    first, both = (results.score("views", "plain").summary[size]["nll"].mean for size in (1, 2))
    assert first == results.score("given", "plain").summary[1]["nll"].mean != both


def export(network: nn.Module, path: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.onnx.export(
        network, (torch.zeros(2, 3, *SIZE),), dynamo=True, dynamic_shapes=({0: batch},), verbose=False
    )
    assert program is not None
    program.save(str(path))


def test_scores_of_stored_predictions_are_the_same(
    networks: Networks, folders: Folders, by_module: Results, tmp_path: Path
) -> None:
    for name, shift in (("plain", 0.0), ("noisy", 1.0)):
        data = OutsideData(6, shift)
        with torch.inference_mode():
            logits = [
                torch.stack([upsampled(network(data[index][0][None]))[0] for index in range(len(data))])
                for network in networks
            ]
        target = torch.stack([data[index][1] for index in range(len(data))])
        path = tmp_path / f"{name}.zarr"
        write_store(path, kind="categorical", logits=torch.stack(logits).movedim(2, -1), target=target)
        scored = epibench.score(path, device="cpu").scores[0]
        ours = by_module.score("given", name).summary
        assert scored.summary.keys() == ours.keys()
        for size, metrics in scored.summary.items():
            for metric in ("ause", "ece", "miou", "brier", "nll", "accuracy"):
                mean = metrics[metric].mean
                allowed = metrics["ause_bound"].mean if metric == "ause" else 1e-6
                assert ours[size][metric].mean == pytest.approx(mean, rel=1e-6, abs=allowed), (size, metric)


def upsampled(logits: Tensor) -> Tensor:
    return nn.functional.interpolate(logits, SIZE, mode="bilinear", align_corners=False)


def test_own_data_sets_and_loaders_give_the_same_numbers(networks: Networks, by_module: Results) -> None:
    data = {"plain": OutsideData(6), "noisy": OutsideData(6, 1.0)}
    expected = evaluate(networks, data, classes=NAMED)
    assert_same(expected, by_module)
    loaders = {name: DataLoader(each, batch_size=4) for name, each in data.items()}
    assert_same(evaluate(networks, loaders, classes=NAMED), expected)
    dicts = {
        name: DataLoader(each, batch_size=4, collate_fn=as_dicts)  # type: ignore[arg-type]
        for name, each in data.items()
    }
    assert_same(evaluate(networks, dicts, classes=NAMED), expected)


def as_dicts(samples: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    images, classes = zip(*samples, strict=True)
    return {"pixel_values": torch.stack(images), "labels": torch.stack(classes)}


def test_classes_need_no_names(networks: Networks) -> None:
    results = evaluate(networks[0], OutsideData(3))
    assert results.domains["data"].class_names == ["class 0", "class 1", "class 2"]
    assert results.methods["given"].label == "One model"


def test_modules_are_left_in_the_mode_that_they_had(networks: Networks) -> None:
    network = copy.deepcopy(networks[0]).train()
    network.first.eval()
    evaluate(network, OutsideData(2))
    assert network.training
    assert network.dropout.training
    assert not network.first.training


def test_only_what_is_missing_is_done(networks: Networks, folders: Folders, tmp_path: Path) -> None:
    counted = [Counted(network) for network in networks[:2]]
    one = {"plain": texts(folders)["plain"]}
    evaluate(counted, one, out=tmp_path, pictures=0)
    before = [each.calls for each in counted]
    evaluate(counted, one, out=tmp_path, pictures=0)
    again = [each.calls for each in counted]
    assert again == [count + 1 for count in before]  # the look at the first image
    results = evaluate(counted, texts(folders), out=tmp_path, pictures=0)
    assert [each.calls for each in counted] == [count + 1 + 6 for count in again]  # and the new domain's six
    assert_same(results, evaluate(counted, texts(folders), pictures=0))


class Counted(nn.Module):
    """A network that counts the images that it sees."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network
        self.seen: list[int] = []

    def forward(self, image: Tensor) -> Tensor:
        self.seen.append(len(image))
        return self.network(image)  # type: ignore[no-any-return]

    @property
    def calls(self) -> int:
        return sum(self.seen)


def test_passes_of_dropout_vary_and_do_not_depend_on_batches(networks: Networks) -> None:
    one, other = (evaluate(networks[:2], OutsideData(5), mc_dropout=4, batch_size=size, seed=3) for size in (1, 5))
    assert one.score("mc_dropout", "data").pool.num_members == 8
    assert one.score("mc_dropout", "data").pool.num_groups == 2
    assert_same(one, other, tolerance=1e-5, method="mc_dropout")  # batches are rounded differently
    briers = {size: one.score("mc_dropout", "data").summary[size]["brier"].mean for size in (1, 2, 4)}
    assert len(set(briers.values())) == 3
    assert one.score("given", "data").summary[1]["brier"].mean not in briers.values()


def test_dropout_that_is_called_as_a_function_acts_too(networks: Networks) -> None:
    def functional(image: Tensor) -> Tensor:
        features = nn.functional.dropout(torch.relu(networks[0].first(image)), 0.5, training=False)
        return networks[0].last(features)

    results = evaluate(functional, OutsideData(3), mc_dropout=2)
    of_pass, plain = (results.score(name, "data").summary[1]["brier"].mean for name in ("mc_dropout", "given"))
    assert of_pass != plain


def test_the_first_view_is_the_image_itself_and_a_flip_is_mapped_back() -> None:
    def symmetric(image: Tensor) -> Tensor:
        return torch.cat([3 * image.mean(1, keepdim=True), -image.amax(1, keepdim=True), 0 * image[:, :1]], 1)

    results = evaluate(symmetric, OutsideData(4), views=["flip"])
    assert results.score("views", "data").pool.num_members == 2
    nll = {size: results.score("views", "data").summary[size]["nll"].mean for size in (1, 2)}
    assert nll[1] == results.score("given", "data").summary[1]["nll"].mean
    assert nll[2] == pytest.approx(nll[1], rel=1e-6)  # a function of single pixels sees the same in a mirror


def test_views_at_other_scales_lie_on_the_same_image(networks: Networks) -> None:
    results = evaluate(networks[0], {"a": OutsideData(3)}, views=["scale", "flip"])
    assert results.score("views", "a").pool.num_members == 6
    nll = [results.score("views", "a").summary[size]["nll"].mean for size in (1, 6)]
    assert all(isinstance(each, float) and np.isfinite(each) for each in nll)
    assert nll[0] != nll[1]


def test_views_are_named_one_by_one_and_drawn_in_their_order(networks: Networks) -> None:
    results = evaluate(networks[:2], {"a": OutsideData(3)}, views=["flip", "scale 0.5"])
    facts = results.score("views", "a").pool
    assert (facts.num_members, facts.num_networks, facts.plan) == (6, 2, "prefix")
    both = evaluate(networks[:2], {"a": OutsideData(3)}, views="flip")
    for size in (1, 2):
        ours, theirs = (each.score("views", "a").summary[size]["nll"].mean for each in (results, both))
        assert ours == theirs
    assert results.score("views", "a").summary[3]["nll"].mean != results.score("views", "a").summary[2]["nll"].mean


def test_a_depth_is_not_seen_at_other_scales() -> None:
    data = [(torch.rand(3, 8, 12), 1 + torch.rand(8, 12)) for _ in range(2)]
    assert "has other depths; leave out scale" in refused(lambda x: 1 + x[:, 0], data, depth=True, views=["scale 0.5"])


def test_several_methods_stand_side_by_side(networks: Networks) -> None:
    results = evaluate({"small": networks[:2], "other": networks[2:]}, OutsideData(3), mc_dropout=2)
    assert list(results.methods) == ["small", "small_mc_dropout", "other", "other_mc_dropout"]
    assert results.methods["small"].label == "small"


def refused(models: Any, data: Any = None, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        evaluate(models, OutsideData(2) if data is None else data, **options)
    return str(error.value)


def test_what_is_no_prediction_of_classes_is_refused_in_words(networks: Networks) -> None:
    network = networks[0]
    assert "argmax is baked in" in refused(lambda image: network(image).argmax(1))
    assert 'give model_format={"values": "probs"}' in refused(lambda image: network(image).softmax(1))
    assert "are they logits" in refused(network, model_format={"values": "probs"})
    assert "NaN" in refused(lambda image: network(image) * float("nan"))
    assert "one channel" in refused(lambda image: image[:, :1])
    assert "4 classes" in refused(lambda image: network(image)[:, [0, 1, 2, 2]], classes=NAMED)
    two = refused(lambda image: {"main": network(image), "auxiliary": network(image)})
    assert 'model_format={"output": "NAME"}' in two
    assert "fails on the first image" in refused(nn.Linear(3, 3))
    assert "leave out MC-dropout" in refused(nn.Conv2d(3, 3, 1), mc_dropout=2)
    assert "view 'rotate' is unknown" in refused(network, views=["rotate"])


def test_settings_are_written_as_a_model_was_given(networks: Networks, folders: Folders, tmp_path: Path) -> None:
    assert 'model_format={"values": "probs"}' in refused(networks[0], values="probs")
    torch.save(networks[0].state_dict(), tmp_path / "a.pt")
    text = refused(f"{tmp_path}/a.pt,network=outside_networks:OutsideNetwork,values=probs", texts(folders))
    assert "give values=logits" in text
    assert "divided by their sum" in text


def test_outputs_by_name_and_probabilities_are_read(networks: Networks) -> None:
    expected = evaluate(networks[0], OutsideData(3))
    named = evaluate(lambda image: {"out": networks[0](image), "aux": 0 * image}, OutsideData(3))
    assert_same(named, expected)
    fine = evaluate(lambda image: upsampled(networks[0](image)), OutsideData(3))
    assert_same(fine, expected)
    probs = evaluate(
        lambda image: upsampled(networks[0](image)).softmax(1), OutsideData(3), model_format={"values": "probs"}
    )
    assert_same(probs, expected, tolerance=2e-5)


def test_corners_matter(networks: Networks) -> None:
    aligned = evaluate(networks[0], OutsideData(3), model_format={"align_corners": True})
    fine = nn.functional.interpolate
    expected = evaluate(
        lambda image: fine(networks[0](image), SIZE, mode="bilinear", align_corners=True), OutsideData(3)
    )
    assert_same(aligned, expected, tolerance=1e-5)
    other = evaluate(networks[0], OutsideData(3))
    assert (
        other.score("given", "data").summary[1]["brier"].mean != aligned.score("given", "data").summary[1]["brier"].mean
    )


class Table(Dataset[tuple[Tensor, Tensor]]):
    """Plain regression: noise that grows with the first feature."""

    def __init__(self, number: int, shift: float = 0.0):
        rng = np.random.default_rng(7)
        self.x = torch.from_numpy(rng.normal(shift, 1, (number, 4))).float()
        noise = torch.from_numpy(rng.normal(0, 1, number)).float()
        self.y = self.x.sum(1) + self.x[:, 0].abs() * noise

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


def members_of(table: Table) -> list[Callable[[Tensor], tuple[Tensor, Tensor]]]:
    """Three members: a mean and a standard deviation each."""
    return [
        lambda x, bias=bias: (x.sum(1) + bias, x[:, 0].abs() + 0.1)  # type: ignore[misc]
        for bias in (-0.2, 0.0, 0.3)
    ]


def test_plain_regression_is_scored_as_brute_force_says() -> None:
    table = Table(400)
    results = evaluate(members_of(table), {"table": table, "far": Table(400, 2.0)}, model_format={"spread": "std"})
    assert results.problem == "regression"
    mean = torch.stack([table.x.double().sum(1) + bias for bias in (-0.2, 0.0, 0.3)])
    variance = (table.x[:, 0].abs() + 0.1).double().square() + mean.var(0, correction=0)
    error = table.y.double() - mean.mean(0)
    found = results.score("given", "table").summary[3]
    assert found["rmse"].mean == pytest.approx(float(error.square().mean().sqrt()), rel=1e-6)
    nll = 0.5 * (error.square() / variance + variance.log() + np.log(2 * np.pi))
    assert found["nll_gaussian"].mean == pytest.approx(float(nll.mean()), rel=1e-5)
    assert results.domains["far"].role == "shifted"
    assert "rmse_gustafsson2020" not in found


def test_several_numbers_of_a_sample_are_refused() -> None:
    data = [(row, row[:2]) for row in torch.zeros(3, 3)]
    assert "data: a target has 2 numbers. Fix: give one per sample, or a map." in refused(lambda rows: rows, data)


def test_a_second_channel_is_not_guessed() -> None:
    data = [(torch.zeros(3, 4, 5), torch.ones(4, 5)) for _ in range(2)]
    assert 'give model_format={"spread": "log_variance"}' in refused(lambda image: image[:, :2], data)


def test_classes_as_floats_are_told_to_be_integers(networks: Networks) -> None:
    data = [(image, classes.float()) for image, classes in (OutsideData(2)[index] for index in range(2))]
    assert "target.long()" in refused(networks[0], data)


def test_a_depth_without_a_scale_is_refused() -> None:
    data = [(torch.rand(3, 4, 5), 10 + torch.rand(4, 5)) for _ in range(2)]
    assert "a relative depth" in refused(lambda image: 1e-3 * image[:, 0], data, depth=True)
    results = evaluate(
        lambda image: 1e4 + 1e3 * image[:, 0], data, depth=True, model_format={"factor": 1e-3}
    )  # millimetres
    assert results.score("given", "data").summary[1]["mae"].mean < 1


@pytest.mark.parametrize("word", ["confidence", "uncertainty"])
def test_a_confidence_of_unknown_scale_is_scored_on_ranking_in_both_directions(word: str) -> None:
    generator = torch.Generator().manual_seed(1)
    data = []
    for _ in range(4):
        doubt = torch.rand(12, 16, generator=generator)
        data.append((torch.stack([doubt] * 3), doubt * torch.randn(12, 16, generator=generator)))
    results = evaluate(lambda image: (0 * image[:, 0], 7 * image[:, 0] - 3), data, model_format={"spread": word})
    assert results.scores[0].kind == "ranking"
    stats = results.score("given", "data").summary[1]
    assert "nll" not in stats
    right, wrong = ("ause", "ause_inverted") if word == "uncertainty" else ("ause_inverted", "ause")
    assert stats[right].mean < stats[wrong].mean - 0.1
    assert any("inverted" in note for note in results.methods["given"].notes) is (word == "confidence")


def test_classes_with_a_confidence_of_their_own_are_ranked(networks: Networks) -> None:
    def classes_and_confidence(image: Tensor) -> dict[str, Tensor]:
        logits = upsampled(networks[0](image))
        return {"classes": logits.argmax(1), "confidence": logits.softmax(1).amax(1)}

    results = evaluate(classes_and_confidence, OutsideData(4), classes=NAMED, model_format={"spread": "confidence"})
    plain = evaluate(networks[0], OutsideData(4), classes=NAMED)
    ranked, full = results.score("given", "data").summary[1], plain.score("given", "data").summary[1]
    assert ranked["miou"].mean == pytest.approx(full["miou"].mean)
    assert ranked["ause"].mean < ranked["ause_inverted"].mean


def test_a_pickled_model_is_refused_in_words(networks: Networks, tmp_path: Path, folders: Folders) -> None:
    torch.save(networks[0], tmp_path / "whole.pt")
    with pytest.raises(InputError, match="save the weights alone"):
        evaluate(f"{tmp_path}/whole.pt,network=outside_networks:OutsideNetwork", texts(folders))


def test_weights_of_another_network_are_refused_in_words(networks: Networks, tmp_path: Path, folders: Folders) -> None:
    torch.save(networks[0].state_dict(), tmp_path / "a.pt")
    wide = f'{tmp_path}/a.pt,network=outside_networks:OutsideNetwork,options={{"width": 16}}'
    with pytest.raises(InputError, match=r"first.weight is \(8, 3, 3, 3\) in the file and \(16, 3, 3, 3\)"):
        evaluate(wide, texts(folders))
    torch.save({"other.weight": torch.zeros(2)}, tmp_path / "b.pt")
    with pytest.raises(InputError, match=r"it lacks first\.weight"):
        evaluate(f"{tmp_path}/b.pt,network=outside_networks:OutsideNetwork", texts(folders))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give the folder of a run"),
        (["--model", "what.xyz", "--on", "a=street,num_images=1"], "may have depth or classes"),
        (["--model", "hf:nowhere/at-all"], "no data is given"),
        (["--model", "x.pt", "--on", "a=folder:nowhere,classes=camvid"], "folder is missing"),
    ],
)
def test_wrong_commands_are_one_line(arguments: list[str], words: str, tmp_path: Path, command: Command) -> None:
    errors = command("evaluate", *arguments, "--out", tmp_path / "out", status=2)
    assert words in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        ("what.xyz", "street:clean,num_images=1", "data: a: may have depth or classes; give task='segmentation' or"),
        ("what.xyz", "folder:nowhere,classes=camvid", "models: what.xyz: not understood"),
        ("x.pt,broken", "folder:nowhere,classes=camvid", "models: x.pt,broken: 'broken' is no setting"),
        ("x.pt", "moon", "data: a=moon: there is no kind of data set 'moon'"),
        ("x.pt,network=outside_networks:OutsideNetwork", "kitti", "data: a: where is the data?"),
    ],
)
def test_complaints_in_python_name_what_was_given_there(model: str, data: str, words: str, tmp_path: Path) -> None:
    torch.save({}, tmp_path / "x.pt")
    with pytest.raises(InputError) as refused:
        evaluate(model.replace("x.pt", f"{tmp_path}/x.pt"), {"a": data})
    assert words in str(refused.value).replace(f"{tmp_path}/", "")
    assert "--" not in str(refused.value)


def test_a_folder_that_holds_something_else_is_named_as_it_was_given(networks: Networks, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match=f"^out {tmp_path} is not empty"):
        evaluate(networks[0], OutsideData(1), out=tmp_path)


def test_a_picture_is_what_a_data_set_shows() -> None:
    image, classes = make_picture(0)
    assert image.shape == (*SIZE, 3)
    assert set(np.unique(classes)) <= {0, 1, 2, 255}


def test_settings_that_would_do_nothing_are_refused(networks: Networks, folders: Folders) -> None:
    assert "act on 8-bit images alone" in refused(networks[0], model_format={"mean": (0.5, 0.5, 0.5)})
    assert '{"image_max": 255}' in refused(networks[0], texts(folders), model_format={"mean": (120.0, 120.0, 120.0)})
    assert "settings stand behind commas" in refused("onnx:x.onnx", model_format={"image_max": 255})
    assert "ignore_index" in refused(networks[0], texts(folders), ignore_index=7)


def test_what_has_no_mirror_image_is_not_mirrored() -> None:
    rows = [(torch.rand(3), torch.rand(())) for _ in range(3)]
    assert "no mirror image" in refused(lambda x: x.sum(1), rows, views=["flip"])
    several = [(torch.rand(3, 4, 4), torch.tensor([0, 1])) for _ in range(3)]
    assert "no mirror image" in refused(lambda x: 9 * x[:, :2, :1, :2] - 3, several, views=["flip"])


def test_windows_of_inputs_that_differ_from_targets_are_refused(networks: Networks) -> None:
    data = [(torch.rand(3, 40, 56), torch.zeros(20, 28, dtype=torch.int64)) for _ in range(2)]
    assert "leave it out" in refused(networks[0], data, window=(16, 16))


def flat_targets(*shapes: tuple[int, int]) -> list[tuple[Tensor, Tensor]]:
    """Images of one size, with targets of these."""
    return [(torch.rand(3, *SIZE), torch.zeros(shape, dtype=torch.int64)) for shape in shapes]


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize(
    ("shape", "remedy"), [(SIZE[::-1], "target.T"), ((SIZE[0] - 1, SIZE[1]), "alike"), ((12, SIZE[1]), "alike")]
)
def test_targets_of_another_frame_than_the_image_are_refused(
    networks: Networks, shape: tuple[int, int], remedy: str, loaded: bool
) -> None:
    data: Any = flat_targets(shape, shape)
    words = refused(networks[0], DataLoader(data, collate_fn=as_dicts) if loaded else data)
    assert "sample 0" in words
    assert f"{shape[0]}×{shape[1]}" in words
    assert f"{SIZE[0]}×{SIZE[1]}" in words
    assert remedy in words
    assert "sample 1: the target" in refused(networks[0], flat_targets(SIZE, shape))
    fine = {"plain": flat_targets(SIZE), "turned": flat_targets(shape)}
    assert words.split("sample 0")[1][2:] in refused(lambda image: upsampled(networks[0](image)), fine)


def test_targets_may_be_coarser_than_the_image_or_in_a_frame_of_their_own(networks: Networks) -> None:
    network = networks[0]
    above = nn.Sequential(network, nn.AdaptiveAvgPool2d((16, 16)))  # a map seen from above
    evaluated = [
        evaluate(network, flat_targets((10, 14), (7, 9), (40, 56)), draws=1, batch_size=1),
        evaluate(lambda image: network(image.movedim(-1, 1)), [(torch.rand(*SIZE, 3), torch.zeros(SIZE).long())]),
        evaluate(above, flat_targets((16, 16), (16, 16))),
    ]
    pixels = [score.pixels.valid for results in evaluated for score in results.scores]
    assert pixels == [10 * 14 + 7 * 9 + 40 * 56, SIZE[0] * SIZE[1], 2 * 16 * 16]


def test_a_class_that_does_not_exist_is_named(networks: Networks) -> None:
    image, classes = OutsideData(2)[0]
    assert "ignore_index=33" in refused(networks[0], [(image, classes), (image, classes.where(classes != 1, 33))])


def test_an_error_on_a_later_image_leaves_the_other_methods(networks: Networks, tmp_path: Path) -> None:
    def picky(image: Tensor) -> Tensor:
        if image.shape[-1] != SIZE[1]:
            raise ValueError("a multiple of 28 is needed")
        return networks[0](image)

    image, classes = OutsideData(1)[0]
    data = [(image, classes), (image[..., :20], classes[:, :20])]
    results = evaluate({"picky": picky, "fine": networks[0]}, data, out=tmp_path)
    assert list(results.methods) == ["fine"]
    assert "a multiple of 28" in " ".join(results.failed.values())


def test_models_that_fail_leave_the_memory_to_the_others(networks: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten = list[str]()
    forget = GivenPool.forget
    monkeypatch.setattr(GivenPool, "forget", lambda pool: forgotten.append(pool.models[0].name) or forget(pool))
    image, classes = OutsideData(1)[0]
    data = [(image, classes), (image[..., :20], classes[:, :20])]

    def picky(image: Tensor) -> Tensor:
        if image.shape[-1] != SIZE[1]:
            raise ValueError("a multiple of 28 is needed")
        return networks[0](image)

    evaluate({"picky": picky, "fine": networks[0]}, data, pictures=0)
    assert forgotten == ["model 0", "OutsideNetwork 0"]


def test_a_single_class_in_common_is_nothing_to_evaluate(networks: Networks, folders: Folders) -> None:
    names = 'classes=["dark","other","another"]'
    data = f"folder:{folders['plain']},images=images,labels=labels,{names}"
    with pytest.raises(InputError, match="val: only 'dark' is common, so that there is nothing to tell apart"):
        evaluate(networks[0], {"val": data}, classes=NAMED)


def test_names_become_files_and_are_checked(networks: Networks) -> None:
    assert "cannot be a name" in refused({"../x": networks[0]})
    assert "one name" in refused({"a": networks[0], "a_mc_dropout": networks[1]}, mc_dropout=2)


def test_a_folder_of_other_models_is_not_overwritten(networks: Networks, folders: Folders, tmp_path: Path) -> None:
    evaluate({"first": networks[0]}, texts(folders), out=tmp_path, pictures=0)
    with pytest.raises(InputError, match="give another"):
        evaluate({"second": networks[1]}, texts(folders), out=tmp_path, pictures=0)
    with pytest.raises(InputError, match="holds results of other models"):
        evaluate({"first": lambda image: networks[1](image)}, texts(folders), out=tmp_path, pictures=0)


def test_other_classes_of_a_model_are_evaluated_anew(networks: Networks, folders: Folders, tmp_path: Path) -> None:
    torch.save(networks[0].state_dict(), tmp_path / "a.pt")
    models = [
        f"{tmp_path}/a.pt,network=outside_networks:OutsideNetwork,classes={names}"
        for names in ('["dark","middle","light"]', '["light","middle","dark"]')
    ]
    one, other = (evaluate(model, texts(folders), out=tmp_path / "out", pictures=0) for model in models)
    brier = [each.score("given", "plain").summary[1]["brier"].mean for each in (one, other)]
    assert brier[0] != brier[1]


def test_weights_with_layers_that_the_network_lacks_are_refused(
    networks: Networks, tmp_path: Path, folders: Folders
) -> None:
    weights = {f"module.{key}": value for key, value in networks[0].state_dict().items()}
    torch.save({**weights, "module.more.weight": torch.zeros(1)}, tmp_path / "a.pt")
    twice = {f"{who}.{key}": value for who in ("student", "teacher") for key, value in networks[0].state_dict().items()}
    torch.save(twice, tmp_path / "b.pt")
    for name, words in (("a", "has no module.more.weight"), ("b", "several networks")):
        with pytest.raises(InputError, match=words):
            evaluate(f"{tmp_path}/{name}.pt,network=outside_networks:OutsideNetwork", texts(folders))


def test_a_loader_that_leaves_samples_out_is_refused(networks: Networks) -> None:
    data = OutsideData(6)
    for loader in (
        DataLoader(data, batch_size=4, shuffle=True),
        DataLoader(data, batch_size=4, drop_last=True),
    ):
        assert "do not come in their order" in refused(networks[0], loader)


@pytest.mark.parametrize("option", ["compile", "cuda_graphs"])
def test_given_models_are_not_compiled(networks: Networks, option: str) -> None:
    with pytest.raises(InputError, match="give the model as torch"):
        evaluate(networks[0], OutsideData(3), **{option: True})


def test_a_module_says_how_its_corners_lie(networks: Networks) -> None:
    network = copy.deepcopy(networks[0])
    network.align_corners = True  # type: ignore[assignment]
    expected = evaluate(networks[0], OutsideData(3), model_format={"align_corners": True})
    assert_same(evaluate(network, OutsideData(3)), expected)


def test_a_sigmoid_of_each_class_is_named(networks: Networks) -> None:
    assert "a sigmoid of each class?" in refused(lambda image: networks[0](image).sigmoid())


def test_images_that_were_changed_are_evaluated_anew(networks: Networks, tmp_path: Path) -> None:
    root = write_folder(tmp_path / "data", 2)
    data = {"plain": texts({"plain": root})["plain"]}
    before = evaluate(networks[0], data, out=tmp_path / "out", pictures=0)
    (root / "labels" / "000.png").write_bytes((root / "labels" / "001.png").read_bytes())
    after = evaluate(networks[0], data, out=tmp_path / "again", pictures=0)
    assert (
        after.score("given", "plain").summary[1]["brier"].mean
        != before.score("given", "plain").summary[1]["brier"].mean
    )
    with pytest.raises(InputError, match="other domains under the name 'plain'"):
        evaluate(networks[0], data, out=tmp_path / "out", pictures=0)


def test_a_table_may_be_two_arrays() -> None:
    table = Table(50)
    expected = evaluate(members_of(table), {"data": table}, model_format={"spread": "std"})
    arrays = (table.x.numpy(), table.y.numpy())
    assert_same(evaluate(members_of(table), arrays, model_format={"spread": "std"}), expected)
    assert "50 inputs and 49 targets" in refused(members_of(table), (arrays[0], arrays[1][1:]))
