"""A run in steps: train, then evaluate; a finished one is asked for more, and only what is missing is done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from silent_reporter import Silent, run_in
from small_dense_recipe import SIZE
from small_recipes import small
from small_segmentation_recipe import small_segmentation

from by_name import by_name
from epibench.data.cityscapes_classes import CITYSCAPES_TRAIN_IDS
from epibench.members.networks import NetworkPool
from epibench.recipes import RECIPES, DenseRecipe, Recipe, apply_settings, read_recipe
from epibench.results import load_results, picture_files
from epibench.runs import machine, trainers
from epibench.runs.folder import RunFolder
from epibench.runs.image_experiment import ImageExperiment
from epibench.street import StreetDataset
from label_files import random_values, save, save_image

Call = Callable[..., tuple[int, str]]
SHOWN = {"null": "entropy"}  # the default in results
NUMBERS = ("methods", "summary", "curves", "draws", "domains", "pictures", "training")
IMAGES = {"clean": 3, "wild": 2, "fog": 2}
FOG = "street:haze,severity=3,num_images=2,seed=1,size=[32,64]"


def segmentation(cache: Path, *settings: str) -> Recipe:
    """Five networks of an ensemble and one of MC-dropout, on two domains of a few images."""
    few = ("data.domains.clean.num_images=3", "data.domains.wild.num_images=2", "ensemble.num_members=5")
    dropout = ("mc_dropout.num_networks=1", "mc_dropout.num_passes=8", "training.epoch_steps=2")
    return small_segmentation(cache, *few, *dropout, "members=[1,2,4]", "draws=2", *settings)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scenes")


class Work:
    """What was done: networks that were trained, and members that were run, times images."""

    def __init__(self) -> None:
        self.trained: list[str] = []
        self.passes: dict[str, int] = {}

    def again(self) -> None:
        self.trained.clear()
        self.passes.clear()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Count trainings and passes, less those that measure the cost of an image."""
    done = Work()
    train_large, outputs = trainers.train_large, NetworkPool.outputs

    def counted_training(job: Any, *rest: Any) -> None:
        done.trained.append(f"{job.method} {job.networks[0]}")
        train_large(job, *rest)

    def counted_outputs(pool: NetworkPool, inputs: Any, members: slice, images: Any, size: Any = None) -> Any:
        done.passes[pool.method] = done.passes.get(pool.method, 0) + len(images) * (members.stop - members.start)
        return outputs(pool, inputs, members, images, size)

    monkeypatch.setattr(trainers, "train_large", counted_training)
    monkeypatch.setattr(NetworkPool, "outputs", counted_outputs)
    monkeypatch.setattr("epibench.runs.image_evaluation.cost_per_image", lambda *given: {})
    monkeypatch.setattr("epibench.runs.image_evaluation.count_flops", lambda *given: None)
    monkeypatch.setattr(machine.Machine, "of", classmethod(lambda cls, device, *others: cls(device, 1, 0)))
    return done


@pytest.fixture(scope="module")
def made(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    path = tmp_path_factory.mktemp("runs") / "run"
    run_in(path, segmentation(cache))
    return path


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(made, tmp_path / "run"))


def numbers(folder: Path) -> dict[str, Any]:
    """All that a run has found, without times."""
    results = by_name(json.loads((folder / "results.json").read_text()))
    return {name: results[name] for name in NUMBERS}


def equals_a_fresh_run(folder: Path, recipe: Recipe, call: Call, tmp_path: Path) -> bool:
    """Whether a run has the numbers of one that had these settings from the start."""
    (tmp_path / "fresh.json").write_text(recipe.model_dump_json())
    assert call("run", tmp_path / "fresh.json", "--out", tmp_path / "fresh")[0] == 0
    there = read_recipe(folder)
    if isinstance(recipe, DenseRecipe):  # options of an evaluation belong to the command
        there = there.model_copy(update={"evaluation": recipe.evaluation})
    assert there == recipe
    return numbers(folder) == numbers(tmp_path / "fresh")


def with_fog(cache: Path, *settings: str) -> Recipe:
    source = {"kind": "street", "domain": "haze", "severity": 3, "num_images": 2, "seed": 1, "size": [32, 64]}
    return segmentation(cache, f"data.domains.fog={json.dumps(source)}", *settings)


def test_one_more_domain_is_evaluated_alone(folder, cache, command_line, work, tmp_path) -> None:
    assert command_line("evaluate", folder, "--on", f"fog={FOG}")[0] == 0
    assert work.trained == []
    assert work.passes == {"ensemble": 5 * IMAGES["fog"], "mc_dropout": 8 * IMAGES["fog"]}
    assert equals_a_fresh_run(folder, with_fog(cache), command_line, tmp_path)


@pytest.mark.parametrize(
    ("name", "settings", "label"),
    [
        ("clean", [], "street, clean"),
        ("fog", ['data.domains.fog={"kind": "folder", "root": "wild", "classes": "camvid"}'], "fog"),
        ("fog", ['data.domains.fog={"kind": "street", "domain": "haze"}'], "fog"),
        ("clean", ['data.domains.clean={"kind": "folder", "root": "wild", "classes": "camvid"}'], "clean"),
        ("fog", ['data.domains.fog={"kind": "folder", "root": "wild", "classes": "camvid", "title": "Dusk"}'], "Dusk"),
    ],
    ids=["of our recipe", "folder", "street", "in place of our own", "title"],
)
def test_a_domain_of_the_user_has_the_name_that_the_user_gave(name, settings, label, tmp_path) -> None:
    recipe = apply_settings(RECIPES["street-segmentation"], settings)
    run = machine.Run(recipe, RunFolder(tmp_path), machine.Machine.of(torch.device("cpu"), 1), Silent())
    assert ImageExperiment(run).domain_label(name) == label


def test_three_more_members_train_three_networks(folder, cache, command_line, work, tmp_path) -> None:
    settings = ("ensemble.num_members=8", "members=[1,2,4,8]")
    assert command_line("run", folder, *(part for each in settings for part in ("--set", each)))[0] == 0
    assert work.trained == ["ensemble 5", "ensemble 6", "ensemble 7"]
    # Sets of other sizes and of other networks: every member predicts anew.
    images = IMAGES["clean"] + IMAGES["wild"]
    assert work.passes == {"ensemble": 8 * images, "mc_dropout": 8 * images}
    assert equals_a_fresh_run(folder, segmentation(cache, *settings), command_line, tmp_path)


def test_members_of_one_method_leave_the_others_as_they_are(folder, command_line, work) -> None:
    assert command_line("train", folder, "--set", "ensemble.num_members=6")[0] == 0
    assert (work.trained, work.passes) == (["ensemble 5"], {})
    assert command_line("evaluate", folder)[0] == 0
    assert work.trained == ["ensemble 5"]
    assert work.passes == {"ensemble": 6 * (IMAGES["clean"] + IMAGES["wild"])}


def test_a_new_method_is_trained_and_evaluated_alone(folder, cache, command_line, work, tmp_path) -> None:
    settings = ('methods=["ensemble","mc_dropout","map"]', "map.num_restarts=1", "map.num_epochs=2", "map.batch_size=2")
    assert command_line("run", folder, *(part for each in settings for part in ("--set", each)))[0] == 0
    assert work.trained == ["map 0"]
    assert work.passes == {"map": IMAGES["clean"] + IMAGES["wild"]}
    assert equals_a_fresh_run(folder, segmentation(cache, *settings), command_line, tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "usual"),
    [
        ("precision", "bf16-mixed", "32-true"),
        ("convention", "gustafsson2020", "pooled"),
        ("uncertainty", "confidence", "null"),
    ],
)
def test_other_settings_of_evaluation_train_nothing(
    folder, cache, command_line, work, tmp_path, key: str, value: str, usual: str
) -> None:
    before, setting = numbers(folder), f"evaluation.{key}={value}"
    assert command_line("evaluate", folder, "--set", setting)[0] == 0
    images = IMAGES["clean"] + IMAGES["wild"]
    assert (work.trained, work.passes) == ([], {"ensemble": 5 * images, "mc_dropout": 8 * images})
    assert equals_a_fresh_run(folder, segmentation(cache, setting), command_line, tmp_path)
    assert [each[key] for each in evaluations(folder)] == [value, SHOWN.get(usual, usual)]
    # Going back costs nothing, and they change places.
    work.again()
    assert command_line("evaluate", folder, "--set", f"evaluation.{key}={usual}")[0] == 0
    assert (work.trained, work.passes) == ([], {})
    assert numbers(folder) == before
    assert [each[key] for each in evaluations(folder)] == [SHOWN.get(usual, usual), value]


def test_a_setting_without_effect_on_a_cpu_makes_no_other_evaluation(folder, command_line, work) -> None:
    before = numbers(folder)
    assert command_line("evaluate", folder, "--device", "cpu", "--set", "evaluation.cuda_graphs=true")[0] == 0
    assert (work.trained, work.passes) == ([], {})
    assert numbers(folder) == before
    assert len(evaluations(folder)) == 1


SOURCE = {"kind": "folder", "root": "own", "classes": ["road", "sky"]}
OWN = ("--set", f"data.domains.own={json.dumps(SOURCE)}")


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A folder with two images of one's own at three places: `other` has the names of `here`, `moved` its content."""
    for place, seed in (("here", 1), ("moved", 1), ("other", 2)):
        for number in range(2):
            save_image(tmp_path / place / f"own/images/{number}.png", (32, 64), seed + number)
            save(tmp_path / place / f"own/labels/{number}.png", random_values([0, 1, 255], (32, 64), number))
    return tmp_path


def test_other_data_at_another_place_are_evaluated_and_the_same_are_not(folder, command_line, work, places) -> None:
    def evaluate(place: str) -> tuple[dict[str, int], Any]:
        work.again()
        status, said = command_line("evaluate", folder, "--set", f"data.root={places / place}", *OWN)
        assert status == 0, said
        return dict(work.passes), numbers(folder)["summary"]["ensemble"]["own"]

    first, found = evaluate("here")
    assert first == {"ensemble": 5 * 2, "mc_dropout": 8 * 2}
    assert evaluate("moved") == ({}, found)
    again, other = evaluate("other")
    assert again == first
    assert other != found


def test_stretches_of_other_data_are_not_merged(folder, command_line, work, places) -> None:
    here, other = (("--set", f"data.root={places / place}", *OWN) for place in ("here", "other"))
    direct = shutil.copytree(folder, places / "direct")
    assert command_line("evaluate", direct, *here)[0] == 0
    assert command_line("evaluate", folder, "--shard", "1/1", *other)[0] == 0
    assert command_line("evaluate", folder, *here)[0] == 0
    assert numbers(folder)["summary"] == numbers(direct)["summary"]


def test_a_relative_place_is_that_of_the_folder_where_the_command_is_given(
    folder, command_line, places, monkeypatch
) -> None:
    found = []
    for place in ("here", "moved", "other"):
        monkeypatch.chdir(places / place)
        assert command_line("evaluate", folder, *OWN)[0] == 0
        found.append(numbers(folder)["summary"]["ensemble"]["own"])
    assert found[0] == found[1] != found[2]


def test_m_and_draws_are_asked_anew_of_the_same_networks(folder, cache, command_line, work, tmp_path) -> None:
    settings = ("members=[1,3,5]", "draws=4")
    assert command_line("evaluate", folder, *(part for each in settings for part in ("--set", each)))[0] == 0
    images = IMAGES["clean"] + IMAGES["wild"]
    assert (work.trained, work.passes) == ([], {"ensemble": 5 * images, "mc_dropout": 8 * images})
    assert len(evaluations(folder)) == 1  # other draws from the same predictions replace the former ones
    assert equals_a_fresh_run(folder, segmentation(cache, *settings), command_line, tmp_path)
    work.again()
    assert command_line("evaluate", folder, "--set", "members=[1,2,4]", "--set", "draws=2")[0] == 0
    assert work.passes == {}


def evaluations(folder: Path) -> list[dict[str, Any]]:
    """The settings of the evaluations in a results file, the newest first."""
    scores = json.loads((folder / "results.json").read_text())["scores"]
    return [
        score["settings"]
        for n, score in enumerate(scores)
        if score["settings"] not in [x["settings"] for x in scores[:n]]
    ]


def test_evaluations_with_other_settings_stay_in_the_results_and_are_named(folder, command_line) -> None:
    before = numbers(folder)
    _, said = command_line("evaluate", folder, "--set", "evaluation.precision=bf16")
    assert "with earlier evaluations: 32-true" in said
    _, said = command_line("evaluate", folder, "--set", "evaluation.convention=gustafsson2020")
    assert "with earlier evaluations: bf16-mixed, pooled; pooled" in said
    found = [(each["precision"], each["convention"]) for each in evaluations(folder)]
    assert found == [("32-true", "gustafsson2020"), ("bf16-mixed", "pooled"), ("32-true", "pooled")]
    command_line("evaluate", folder)
    assert numbers(folder) == before
    assert [each["precision"] for each in evaluations(folder)] == ["32-true", "32-true", "bf16-mixed"]


def pictures(folder: Path) -> dict[str, bytes]:
    return {f"pictures/{path.name}": path.read_bytes() for path in (folder / "pictures").iterdir()}


def named_by(folder: Path, *precisions: str) -> set[str]:
    """Pictures of the scores of these precisions, and of domains."""
    results = load_results(folder)
    scores = [score for score in results.scores if score.settings["precision"] in precisions]
    return {file.name for file in picture_files(results.domains.values(), scores)}


def test_missing_and_damaged_pictures_are_made_again_without_passes(folder, command_line, work) -> None:
    before = pictures(folder)
    assert "finished already" in command_line("run", folder)[1]
    first, second, *_ = sorted(before)
    (folder / first).unlink()
    (folder / second).write_bytes(b"damaged")
    status, said = command_line("run", folder)
    assert status == 0, said
    assert f"{folder}/pictures/" in said
    assert "finished already" in command_line("run", folder)[1]
    assert pictures(folder) == before
    assert (work.trained, work.passes) == ([], {})


def test_pictures_of_an_earlier_evaluation_stay_with_its_scores(folder, command_line) -> None:
    before = pictures(folder)
    command_line("evaluate", folder, "--set", "evaluation.precision=bf16")
    assert named_by(folder, "32-true") == set(before)
    assert named_by(folder, "32-true", "bf16-mixed") == set(pictures(folder)) > set(before)
    (folder / min(set(before) - named_by(folder, "bf16-mixed"))).unlink()
    status, said = command_line("evaluate", folder, "--set", "evaluation.precision=bf16")
    assert status == 0, said
    results = load_results(folder)
    assert [len(score.pictures) for score in results.scores].count(0) == 1
    assert named_by(folder, "32-true", "bf16-mixed") == set(pictures(folder))
    command_line("evaluate", folder)
    assert {name: pictures(folder)[name] for name in before} == before


def test_an_evaluation_of_fewer_networks_is_named_by_their_number(folder, command_line) -> None:
    command_line("evaluate", folder, "--set", "evaluation.precision=bf16")
    settings = ("--set", "evaluation.precision=32-true", "--set", "ensemble.num_members=4")
    assert "with earlier evaluations: bf16-mixed, 5 networks" in command_line("evaluate", folder, *settings)[1]


def test_settings_of_an_evaluation_do_not_enter_the_recipe(folder, command_line) -> None:
    before = read_recipe(folder)
    command_line("evaluate", folder, "--set", "evaluation.precision=bf16")
    assert read_recipe(folder) == before


def test_a_store_is_of_the_settings_that_were_asked_for_last(folder, cache, command_line, work, tmp_path) -> None:
    store = "evaluation.store=true"
    command_line("evaluate", folder, "--set", store)
    command_line("evaluate", folder, "--set", store, "--set", "evaluation.precision=bf16")
    work.again()
    command_line("evaluate", folder, "--set", store)
    assert work.passes["ensemble"] == 5 * (IMAGES["clean"] + IMAGES["wild"])  # the numbers are there, the store is not
    assert equals_a_fresh_run(folder, segmentation(cache, store), command_line, tmp_path)
    for path in (folder / "predictions" / "ensemble").glob("clean.zarr/logits/c/**/*"):
        other = tmp_path / "fresh" / path.relative_to(folder)
        assert path.is_dir() or path.read_bytes() == other.read_bytes()


# Train, then evaluate


def test_training_and_evaluation_as_two_commands_are_a_run(made, cache, command_line, work, tmp_path) -> None:
    (tmp_path / "mine.json").write_text(segmentation(cache).model_dump_json())
    status, said = command_line("train", tmp_path / "mine.json", "--out", tmp_path / "run")
    assert status == 0
    assert f"epibench evaluate {tmp_path / 'run'}" in said
    assert (len(work.trained), work.passes) == (6, {})
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"recipe.json", "members"}
    assert command_line("train", tmp_path / "run")[0] == 0
    assert command_line("evaluate", tmp_path / "run")[0] == 0
    assert len(work.trained) == 6
    assert numbers(tmp_path / "run") == numbers(made)
    assert (tmp_path / "run" / "report.html").is_file()
    work.again()
    assert "finished already" in command_line("evaluate", tmp_path / "run")[1]
    assert work.passes == {}


def test_each_step_needs_its_own_data_alone(cache, command_line, tmp_path) -> None:
    samples = StreetDataset("segmentation", "clean", 3, 0, SIZE)
    for name in ("images", "labels"):
        (tmp_path / "own" / name).mkdir(parents=True)
    for index in range(len(samples)):
        image, labels = samples[index].inputs["image"].movedim(0, -1), samples[index].target.to(torch.uint8)
        Image.fromarray(image.numpy()).save(tmp_path / "own" / "images" / f"{index}.png")
        Image.fromarray(labels.numpy()).save(tmp_path / "own" / "labels" / f"{index}.png")
    own = {"kind": "folder", "root": str(tmp_path / "own"), "classes": list(CITYSCAPES_TRAIN_IDS.names)}
    wild = {"kind": "street", "domain": "wild", "num_images": 2, "size": SIZE}
    away = {"kind": "cityscapes", "root": str(tmp_path / "away")}
    domains = f"data.domains={json.dumps({'away': away})}"
    recipe = segmentation(cache, 'methods=["mc_dropout"]', f"data.train={json.dumps(own)}", domains)
    (tmp_path / "mine.json").write_text(recipe.model_dump_json())
    assert command_line("train", tmp_path / "mine.json", "--out", tmp_path / "run")[0] == 0
    assert f"{tmp_path / 'away'}: folder is missing" in command_line("evaluate", tmp_path / "run")[1]
    shutil.rmtree(tmp_path / "own")
    domains = f"data.domains={json.dumps({'wild': wild})}"
    assert command_line("evaluate", tmp_path / "run", "--set", domains)[0] == 0
    assert {score.num_images for score in load_results(tmp_path / "run").scores if score.domain == "wild"} == {2}


def test_evaluate_says_which_networks_are_missing(folder, command_line) -> None:
    (folder / "members" / "ensemble" / "0001.safetensors").unlink()  # as if training had been killed
    (folder / "results.json").unlink()
    before = (folder / "recipe.json").read_bytes()
    status, said = command_line("evaluate", folder, "--set", "ensemble.num_members=7")
    assert status == 2
    (line,) = [each for each in said.splitlines() if each.startswith("epibench: ")]
    remedy = f"epibench train {folder} with the same --set"
    assert f"{folder}: 3 networks are not trained (missing: ensemble 3 of 7); {remedy}" in line
    assert (folder / "recipe.json").read_bytes() == before


def test_a_training_that_was_killed_is_named(cache, command_line, tmp_path, monkeypatch) -> None:
    (tmp_path / "mine.json").write_text(segmentation(cache).model_dump_json())
    train_large = trainers.train_large

    def die_at_the_third(job: Any, *rest: Any) -> None:
        if job.networks == (2,):
            raise KeyboardInterrupt
        train_large(job, *rest)

    monkeypatch.setattr(trainers, "train_large", die_at_the_third)
    assert command_line("train", tmp_path / "mine.json", "--out", tmp_path / "run", "--jobs", 1)[0] == 130
    said = command_line("evaluate", tmp_path / "run")[1]
    assert "4 networks are not trained (missing: ensemble 3 of 5, mc_dropout 1 of 1)" in said
    # What is trained can be evaluated.
    some = ("--set", 'methods=["ensemble"]', "--set", "ensemble.num_members=2", "--set", "members=[1,2]")
    assert command_line("evaluate", tmp_path / "run", *some)[0] == 0


@pytest.mark.parametrize("setting", ["seed=1", "ensemble.learning_rate=0.5", "training.crop=[16,16]"])
def test_evaluate_refuses_settings_of_training_by_their_names(folder, command_line, setting: str) -> None:
    before = (folder / "recipe.json").read_bytes()
    status, said = command_line("evaluate", folder, "--set", setting)
    assert status == 2
    assert f"its networks were trained with another {setting.partition('=')[0]} (" in said
    assert "evaluate trains none" in said
    assert (folder / "recipe.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give the folder of a run"),
        (("nowhere",), "nowhere: there is no such"),
        ((".",), "holds no run, as there is no recipe.json in it"),
        (("RUN", "--on", "wild=street:haze"), "--on wild: the run has another domain of that name (street, wild)"),
        (("RUN", "--on", "new=camvit:x"), "no kind of data set 'camvit'; the nearest is camvid"),
        (("RUN", "--on", "new=street,role=shifted"), "leave role out"),
        (("RUN", "--on", "new=camvid:/nowhere"), "/nowhere"),
    ],
)
def test_evaluate_refuses_in_one_line(folder, command_line, tmp_path, monkeypatch, arguments, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    before = (folder / "recipe.json").read_bytes()
    status, said = command_line("evaluate", *(str(folder) if each == "RUN" else each for each in arguments))
    assert status == 2
    assert words in said.strip().splitlines()[-1]
    assert (folder / "recipe.json").read_bytes() == before


@pytest.mark.parametrize("command", ["evaluate", "merge"])
def test_a_folder_that_is_not_there_is_no_run(command: str, command_line, tmp_path: Path) -> None:
    status, said = command_line(command, tmp_path / "run")
    complaint = f"epibench: {tmp_path}/run: there is no such folder; give that of a run, as runs/street-depth\n"
    assert (status, said) == (2, complaint)


def test_a_domain_that_is_there_already_is_not_evaluated_again(folder, command_line, work) -> None:
    source = read_recipe(folder).data.domains["wild"]
    (folder / "wild.json").write_text(source.model_dump_json())
    assert "finished already" in command_line("evaluate", folder, "--on", f"wild={folder / 'wild.json'}")[1]
    assert work.passes == {}


def test_a_folder_stands_for_its_recipe(folder, command_line, capsys) -> None:
    assert command_line("data", "check", folder)[0] == 0
    assert command_line("recipes", folder)[0] == 0
    assert "finished already" in command_line("run", folder)[1]


# Toy problems


def test_stacked_networks_are_trained_beside_those_that_are_there(tmp_path: Path) -> None:
    settings = ('methods=["ensemble"]', "members=[1,2]", "test_points=5", "ensemble.num_members=3")
    run_in(tmp_path / "run", small("toy-classification", *settings))
    cases = (
        (6, ["0000-0002", "0003-0005"], ["train ensemble"]),
        (2, ["0000-0002", "0003-0005"], []),
        (7, ["0000-0002", "0003-0005", "0006"], ["train ensemble"]),
        (9, ["0000-0002", "0003-0005", "0006", "0007-0008"], ["train ensemble"]),
    )
    for members, files, trained in cases:
        reporter, wanted = Silent(), small("toy-classification", *settings, f"ensemble.num_members={members}")
        grown = run_in(tmp_path / "run", wanted, reporter=reporter)
        assert reporter.trained == trained
        there = {6: 3, 2: 2, 7: 6, 9: 7}[members]
        assert f"ensemble: {there} of {members} networks trained already" in reporter.said
        assert sorted(path.stem for path in (tmp_path / "run" / "members" / "ensemble").iterdir()) == files
        fresh = run_in(tmp_path / f"fresh{members}", wanted)
        assert all(grown[name] == fresh[name] for name in ("methods", "summary", "draws", "pictures"))


def test_chains_are_added_with_all_their_snapshots(tmp_path: Path) -> None:
    settings = ('methods=["sgld"]', "test_points=5")
    run_in(tmp_path / "run", small("toy-classification", *settings))
    wanted = small("toy-classification", *settings, "sgld.num_chains=3")
    grown, fresh = (run_in(tmp_path / name, wanted) for name in ("run", "fresh"))
    assert len(list((tmp_path / "run" / "members" / "sgld").glob("0002.*.safetensors"))) == 4
    assert all(grown[name] == fresh[name] for name in ("methods", "summary", "draws"))


def test_a_toy_recipe_is_trained_then_evaluated(command_line, tmp_path: Path) -> None:
    recipe = small("toy-classification", 'methods=["map","ensemble"]')
    (tmp_path / "mine.json").write_text(recipe.model_dump_json())
    assert command_line("train", tmp_path / "mine.json", "--out", tmp_path / "run")[0] == 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"recipe.json", "members"}
    status, said = command_line("evaluate", tmp_path / "run", "--set", "draws=2")
    assert status == 0
    assert "train " not in said
    wanted = run_in(tmp_path / "fresh", apply_settings(recipe, ["draws=2"]))
    found = by_name(json.loads((tmp_path / "run" / "results.json").read_text()))
    assert all(found[name] == wanted[name] for name in ("methods", "summary", "draws", "toy"))
    assert (
        "16 networks are not trained (missing: ensemble 16 of 24)"
        in command_line("evaluate", tmp_path / "run", "--set", "ensemble.num_members=24")[1]
    )
    assert "has no images to evaluate on" in command_line("evaluate", tmp_path / "run", "--on", "a=street")[1]
