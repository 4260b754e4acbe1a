"""The public API: what the commands do, as functions; imported on use."""

import json
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import epibench
from epibench.errors import InputError
from epibench.results import RunResults, ScoreResults
from epibench.store import write_store

RNG = np.random.default_rng(0)
TARGET = RNG.gamma(3, 5, (4, 5, 6))
MEAN = TARGET + RNG.normal(0, 1, (4, 4, 5, 6))
GAUSSIAN = {"mean": MEAN, "variance": np.ones_like(MEAN), "target": TARGET}
PROBS = RNG.dirichlet(np.ones(3), (4, 2, 5, 6))
LABELS = RNG.integers(0, 3, (2, 5, 6))
SMALL = {"methods": ["ensemble"], "ensemble.num_members": 2, "ensemble.num_epochs": 2, "members": [1], "draws": 2}


class Listening:
    """A reporter that remembers steps and messages."""

    def __init__(self):
        self.steps, self.said = {}, []

    @contextmanager
    def step(self, name, total, done=0):
        self.steps[name] = done

        def advance(units, note="", /):
            self.steps[name] += units

        yield advance

    def say(self, text):
        self.said.append(text)


def without_path(results):
    content = results.model_dump(mode="json")
    for file in content["files"]:
        del file["path"]
    return content


# Names


def test_names_are_those_that_are_documented():
    assert epibench.__all__ == sorted(epibench.__all__)
    assert set(epibench.__all__) <= set(dir(epibench))
    for name in epibench.__all__:
        assert getattr(epibench, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        epibench.nothing  # noqa: B018


def test_import_costs_nothing():
    code = "import sys, epibench; assert not {'torch', 'numpy', 'pydantic', 'typer'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# Score


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_arrays_score_as_the_file_that_holds_them(tmp_path, convert):
    arrays = {name: convert(values) for name, values in GAUSSIAN.items()}
    write_store(tmp_path / "a.zarr", kind="gaussian", method="mine", unit="m", **GAUSSIAN)
    of_file = epibench.score(tmp_path / "a.zarr", members=[1, 4], draws=3, device="cpu")
    of_arrays = epibench.score({**arrays, "method": "mine", "unit": "m"}, members=[1, 4], draws=3, device="cpu")
    assert isinstance(of_arrays, ScoreResults)
    assert without_path(of_file) == without_path(of_arrays)


def test_it_is_what_the_command_writes(tmp_path):
    store, file = tmp_path / "a.zarr", tmp_path / "out.json"
    write_store(store, kind="categorical", probs=PROBS, target=LABELS)
    command = [sys.executable, "-m", "epibench", "score", store, "--seed", "3", "--device", "cpu", "--json", file]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    expected = json.loads(file.read_text(encoding="utf-8"))
    assert epibench.score(str(store), seed=3, device="cpu").model_dump(mode="json") == expected


def test_it_prints_nothing_and_tells_a_reporter(capfd, tmp_path):
    listening = Listening()
    epibench.score(GAUSSIAN, {"logits": np.log(PROBS), "target": LABELS}, progress=listening, report=tmp_path)
    assert capfd.readouterr() == ("", "")
    assert listening.steps == {"score predictions 0": TARGET.size, "score predictions 1": LABELS.size}
    assert "<html" in (tmp_path / "score.html").read_text(encoding="utf-8")
    epibench.score(GAUSSIAN, progress=True)
    assert "score predictions 0" in capfd.readouterr().err


def test_depth_and_ignore_index_are_passed_on():
    (depth,) = epibench.score(GAUSSIAN, depth=True).files
    assert "abs_rel" in depth.summary[1]
    (classes,) = epibench.score({"probs": PROBS, "target": np.where(LABELS, LABELS, -1)}, ignore_index=-1).files
    assert classes.pixels.ignored == int((LABELS == 0).sum()) > 0


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ((), {}, "nothing to score"),
        (({**GAUSSIAN, "std": MEAN},), {}, "predictions 0: .*'std'.* is no array"),
        (({"mean": MEAN, "target": TARGET},), {}, "predictions 0: the attribute 'kind' is None"),
        (({**GAUSSIAN, "mean": MEAN[:, 0]},), {}, "predictions 0: 'mean' has shape"),
        (({**GAUSSIAN, "mean": [[1.0], [1.0, 2.0]]},), {}, "'mean' is not an array of numbers"),
        ((GAUSSIAN,), {"ignore_index": 255}, "ignore_index is for classes"),
        ((GAUSSIAN,), {"members": [9]}, "predictions 0: M = 9 is impossible"),
        ((GAUSSIAN,), {"device": "tpu"}, "^device 'tpu' is unknown"),
        ((GAUSSIAN,), {"convention": "mine"}, "convention 'mine' is unknown"),
        (("nowhere.zarr",), {}, "nowhere.zarr: no such file"),
    ],
)
def test_bad_input_is_named(given, options, message):
    with pytest.raises(InputError, match=message):
        epibench.score(*given, **options)


# Run


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder, listening = tmp_path_factory.mktemp("api") / "run", Listening()
    return folder, epibench.run("toy-regression-quick", folder, SMALL, device="cpu", progress=listening), listening


def test_a_run_gives_its_results_and_keeps_them(ran):
    folder, results, listening = ran
    assert isinstance(results, RunResults)
    assert list(results.methods) == ["ensemble"]
    assert listening.steps
    assert epibench.load_results(folder) == results
    assert epibench.load_results(str(folder / "results.json")) == results
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_second_call_trains_nothing(ran, capfd):
    folder, results, _ = ran
    again = epibench.run("toy-regression-quick", folder, SMALL, device="cpu")
    assert again.summary == results.summary
    assert capfd.readouterr() == ("", "")
    listening = Listening()
    epibench.run("toy-regression-quick", folder, SMALL, device="cpu", progress=listening)
    assert "ensemble: 2 of 2 networks trained already" in listening.said


def test_the_folder_of_a_run_is_gone_on_with(ran, tmp_path, monkeypatch):
    folder, results, _ = ran
    monkeypatch.chdir(tmp_path)
    listening = Listening()
    again = epibench.run(folder, device="cpu", progress=listening)
    assert again.summary == results.summary
    assert "ensemble: 2 of 2 networks trained already" in listening.said
    assert epibench.train(str(folder), device="cpu") == folder
    assert not list(tmp_path.iterdir())


def test_settings_can_be_texts_and_a_recipe_an_object(ran, tmp_path):
    from epibench.recipes import find_recipe

    texts = [f"{key}={json.dumps(value)}" for key, value in SMALL.items()]
    results = epibench.run(find_recipe("toy-regression-quick"), tmp_path / "run", texts, device="cpu")
    assert results.summary == ran[1].summary


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("toy-regresion",), "recipe 'toy-regresion' is unknown"),
        (("toy-regression-quick", None, "seed=3"), "is one text; give a dict"),
        (("toy-regression-quick", None, {"typo": 1}), "typo"),
    ],
)
def test_a_wrong_recipe_or_setting_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        epibench.run(*arguments)
