"""The public API: what the commands do, as functions; imported on use."""

import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import epibench
from epibench.errors import InputError
from epibench.preparing import recipes
from epibench.reading import report
from epibench.recipes import RECIPES, apply_settings
from epibench.results import Results
from epibench.store import write_store
from named_recipes import recipe_of

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
    content = results.computed()
    for score in content["scores"]:
        del score["source"]
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
    assert isinstance(of_arrays, Results)
    assert without_path(of_file) == without_path(of_arrays)


def test_it_is_what_the_command_writes(tmp_path):
    store, file = tmp_path / "a.zarr", tmp_path / "out.json"
    write_store(store, kind="categorical", probs=PROBS, target=LABELS)
    command = [sys.executable, "-m", "epibench", "score", store, "--seed", "3", "--device", "cpu", "--json", file]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    assert epibench.score(str(store), seed=3, device="cpu").as_json() == file.read_text(encoding="utf-8")


def test_it_prints_nothing_and_tells_a_reporter(capfd, tmp_path):
    listening = Listening()
    epibench.score(GAUSSIAN, {"logits": np.log(PROBS), "target": LABELS}, progress=listening, report=tmp_path)
    assert capfd.readouterr() == ("", "")
    assert listening.steps == {"score predictions 0": TARGET.size, "score predictions 1": LABELS.size}
    assert "<html" in (tmp_path / "score.html").read_text(encoding="utf-8")
    epibench.score(GAUSSIAN, progress=True)
    assert "score predictions 0" in capfd.readouterr().err


def test_depth_and_ignore_index_are_passed_on():
    (depth,) = epibench.score(GAUSSIAN, depth=True).scores
    assert "abs_rel" in depth.summary[1]
    (classes,) = epibench.score({"probs": PROBS, "target": np.where(LABELS, LABELS, -1)}, ignore_index=-1).scores
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
    assert isinstance(results, Results)
    assert list(results.methods) == ["ensemble"]
    assert listening.steps
    assert epibench.load_results(folder) == results
    assert epibench.load_results(str(folder / "results.json")) == results
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_second_call_trains_nothing(ran, capfd):
    folder, results, _ = ran
    again = epibench.run("toy-regression-quick", folder, SMALL, device="cpu")
    assert again.computed() == results.computed()
    assert capfd.readouterr() == ("", "")
    listening = Listening()
    epibench.run("toy-regression-quick", folder, SMALL, device="cpu", progress=listening)
    assert "finished already; remove its results.json and evaluation/ to evaluate it again" in listening.said


def test_the_folder_of_a_run_is_gone_on_with(ran, tmp_path, monkeypatch):
    folder, results, _ = ran
    monkeypatch.chdir(tmp_path)
    listening = Listening()
    again = epibench.run(folder, device="cpu", progress=listening)
    assert again.computed() == results.computed()
    assert "finished already; remove its results.json and evaluation/ to evaluate it again" in listening.said
    assert epibench.train(str(folder), device="cpu") == folder
    assert not list(tmp_path.iterdir())


def test_settings_can_be_texts_and_a_recipe_an_object(ran, tmp_path):

    texts = [f"{key}={json.dumps(value)}" for key, value in SMALL.items()]
    results = epibench.run(recipe_of("toy-regression-quick"), tmp_path / "run", texts, device="cpu")
    assert results.computed()["scores"] == ran[1].computed()["scores"]


def test_a_run_is_evaluated_with_other_settings_and_read(ran, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(ran[0], folder)
    results = epibench.evaluate(run=folder, settings={"draws": 1}, device="cpu")
    assert [len(score.draws) for score in results.scores[:2]] == [1, 1]
    assert epibench.load_results(folder) == results
    assert epibench.merge(folder, settings=["draws=1"], device="cpu") == results
    with pytest.raises(InputError, match=r"evaluation\.precision"):
        epibench.evaluate(run=folder, precision="bf16")
    with pytest.raises(InputError, match=r"^ignore_index: is for models"):
        epibench.evaluate(run=folder, ignore_index=0)
    files = epibench.export(folder, csv=tmp_path / "csv", only="draws")
    assert files == [tmp_path / "csv" / "draws.csv"]
    assert report([folder], tmp_path / "page.html") == tmp_path / "page.html"
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_recipes_are_values():
    assert [each.name for each in recipes()] == list(RECIPES)
    assert recipes("street-depth", {"seed": 3}) == [apply_settings(RECIPES["street-depth"], ["seed=3"])]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("toy-regresion",), "recipe 'toy-regresion' is unknown"),
        (("toy-regression-quick", None, "seed=3"), "is one text. Fix: give a dict"),
        (("toy-regression-quick", None, {"typo": 1}), "typo"),
    ],
)
def test_a_wrong_recipe_or_setting_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        epibench.run(*arguments)


# Wrong types

QUICK = "toy-regression-quick"
IMAGES = [(np.zeros((3, 4, 5), np.float32), np.ones((4, 5), np.int64))]


def two_classes(image):
    return torch.cat([image[:, :1], 2 - image[:, :1]], 1)


@pytest.mark.parametrize(
    ("function", "given", "options", "message"),
    [
        ("run", (None,), {}, "recipe: cannot be None. Fix: give the name of a recipe, e.g. 'toy-regression-quick'"),
        ("run", (3,), {}, "recipe: cannot be 3 (int). Fix: give the name"),
        ("run", ({"name": "mine"},), {}, "recipe: cannot be {'name': 'mine'} (dict). Fix: give the name"),
        ("run", (b"base",), {}, "recipe: cannot be b'base' (bytes). Fix: give the name"),
        (
            "run",
            (QUICK,),
            {"settings": 5},
            "settings: cannot be 5 (int). Fix: give a dict, e.g. {'seed': 3}, or a list",
        ),
        (
            "run",
            (QUICK,),
            {"settings": [5]},
            "settings: cannot be 5 (int). Fix: give a dict, e.g. {'seed': 3}, or a list",
        ),
        (
            "run",
            (QUICK,),
            {"settings": {"seed": {3}}},
            "settings: seed: cannot be {3} (set). Fix: give a number, a text",
        ),
        ("run", (QUICK,), {"out": 5}, "out: cannot be 5 (int). Fix: give a local folder, e.g. 'runs/mine'"),
        ("run", (QUICK,), {"out": "a\0b"}, r"out: cannot be 'a\x00b' (str). Fix: give a local folder"),
        ("score", (GAUSSIAN,), {"json": "\ud800.json"}, r"json: cannot be '\ud800.json' (str). Fix: give a local file"),
        ("score", ("x" * 5000,), {}, "x" * 5000 + ": no such file or folder"),
        ("evaluate", (two_classes, IMAGES), {"ignore_index": 2**31}, "ignore_index: cannot be 2147483648 (int). Fix:"),
        ("run", (QUICK,), {"device": None}, "device: cannot be None. Fix: give 'auto', 'cpu' or 'cuda'"),
        ("run", (QUICK,), {"executor": None}, "executor: cannot be None. Fix: give 'local' or 'ray'"),
        ("run", (QUICK,), {"jobs": "2"}, "jobs: cannot be '2' (str). Fix: give a whole number of at least 1, e.g. 16"),
        ("run", (QUICK,), {"jobs": True}, "jobs: cannot be True (bool). Fix: give a whole number"),
        ("run", (QUICK,), {"jobs": 0}, "jobs: cannot be 0 (int). Fix: give a whole number of at least 1"),
        ("run", (QUICK,), {"progress": "yes"}, "progress: cannot be 'yes' (str). Fix: give True, False, or a reporter"),
        ("train", (None,), {}, "recipe: cannot be None. Fix: give the name of a recipe"),
        (
            "train",
            (QUICK,),
            {"only": [0]},
            "only: cannot be 0 (int). Fix: give a list of networks, e.g. ['ensemble:3-5']",
        ),
        ("train", (QUICK,), {"only": 5}, "only: cannot be 5 (int). Fix: give a list of networks"),
        (
            "evaluate",
            (None, IMAGES),
            {},
            "models: there are none. Fix: give the folder of a run, or at least one model, an nn.Module",
        ),
        ("evaluate", ([two_classes, 5], IMAGES), {}, "models: cannot be 5 (int). Fix: give an nn.Module, a function"),
        ("evaluate", ({}, IMAGES), {}, "models: there are none. Fix: give the folder of a run, or at least one model"),
        ("evaluate", (two_classes, None), {}, "data: cannot be None. Fix: give a data set with a length"),
        ("evaluate", (two_classes, {1: IMAGES}), {}, "data: cannot be 1 (int). Fix: give names that are texts"),
        (
            "evaluate",
            (two_classes, IMAGES),
            {"members": "1,2"},
            "members: cannot be '1,2' (str). Fix: give a list of whole",
        ),
        (
            "evaluate",
            (two_classes, IMAGES),
            {"members": 2},
            "members: cannot be 2 (int). Fix: give a list of whole numbers",
        ),
        ("evaluate", (two_classes, IMAGES), {"draws": "2"}, "draws: cannot be '2' (str). Fix: give a whole number"),
        ("evaluate", (two_classes, IMAGES), {"seed": None}, "seed: cannot be None. Fix: give a whole number"),
        (
            "evaluate",
            (two_classes, IMAGES),
            {"mc_dropout": True},
            "mc_dropout: cannot be True (bool). Fix: give a whole",
        ),
        ("evaluate", (two_classes, IMAGES), {"rate": "a"}, "rate: cannot be 'a' (str). Fix: give a number, e.g. 0.1"),
        ("evaluate", (two_classes, IMAGES), {"views": [5]}, "views: cannot be 5 (int). Fix: give a list of texts"),
        (
            "evaluate",
            (two_classes, IMAGES),
            {"classes": 5},
            "classes: cannot be 5 (int). Fix: give names, e.g. ['road', 'sky']",
        ),
        ("evaluate", (two_classes, IMAGES), {"model_format": 5}, "model_format: cannot be 5 (int). Fix: give a dict"),
        ("evaluate", (two_classes, IMAGES), {"in_domain": 5}, "in_domain: cannot be 5 (int). Fix: give a text"),
        (
            "evaluate",
            (two_classes, IMAGES),
            {"task": 5},
            "task: cannot be 5 (int). Fix: give 'segmentation' or 'depth'",
        ),
        (
            "evaluate",
            (two_classes, IMAGES),
            {"ignore_index": "a"},
            "ignore_index: cannot be 'a' (str). Fix: give a whole",
        ),
        ("evaluate", (two_classes, IMAGES), {"unit": 5}, "unit: cannot be 5 (int). Fix: give a text"),
        ("evaluate", (two_classes, IMAGES), {"depth": "yes"}, "depth: cannot be 'yes' (str). Fix: give True or False"),
        ("evaluate", (two_classes, IMAGES), {"out": 5}, "out: cannot be 5 (int). Fix: give a local folder"),
        (
            "evaluate",
            (two_classes, IMAGES),
            {"device": 5},
            "device: cannot be 5 (int). Fix: give 'auto', 'cpu' or 'cuda'",
        ),
        ("evaluate", (two_classes, IMAGES), {"progress": "x"}, "progress: cannot be 'x' (str). Fix: give True, False"),
        (
            "score",
            (None,),
            {},
            "predictions 0: cannot be None. Fix: give a store, e.g. 'ensemble.zarr', or a dict of arrays",
        ),
        ("score", (GAUSSIAN, 3), {}, "predictions 1: cannot be 3 (int). Fix: give a store"),
        ("score", ([GAUSSIAN],), {}, "predictions 0: cannot be [{'mean': "),
        (
            "score",
            (GAUSSIAN,),
            {"members": 2},
            "members: cannot be 2 (int). Fix: give a list of whole numbers, e.g. [1, 2, 4]",
        ),
        ("score", (GAUSSIAN,), {"members": "2"}, "members: cannot be '2' (str). Fix: give a list of whole numbers"),
        ("score", (GAUSSIAN,), {"members": [1.0]}, "members: cannot be 1.0 (float). Fix: give a list of whole numbers"),
        (
            "score",
            (GAUSSIAN,),
            {"members": np.array(2)},
            "members: cannot be array(2) (ndarray). Fix: give a list of whole",
        ),
        ("score", (GAUSSIAN,), {"draws": "2"}, "draws: cannot be '2' (str). Fix: give a whole number of at least 1"),
        ("score", (GAUSSIAN,), {"seed": "a"}, "seed: cannot be 'a' (str). Fix: give a whole number"),
        ("score", (GAUSSIAN,), {"plan": 5}, "plan: cannot be 5 (int). Fix: give a text"),
        ("score", (GAUSSIAN,), {"convention": 5}, "convention: cannot be 5 (int). Fix: give a text"),
        ("score", (GAUSSIAN,), {"uncertainty": 5}, "uncertainty: cannot be 5 (int). Fix: give a text"),
        (
            "score",
            (GAUSSIAN,),
            {"ignore_index": "a"},
            "ignore_index: cannot be 'a' (str). Fix: give a whole number, e.g. 255",
        ),
        ("score", (GAUSSIAN,), {"skip_invalid": "no"}, "skip_invalid: cannot be 'no' (str). Fix: give True or False"),
        ("score", (GAUSSIAN,), {"depth": 1}, "depth: cannot be 1 (int). Fix: give True or False"),
        ("score", (GAUSSIAN,), {"device": None}, "device: cannot be None. Fix: give 'auto', 'cpu' or 'cuda'"),
        ("score", (GAUSSIAN,), {"report": 5}, "report: cannot be 5 (int). Fix: give a local folder"),
        ("score", (GAUSSIAN,), {"progress": None}, "progress: cannot be None. Fix: give True, False, or a reporter"),
    ],
)
def test_a_wrong_type_is_named_before_anything_is_written(function, given, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if function == "evaluate":
        options = {"out": "evaluated", **options}
    with pytest.raises(InputError) as error:
        getattr(epibench, function)(*given, **options)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_numbers_of_numpy_paths_and_any_sequence_are_fine(ran, tmp_path):
    expected = epibench.score(GAUSSIAN, members=[1, 2], draws=3, seed=1, device="cpu")
    for members in ((1, 2), range(1, 3), np.array([1, 2]), torch.tensor([1, 2]), iter([np.int64(1), 2])):
        found = epibench.score(GAUSSIAN, members=members, draws=np.int64(3), seed=np.uint8(1), device="cpu")
        assert found == expected
    epibench.score(GAUSSIAN, depth=np.bool_(True), report=tmp_path / "page")

    settings = {"methods": ("ensemble",), "ensemble.num_members": np.int64(2), "members": np.array([1]), "draws": 2}
    settings["ensemble.num_epochs"] = np.int32(2)
    for out in (tmp_path / "run", str(tmp_path / "run")):
        assert epibench.run(QUICK, out, settings, device="cpu", jobs=np.int64(1)).scores == ran[1].scores
        for only in ((), None, "ensemble", ("ensemble",), np.array(["ensemble"])):
            assert epibench.train(out, only=only, device="cpu") == Path(out)


def test_evaluate_takes_numbers_of_numpy_paths_and_any_sequence(tmp_path):
    plain = {"members": [1], "draws": 2, "seed": 1, "ignore_index": 0, "views": ["flip"], "classes": ["a", "b"]}
    expected = epibench.evaluate([two_classes], IMAGES, **plain)
    numpy = {name: np.int64(plain[name]) for name in ("draws", "seed", "ignore_index")}
    numpy |= {"members": np.array([1]), "views": ("flip",), "classes": np.array(["a", "b"])}
    options = {"rate": 1, "mc_dropout": np.int64(0), "device": torch.device("cpu"), "progress": Listening()}
    for out in (tmp_path / "a", str(tmp_path / "b")):
        found = epibench.evaluate((two_classes,), IMAGES, out=out, **numpy, **options)
        assert found.computed()["scores"] == expected.computed()["scores"]


def test_a_file_of_results_is_no_recipe(ran):
    with pytest.raises(
        InputError, match=r"results.json: is a file of results, .* the folder of the run, or its recipe"
    ):
        epibench.run(ran[0] / "results.json")


def test_a_run_is_no_model_and_it_is_said_how_it_is_evaluated(ran):
    for folder in (ran[0], str(ran[0])):
        with pytest.raises(InputError, match=r"is the folder of a run, .* by epibench evaluate .*'run:"):
            epibench.evaluate(folder, {})
