"""Commands and their functions: the same arguments, one text for both, and wrong values named as they were typed."""

import inspect
import re

import pytest

from epibench import api, preparing, reading
from epibench.cli.adapter import DESCRIBED

COMMANDS = {
    **{name: getattr(api, name) for name in ("run", "train", "evaluate", "merge", "score")},
    **{name: getattr(reading, name) for name in ("report", "export", "video")},
    **{name: getattr(preparing, name) for name in ("recipes", "reference")},
    **{"data check": preparing.check, "data preview": preparing.preview, "data export": preparing.export_scenes},
}
IN_SHELL = {"settings": "set", "every": "all", "methods": "method", "largest": "max"}
OF_EVALUATE = {**IN_SHELL, "models": "model", "data": "on", "views": "tta"}
PYTHON = {"progress", "evaluation", "model_format", "classes", "ignore_index", "unit", "depth"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_docstring_has_every_argument_and_the_help_its_first_line(command, run):
    function = COMMANDS[command]
    parameters = inspect.signature(function).parameters
    about, _, sections = inspect.getdoc(function).partition("\n\nArgs:\n")
    described = [text[1] for text in DESCRIBED.finditer(sections.partition("\nReturns:")[0])]
    assert sorted(described) == sorted(parameters)
    assert "\nRaises:\n    InputError: " in sections
    text = run(*command.split(), "--help")[1]
    assert about.splitlines()[0] in text


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_a_command_are_the_arguments_of_its_function(command, run):
    parameters = list(inspect.signature(COMMANDS[command]).parameters)
    positional = "run" if command == "evaluate" else parameters[0]
    called = OF_EVALUATE if command in ("evaluate", "merge") else IN_SHELL
    wanted = {called.get(name, name).replace("_", "-") for name in parameters if name != positional}
    python = PYTHON if command == "evaluate" else {"progress"}
    options = re.findall(r"^  --([\w-]+)", run(*command.split(), "--help")[1], re.MULTILINE)
    assert sorted(options) == sorted({*wanted - {name.replace("_", "-") for name in python}, "help"})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["score", "a.npz", "--draws", "0"], "--draws: cannot be 0. Fix: give a whole number of at least 1, e.g. 16."),
        (["score", "a.npz", "--seed", "x"], "--seed: cannot be 'x'. Fix: give a whole number of at least 0, e.g. 3."),
        (["score", "a.npz", "--members", "1;2"], "--members: cannot be '1;2'. Fix: give whole numbers, e.g. 1,2,4."),
        (["evaluate", "--model", "a", "--mc-dropout", "-1"], "--mc-dropout: cannot be -1. Fix: give a whole number of"),
        (["evaluate", "--model", "a", "--rate", "much"], "--rate: cannot be 'much'. Fix: give a number, e.g. 0.1."),
        (
            ["evaluate", "--model", "a", "--tta", "flip,spin"],
            "--tta flip,spin: view 'spin' is unknown; there are identity,",
        ),
        (["evaluate", "run", "--draws", "8"], "--draws: is for models. Fix: leave it out; a run has settings"),
        (
            ["evaluate", "run", "--model", "a"],
            "RUN and --model: cannot be given together. Fix: give one, or --model run:",
        ),
        (["evaluate", "--model", "a", "--out", "s3://b/c"], "--out: cannot be 's3://b/c'. Fix: give a local folder"),
        (["video", "run", "--on", "a", "--max", "inf"], "--max: cannot be inf. Fix: give a number greater than 0."),
        (["train", "toy-regression", "--only", "typo"], "--only typo: toy-regression has no method 'typo'"),
        (["train", "toy-regression", "--shard", "0/2"], "--shard 0/2: give the number of the shard"),
        (["train", "toy-regression", "--only", "map", "--shard", "1/2"], "--shard 1/2: only=map chooses networks, too"),
        (["recipes", "--set", "seed=3"], "--set: change one recipe. Fix: give its name, too."),
        (["data", "preview", "street", "--out", "a.png", "--size", "64"], "--size '64': give height and width"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_value_is_named_by_its_option(arguments, complaint, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, output, errors = run(*arguments)
    assert (status, output) == (2, "")
    last = errors.splitlines()[-1]
    assert last.startswith(f"epibench: {complaint}")
    assert not list(tmp_path.iterdir())
