"""`epibench run`, `recipes` and `report` as a user calls them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from small_recipes import SETTINGS

from epibench.results import Draw, Stat, load_results
from named_recipes import NAMES, recipe_of


def settings(*more: str) -> list[str]:
    return [part for setting in (*SETTINGS, *more) for part in ("--set", setting)]


def test_a_run_writes_recipe_members_results_and_page(tmp_path: Path, run) -> None:
    out = tmp_path / "mine"
    status, _, said = run("run", "toy-regression", "--out", out, *settings('methods=["map", "ensemble"]'))
    assert status == 0
    assert {path.name for path in out.iterdir()} == {"recipe.json", "members", "results.json", "report.html"}
    weights = sorted(str(path.relative_to(out / "members")) for path in (out / "members").glob("*/*"))
    assert weights == ["ensemble/0000-0007.safetensors", "map/0000-0001.safetensors"]
    assert str(out / "report.html") in said
    assert "train ensemble" in said


def test_a_finished_run_is_shown_again_without_training(tmp_path: Path, run) -> None:
    command = ("run", "toy-classification", "--out", tmp_path / "run", *settings('methods=["ensemble"]'))
    run(*command)
    before = (tmp_path / "run" / "results.json").read_text(encoding="utf-8")
    status, _, said = run(*command)
    assert status == 0
    assert "finished already" in said
    assert (tmp_path / "run" / "results.json").read_text(encoding="utf-8") == before


def test_the_recipe_of_a_run_gives_the_same_numbers(tmp_path: Path, run) -> None:
    run("run", "toy-regression", "--out", tmp_path / "one", *settings('methods=["ensemble"]'))
    assert run("run", tmp_path / "one" / "recipe.json", "--out", tmp_path / "two")[0] == 0
    one, two = (load_results(tmp_path / name).latest() for name in ("one", "two"))
    assert [score.summary for score in one] == [score.summary for score in two]


def test_a_recipe_is_written_in_full_with_its_settings(tmp_path: Path, run) -> None:
    status, text, _ = run("recipes", "street-depth", "--set", "seed=3")
    assert status == 0
    (tmp_path / "mine.json").write_text(text, encoding="utf-8")
    expected = recipe_of("street-depth", "seed=3")
    assert type(expected).model_validate_json((tmp_path / "mine.json").read_text(encoding="utf-8")) == expected


def test_report_makes_one_page_of_two_runs(tmp_path: Path, run) -> None:
    for name in ("toy-regression", "toy-classification"):
        run("run", name, "--out", tmp_path / name, *settings('methods=["ensemble"]'))
    page = tmp_path / "both.html"
    status, _, said = run("report", tmp_path / "toy-regression", tmp_path / "toy-classification", "--out", page)
    assert status == 0
    assert page.stat().st_size > 10_000
    assert str(page) in said


def test_report_writes_its_tables_as_markdown(tmp_path: Path, run) -> None:
    run("run", "toy-classification", "--out", tmp_path / "run", *settings('methods=["ensemble"]'))
    results = load_results(tmp_path / "run")
    names = ("kl", "kl_reverse", "kl_gustafsson2020", "kl_reverse_gustafsson2020")
    summary = {8: dict.fromkeys(names, Stat(mean=0.25, std=0.5, n=4))}
    draws = [Draw(M=8, metrics=dict.fromkeys(names, value)) for value in (0.1, 0.2, 0.3, 0.4)]
    first = results.scores[0].model_copy(update={"summary": summary, "draws": draws, "curves": {}})
    others = [score for score in results.scores if score.domain in ("inside", "outside")]
    results.scores = [*others, *(first.model_copy(update={"domain": domain}) for domain in ("grid", "train"))]
    results.save(tmp_path / "run" / "results.json")
    assert run("report", tmp_path / "run", "--markdown", tmp_path / "tables.md")[0] == 0
    written = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert "| Ensembling | 0.25 ± 0.50 |" in written
    ours = "0.25 ± 0.50 | 0.25 | 1 | +0.161 | +182\u00a0% | **4.14** | – | – |"
    assert f"| classification, Ensembling | 8 | 0.089 ± 0.039 | 20 | {ours}" in written


def test_recipes_lists_all_of_them(run) -> None:
    status, printed, _ = run("recipes")
    assert status == 0
    assert all(name in printed for name in NAMES if not name.endswith("-quick"))
    assert "-quick" in printed


def test_quick_recipes_come_first_with_their_time(run) -> None:
    _, printed, _ = run("recipes")
    first = [line.split()[:3] for line in printed.splitlines()[1:3]]
    assert first == [["street-depth-quick", "3", "min"], ["street-segmentation-quick", "3", "min"]]


def test_no_other_recipe_stands_before_a_quick_one(run) -> None:
    _, printed, _ = run("recipes")
    quick, _, others = printed.partition("\ntoy-regression ")
    assert (quick.count("-quick "), others.count("-quick ")) == (sum(name.endswith("-quick") for name in NAMES), 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "toy-regresion"), ["toy-regresion", "toy-regression"]),
        (("run", "toy-regression", "--set", "sgld.epochs=3"), ["sgld.epochs", "sgld.num_epochs"]),
        (("run", "toy-regression", "--set", "prior_scale=0"), ["prior_scale", "greater than"]),
        (("run", "toy-regression", "--set", "members=[512]"), ["M = 512", "256"]),
        (("run", "toy-regression", "--set", "data.path=missing.npz"), ["missing.npz"]),
        (("run", "toy-regression", "--set", "reference.path=missing.npz"), ["missing.npz", "epibench reference"]),
        (("run", "toy-regression", "--executor", "cloud"), ["cloud", "local"]),
        (("run", "toy-regression", "--device", "tpu"), ["tpu"]),
        (("report", "nowhere"), ["nowhere"]),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, words, run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, said = run(*arguments)
    complaint = said.strip().splitlines()[-1]
    assert status == 2
    assert complaint.startswith("epibench: ")
    assert all(word in complaint for word in words), complaint
    assert not (tmp_path / "runs").exists()


def test_a_data_file_without_the_arrays_names_file_and_array(tmp_path: Path, run, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "data.npz", a=np.zeros(3))
    status, _, said = run("run", "toy-regression", "--set", f"data.path={tmp_path / 'data.npz'}")
    assert status == 2
    assert "data.npz: no array 'x' or 'regression_x'; it holds a" in said


def test_another_recipe_in_the_folder_is_refused(tmp_path: Path, run) -> None:
    run("run", "toy-regression", "--out", tmp_path / "run", *settings('methods=["map"]'))
    status, _, said = run("run", "toy-regression", "--out", tmp_path / "run", *settings('methods=["map"]', "seed=1"))
    assert status == 2
    assert "another recipe: seed (0 there, 1 now)" in said


def test_another_method_in_the_folder_is_trained_beside_what_is_there(tmp_path: Path, run) -> None:
    run("run", "toy-regression", "--out", tmp_path / "run", *settings('methods=["map"]'))
    more = settings('methods=["map","ensemble"]')
    status, _, said = run("run", "toy-regression", "--out", tmp_path / "run", *more)
    assert status == 0
    assert "train ensemble" in said
    assert "train map" not in said
    scores = load_results(tmp_path / "run").latest()
    assert list(dict.fromkeys(score.method for score in scores)) == ["map", "ensemble"]


def test_a_run_whose_only_method_failed_says_so_everywhere(tmp_path: Path, run) -> None:
    hot = settings('methods=["sgld"]', "sgld.learning_rate=100", "sgld.diverged=stop")
    status, _, said = run("run", "toy-regression", "--out", tmp_path / "run", *hot)
    assert status == 2
    assert said.strip().splitlines()[-1].startswith("epibench: sgld: ")
    assert "Traceback" not in said
    results = load_results(tmp_path / "run")
    assert results.scores == []
    assert "lower sgld.learning_rate" in results.failed["sgld"]
    assert "lower sgld.learning_rate" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    long = settings('methods=["map", "sgld"]', "sgld.num_epochs=4000", "sgld.learning_rate=0.001")
    command = [sys.executable, "-m", "epibench", "run", "toy-regression", "--out", str(out), *long]
    # A shell starts what runs in its background deaf to this signal, and the tests may be run there.
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
    stopped = subprocess.Popen(command, encoding="utf-8", preexec_fn=hear_interrupts, **pipes)
    finished, deadline = out / "members" / "map" / "0000-0001.safetensors", time.monotonic() + 60
    while not finished.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(stopped.pid, signal.SIGINT)
    _, said = stopped.communicate(timeout=60)
    assert stopped.returncode == 130
    assert "the same command goes on" in said
    assert "Traceback" not in said
    assert finished.exists()
    assert not (out / "results.json").exists()
