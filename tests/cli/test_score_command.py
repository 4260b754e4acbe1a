"""`epibench score` as a user calls it: what it prints, writes, refuses and returns."""

import json
import subprocess
import sys

import numpy as np
import pytest

import oracles
from epibench.evaluation.scoring import Scorer
from epibench.store import open_store, write_store


def gaussian_store(path, seed=0, **attributes):
    rng = np.random.default_rng(seed)
    target = rng.gamma(3, 5, (4, 5, 6))
    mean = target + rng.normal(0, 1, (4, 4, 5, 6))
    attributes = {"method": path.stem, "unit": "m", **attributes}
    write_store(path, kind="gaussian", mean=mean, variance=np.ones_like(mean), target=target, **attributes)
    return path


def categorical_store(path, **attributes):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), (4, 2, 5, 6))
    target = rng.integers(0, 3, (2, 5, 6))
    write_store(path, kind="categorical", probs=probs, target=target, **{"method": path.stem, **attributes})
    return path


def test_json_has_the_agreed_keys(tmp_path, run):
    store = gaussian_store(tmp_path / "ensemble.zarr", domain="wild")
    assert run("score", store, "--json", tmp_path / "out.json")[0] == 0
    content = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (content["version"], content["convention"]) == (2, "pooled")
    (file,) = content["scores"]
    assert (file["source"], file["method"], file["domain"]) == (str(store), "ensemble", "wild")
    assert set(file["draws"][0]) == {"M", "members", "metrics"}
    assert set(file["summary"]) == {"1", "2", "4"}
    assert set(file["summary"]["2"]["ause"]) == {"mean", "std", "n"}
    assert set(file["curves"]) == {"sparsification", "calibration"}


def test_files_of_both_kinds_come_in_two_tables(tmp_path, run):
    stores = [gaussian_store(tmp_path / "a.zarr"), gaussian_store(tmp_path / "b.zarr", seed=1)]
    status, output, _ = run("score", *stores, categorical_store(tmp_path / "c.zarr"))
    assert status == 0
    assert "gaussian predictions, convention pooled" in output
    assert "categorical predictions, convention pooled" in output
    assert "RMSE (m) ↓" in output


def test_a_table_of_samples_is_not_called_pixels(tmp_path, run):
    rng = np.random.default_rng(0)
    target = rng.normal(size=40)
    mean = target + rng.normal(0, 1, (4, 40))
    mean[1, 3] = np.nan
    write_store(tmp_path / "a.zarr", kind="gaussian", mean=mean, variance=np.ones_like(mean), target=target)
    status, output, errors = run("score", tmp_path / "a.zarr", "--skip-invalid")
    assert status == 0
    assert "Samples skipped" in output
    assert "pixel" not in (output + errors).lower()
    assert "in 1 sample, first at member 1, sample 3" in run("score", tmp_path / "a.zarr")[2]


def test_every_map_of_a_ranking_is_scored(tmp_path, run):
    rng = np.random.default_rng(0)
    target, noise = rng.normal(size=300), rng.gamma(1, 1, 300)
    mean = target + noise * rng.normal(size=(2, 300))
    maps = np.stack([noise, -noise], -1)[None].repeat(2, 0)
    store = tmp_path / "a.zarr"
    names = ["head", "edge"]
    write_store(store, kind="ranking", mean=mean, target=target, uncertainty=maps, uncertainty_names=names)
    status, output, _ = run("score", store, "--json", tmp_path / "out.json")
    assert status == 0
    assert "a, edge: Its uncertainty 'edge' is inverted: at M = 2, AUSE" in output
    assert "AUSE, inverted" in output
    assert "NLL" not in output
    files = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["scores"]
    assert [file["settings"]["uncertainty"] for file in files] == names
    assert run("score", store, "--uncertainty", "edge")[1].count("M = 2 ") == 1


def test_one_domain_can_be_called_in_domain(tmp_path, run):
    stores = [
        gaussian_store(tmp_path / f"{name}.zarr", seed, domain=name) for seed, name in enumerate(("day", "night"))
    ]
    status, output, _ = run("score", *stores, "--in-domain", "day", "--json", tmp_path / "out.json")
    assert status == 0
    domains = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["domains"]
    assert {name: facts["role"] for name, facts in domains.items()} == {"day": "in-domain", "night": "shifted"}
    assert "day, M" not in output  # they are two methods, so that there is nothing to compare
    both = [gaussian_store(tmp_path / f"b{name}.zarr", 0, method="b", domain=name) for name in ("day", "night")]
    assert "day → night, the hardest shift" in run("score", *both, "--in-domain", "day")[1]
    assert "≈" not in run("score", *both)[1]  # one method on two domains is not compared with itself


@pytest.mark.parametrize(
    ("domains", "asked", "complaint"),
    [
        (("day", "night"), "dya", "--in-domain 'dya': the stores are of day, night"),
        (("day", "day"), "day", "give one of a shifted domain, too"),
        (("day", None), "day", "has no attribute 'domain'"),
    ],
)
def test_an_in_domain_that_does_not_fit_is_refused_before_scoring(
    tmp_path, run, monkeypatch, domains, asked, complaint
):
    monkeypatch.setattr(Scorer, "run", lambda *_: pytest.fail("scored"))
    stores = [gaussian_store(tmp_path / f"{number}.zarr", domain=name) for number, name in enumerate(domains)]
    status, _, errors = run("score", *stores, "--in-domain", asked)
    assert status == 2
    assert complaint in errors


def test_the_same_call_gives_the_same_numbers_on_a_cpu(tmp_path, run):
    store = gaussian_store(tmp_path / "a.zarr")
    for name in ("one.json", "two.json"):
        run("score", store, "--draws", 3, "--seed", 5, "--device", "cpu", "--json", tmp_path / name)
    assert (tmp_path / "one.json").read_text(encoding="utf-8") == (tmp_path / "two.json").read_text(encoding="utf-8")


def test_members_and_draws_are_taken(tmp_path, run):
    store = gaussian_store(tmp_path / "a.zarr")
    run("score", store, "--members", "3,1", "--draws", 2, "--json", tmp_path / "out.json")
    (file,) = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["scores"]
    assert [draw["M"] for draw in file["draws"]] == [1, 1, 3, 3]


def test_each_file_can_have_its_own_plan(tmp_path, run):
    stores = [gaussian_store(tmp_path / "a.zarr"), gaussian_store(tmp_path / "b.zarr", group=[0, 0, 1, 1])]
    run("score", *stores, "--plan", "disjoint", "--plan", "prefix", "--members", "2", "--json", tmp_path / "out.json")
    first, second = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["scores"]
    assert (first["pool"]["plan"], second["pool"]["plan"]) == ("disjoint", "prefix")
    assert [draw["members"] for draw in second["draws"]] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("options", [["--depth"], []])
def test_depth_has_its_own_metrics_where_the_store_or_the_caller_says_so(tmp_path, run, options):
    quantity = None if options else "depth"
    store = gaussian_store(tmp_path / "a.zarr", quantity=quantity)
    report = tmp_path / "page"
    assert run("score", store, *options, "--json", tmp_path / "out.json", "--report", report)[0] == 0
    (file,) = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["scores"]
    arrays = open_store(store).arrays
    mean, target = (arrays[name].read((slice(None),) * len(arrays[name].shape)) for name in ("mean", "target"))
    expected = oracles.depth_errors(mean.mean(0), target)
    assert {name: file["draws"][-1]["metrics"][name] for name in expected} == pytest.approx(expected)
    assert "iRMSE (1/km)" in (report / "score.html").read_text(encoding="utf-8")


def test_other_predictions_have_no_metrics_of_depth(tmp_path, run):
    run("score", gaussian_store(tmp_path / "a.zarr"), "--json", tmp_path / "out.json")
    (file,) = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["scores"]
    assert "abs_rel" not in file["summary"]["1"]


@pytest.mark.parametrize(
    ("make", "unit", "what"), [(gaussian_store, "mm", "in mm"), (categorical_store, None, "of classes")]
)
def test_metrics_of_depth_need_metres(tmp_path, run, make, unit, what):
    status, _, errors = run("score", make(tmp_path / "a.zarr", unit=unit), "--depth")
    assert status == 2
    assert f"need depths in metres; these are {what}" in errors
    assert len(errors.strip().splitlines()) == 1


def test_report_is_written_where_asked(tmp_path, run):
    status, _, errors = run("score", gaussian_store(tmp_path / "a.zarr"), "--report", tmp_path / "page")
    assert status == 0
    assert "page" in errors
    assert "<html" in (tmp_path / "page" / "score.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--members", "1,x"], "--members '1,x'"),
        (["--members", "8"], "M = 8 is impossible: the pool has 4 members"),
        (["--plan", "best"], "plan 'best' is unknown"),
        (["--convention", "mine"], "convention 'mine' is unknown"),
        (["--uncertainty", "entropy"], "uncertainty 'entropy'"),
        (["--device", "tpu"], "--device 'tpu' is unknown"),
        (["--draws", "0"], "at least one draw"),
        (["--draws", "many"], "Invalid value for"),
        (["--nonsense"], "No such option"),
        (["--ignore-index", "0"], "--ignore-index is for classes"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(tmp_path, run, options, message):
    status, _, errors = run("score", gaussian_store(tmp_path / "a.zarr"), *options)
    assert status == 2
    assert message in errors
    assert len(errors.strip().splitlines()) == 1


def test_a_missing_file_is_one_line_and_status_2(tmp_path, run):
    status, output, errors = run("score", tmp_path / "nowhere.zarr")
    assert (status, output) == (2, "")
    assert "nowhere.zarr" in errors
    assert len(errors.strip().splitlines()) == 1


def test_all_files_are_opened_before_any_is_scored(tmp_path, run):
    status, output, _ = run("score", gaussian_store(tmp_path / "a.zarr"), tmp_path / "nowhere.zarr")
    assert (status, output) == (2, "")


def test_what_is_finished_survives_a_broken_file(tmp_path, run):
    good, bad = gaussian_store(tmp_path / "good.zarr"), tmp_path / "bad.zarr"
    write_store(bad, kind="gaussian", mean=np.full((2, 9), np.nan), variance=np.ones((2, 9)), target=np.ones(9))
    status, output, errors = run("score", good, bad, "--json", tmp_path / "out.json")
    assert status == 2
    assert "bad.zarr" in errors
    assert "good" in output
    assert len(json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["scores"]) == 1


def test_an_interruption_keeps_what_is_finished(tmp_path, run, monkeypatch):
    stores = [gaussian_store(tmp_path / "a.zarr"), gaussian_store(tmp_path / "b.zarr")]
    original = Scorer.run

    def interrupted(self, *progress):
        if self.store.path.name == "b.zarr":
            raise KeyboardInterrupt
        return original(self, *progress)

    monkeypatch.setattr(Scorer, "run", interrupted)
    status, _, errors = run("score", *stores, "--json", tmp_path / "out.json")
    assert status == 130
    assert "interrupted" in errors
    assert len(json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["scores"]) == 1


@pytest.mark.parametrize(
    ("option", "name", "message"), [("--json", "folder", "is a folder"), ("--report", "file", "is a file")]
)
def test_places_that_cannot_be_written_are_refused_at_once(tmp_path, run, option, name, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    status, output, errors = run("score", gaussian_store(tmp_path / "a.zarr"), option, tmp_path / name)
    assert (status, output) == (2, "")
    assert message in errors


def test_the_installed_command_runs():
    result = subprocess.run([sys.executable, "-m", "epibench", "--version"], capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stdout.startswith("epibench ")


def test_help_names_every_option(run):
    status, output, _ = run("score", "--help")
    assert status == 0
    for option in ("--members", "--draws", "--plan", "--seed", "--convention", "--skip-invalid", "--json", "--report"):
        assert option in output


def test_the_version_needs_no_torch():
    lines = [
        "import sys",
        "sys.argv = ['epibench', '--version']",
        "from epibench.cli import main",
        "try: main()",
        "finally: assert 'torch' not in sys.modules",
    ]
    assert subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True).returncode == 0


@pytest.mark.parametrize("name", ["a.zarr", "a.zarr/results.json"])
def test_results_never_replace_predictions(tmp_path, run, name):
    store = gaussian_store(tmp_path / "a.zarr")
    status, _, errors = run("score", store, "--json", tmp_path / name)
    assert status == 2
    assert "would be written into the predictions" in errors


def test_results_are_written_before_the_table_is_printed(tmp_path):
    store = gaussian_store(tmp_path / "a.zarr")
    command = [sys.executable, "-m", "epibench", "score", str(store), "--json", str(tmp_path / "out.json")]
    with open("/dev/full", "w") as full:
        assert subprocess.run(command, stdout=full, stderr=subprocess.PIPE).returncode != 0
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["version"] == 2
