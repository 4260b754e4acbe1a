"""A run in steps: train, then evaluate; and what the commands say about evaluations that are there.

What a change keeps and what is made again: tests/outside/test_invalidation.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_recipes import SETTINGS as TOY_SETTINGS

import epibench
from epibench.results import picture_files
from label_files import random_values, save, save_image
from street_runs import RECIPE, SETTINGS, SIZE, as_options, epibench_command, numbers, scenes, texts

OWN = {"kind": "folder", "root": "own", "classes": ["road", "sky"]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    path = tmp_path_factory.mktemp("runs") / "run"
    assert epibench.run(RECIPE, path, SETTINGS, device="cpu", jobs=1).failed == {}
    return path


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(made, tmp_path / "run"))


def evaluate(folder: Path, *settings: str) -> str:
    status, said = epibench_command("evaluate", folder, *as_options(settings))
    assert status == 0, said
    return said


def write_images(folder: Path, seed: int) -> None:
    for number in range(2):
        save_image(folder / f"images/{number}.png", SIZE, seed + number)
        save(folder / f"labels/{number}.png", random_values([0, 1, 255], SIZE, number))


# Several evaluations


def test_a_domain_of_the_user_has_the_name_that_the_user_gave(folder: Path, tmp_path: Path) -> None:
    write_images(tmp_path / "own", seed=1)
    domains = {"clean": scenes(), "fog": scenes("haze"), "wild": OWN, "dusk": {**OWN, "title": "At dusk"}}
    evaluate(folder, f"data.root={tmp_path}", f"data.domains={json.dumps(domains)}")
    labels = {name: facts.label for name, facts in epibench.load_results(folder).domains.items()}
    assert labels == {"clean": "street, clean", "fog": "fog", "wild": "wild", "dusk": "At dusk"}


def test_a_relative_place_is_that_of_the_folder_where_the_command_is_given(
    folder: Path, tmp_path: Path, monkeypatch
) -> None:
    found = []
    for place, seed in (("here", 1), ("moved", 1), ("other", 2)):
        write_images(tmp_path / place / "own", seed)
        monkeypatch.chdir(tmp_path / place)
        evaluate(folder, f"data.domains.own={json.dumps(OWN)}")
        score = epibench.load_results(folder).score("ensemble", "own")
        assert score is not None
        found.append(score.summary)
    assert found[0] == found[1] != found[2]


def evaluations(folder: Path) -> list[tuple[str, str]]:
    """Precision and convention of the evaluations in the results, the newest first."""
    scores = epibench.load_results(folder).scores
    return list(dict.fromkeys((one.settings["precision"], one.settings["convention"]) for one in scores))


def test_evaluations_with_other_settings_stay_in_the_results_and_are_named(folder: Path, made: Path) -> None:
    assert "with earlier evaluations: 32-true" in evaluate(folder, "evaluation.precision=bf16")
    said = evaluate(folder, "evaluation.convention=gustafsson2020")
    assert "with earlier evaluations: bf16-mixed, pooled; pooled" in said
    newest = ("32-true", "gustafsson2020")
    assert evaluations(folder) == [newest, ("bf16-mixed", "pooled"), ("32-true", "pooled")]
    evaluate(folder)
    assert numbers(epibench.load_results(folder)) == numbers(epibench.load_results(made))
    assert evaluations(folder) == [("32-true", "pooled"), newest, ("bf16-mixed", "pooled")]


def pictures(folder: Path) -> dict[str, bytes]:
    return {f"pictures/{path.name}": path.read_bytes() for path in (folder / "pictures").iterdir()}


def named_by(folder: Path, *precisions: str) -> set[str]:
    """Pictures of the scores of these precisions, and of domains."""
    results = epibench.load_results(folder)
    scores = [score for score in results.scores if score.settings["precision"] in precisions]
    return {file.name for file in picture_files(results.domains.values(), scores)}


def test_missing_and_damaged_pictures_are_made_again_without_passes(folder: Path) -> None:
    before = pictures(folder)
    states = {path: path.read_bytes() for path in (folder / "evaluation").rglob("*.json")}
    first, second, *_ = sorted(before)
    (folder / first).unlink()
    (folder / second).write_bytes(b"damaged")
    status, said = epibench_command("run", folder)
    assert status == 0, said
    assert f"{folder}/pictures/" in said
    assert "finished already" in epibench_command("run", folder)[1]
    assert pictures(folder) == before
    assert {path: path.read_bytes() for path in (folder / "evaluation").rglob("*.json")} == states


def test_pictures_of_an_earlier_evaluation_stay_with_its_scores(folder: Path) -> None:
    before = pictures(folder)
    evaluate(folder, "evaluation.precision=bf16")
    assert named_by(folder, "32-true") == set(before)
    assert named_by(folder, "32-true", "bf16-mixed") == set(pictures(folder)) > set(before)
    (folder / min(set(before) - named_by(folder, "bf16-mixed"))).unlink()
    evaluate(folder, "evaluation.precision=bf16")
    results = epibench.load_results(folder)
    assert [len(score.pictures) for score in results.scores].count(0) == 1
    assert named_by(folder, "32-true", "bf16-mixed") == set(pictures(folder))
    evaluate(folder)
    assert {name: pictures(folder)[name] for name in before} == before


def test_an_evaluation_of_fewer_networks_is_named_by_their_number(folder: Path) -> None:
    alone = 'methods=["ensemble"]'
    evaluate(folder, alone, "evaluation.precision=bf16")
    said = evaluate(folder, alone, "evaluation.precision=32-true", "ensemble.num_members=1", "members=[1]")
    assert "with earlier evaluations: bf16-mixed, 2 networks" in said


def test_a_store_is_of_the_settings_that_were_asked_for_last(folder: Path, tmp_path: Path) -> None:
    evaluate(folder, "evaluation.store=true", "evaluation.precision=bf16")
    evaluate(folder, "evaluation.store=true")
    epibench.run(RECIPE, tmp_path / "fresh", {**SETTINGS, "evaluation.store": True}, device="cpu", jobs=1)
    chunks = [path for path in (folder / "predictions/ensemble").glob("clean.zarr/logits/c/**/*") if path.is_file()]
    assert chunks
    for path in chunks:
        assert path.read_bytes() == (tmp_path / "fresh" / path.relative_to(folder)).read_bytes()


# Train, then evaluate


def test_training_and_evaluation_as_two_commands_are_a_run(made: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run", "--jobs", 1, "--device", "cpu")
    status, said = epibench_command("train", RECIPE, *out, *as_options(texts(SETTINGS)))
    assert status == 0
    assert f"epibench evaluate {tmp_path / 'run'}" in said
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"recipe.json", "members"}
    said = evaluate(tmp_path / "run")
    assert "train " not in said
    assert numbers(epibench.load_results(tmp_path / "run")) == numbers(epibench.load_results(made))
    assert (tmp_path / "run" / "report.html").is_file()
    assert "finished already" in evaluate(tmp_path / "run")


def test_each_step_needs_its_own_data_alone(tmp_path: Path) -> None:
    write_images(tmp_path / "own", seed=1)
    own = {**OWN, "root": str(tmp_path / "own")}
    away = {"away": {"kind": "cityscapes", "root": str(tmp_path / "away")}}
    settings = {**SETTINGS, "methods": ["ensemble"], "data.train": own, "data.domains": away}
    epibench.train(RECIPE, tmp_path / "run", settings, device="cpu", jobs=1)
    assert f"{tmp_path / 'away'}: folder is missing" in epibench_command("evaluate", tmp_path / "run")[1]
    shutil.rmtree(tmp_path / "own")
    evaluate(tmp_path / "run", f"data.domains={json.dumps({'wild': scenes('wild')})}")
    score = epibench.load_results(tmp_path / "run").score("ensemble", "wild")
    assert score is not None
    assert score.num_images == 2


def test_networks_that_are_not_trained_are_named_and_trained_ones_are_evaluated(tmp_path: Path) -> None:
    settings = {**SETTINGS, "ensemble.num_members": 3}
    folder = epibench.train(RECIPE, tmp_path / "run", settings, only=["ensemble:0-1"], device="cpu", jobs=1)
    status, said = epibench_command("evaluate", folder)
    words = "4 networks are not trained (missing: ensemble 1 of 3, laplace 2 of 2, mine 1 of 1); epibench train"
    assert status == 2
    assert f"{folder}: {words} {folder} with the same --set trains them" in said.splitlines()[-1]
    evaluate(folder, 'methods=["ensemble"]', "ensemble.num_members=2")


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
def test_evaluate_refuses_in_one_line(folder: Path, tmp_path: Path, monkeypatch, arguments: Any, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    before = (folder / "recipe.json").read_bytes()
    status, said = epibench_command("evaluate", *(str(folder) if each == "RUN" else each for each in arguments))
    assert status == 2
    assert words in said.strip().splitlines()[-1]
    assert (folder / "recipe.json").read_bytes() == before


@pytest.mark.parametrize("command", ["evaluate", "merge"])
def test_a_folder_that_is_not_there_is_no_run(command: str, tmp_path: Path) -> None:
    complaint = f"epibench: {tmp_path}/run: there is no such folder; give that of a run, as runs/street-depth\n"
    assert epibench_command(command, tmp_path / "run") == (2, complaint)


def test_a_domain_that_is_there_already_is_not_evaluated_again(folder: Path) -> None:
    (folder / "wild.json").write_text(json.dumps(scenes("wild")))
    status, said = epibench_command("evaluate", folder, "--on", f"wild={folder / 'wild.json'}")
    assert status == 0
    assert "finished already" in said


def test_a_folder_stands_for_its_recipe(folder: Path) -> None:
    assert epibench_command("data", "check", folder)[0] == 0
    assert epibench_command("recipes", folder)[0] == 0
    assert "finished already" in epibench_command("run", folder)[1]


def test_a_toy_recipe_is_trained_then_evaluated(tmp_path: Path) -> None:
    settings = [*TOY_SETTINGS, 'methods=["map","ensemble"]']
    folder = epibench.train("toy-classification", tmp_path / "run", settings, device="cpu")
    assert {path.name for path in folder.iterdir()} == {"recipe.json", "members"}
    assert "train " not in evaluate(folder, "draws=2")
    wanted = epibench.run("toy-classification", tmp_path / "fresh", [*settings, "draws=2"], device="cpu")
    assert epibench.load_results(folder).computed() == wanted.computed()
    status, said = epibench_command("evaluate", folder, "--set", "ensemble.num_members=24")
    assert status == 2
    assert "16 networks are not trained (missing: ensemble 16 of 24)" in said
    assert "has no images to evaluate on" in epibench_command("evaluate", folder, "--on", "a=street")[1]
