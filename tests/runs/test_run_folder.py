"""The folder of a run: claimed by one recipe, everything in it whole."""

import errno
import fcntl
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from silent_reporter import Silent, run_in
from small_dense_recipe import small_dense
from small_recipes import small

from epibench.errors import InputError
from epibench.files import with_checksum
from epibench.recipes import read_recipe
from epibench.recipes.toy import ToyRecipe
from epibench.runs.checkpoints import Checkpoints
from epibench.runs.folder import RunFolder, holder, is_locked, locked, share_work
from epibench.runs.train_job import TrainJob
from epibench.training.state import TrainingState


def test_a_new_folder_gets_the_recipe(tmp_path: Path) -> None:
    RunFolder(tmp_path / "a" / "run").claim(small())
    assert read_recipe(tmp_path / "a" / "run") == small()


def test_the_same_recipe_may_come_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.claim(small())
    before = (folder.path / "recipe.json").read_bytes()
    folder.claim(small())
    assert (folder.path / "recipe.json").read_bytes() == before


def test_a_folder_that_cannot_be_written_is_refused_though_its_recipe_is_the_same(tmp_path: Path, monkeypatch) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.claim(small())
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder.path)
    with pytest.raises(InputError, match=r"^--out \S+/run: cannot be written to; give another --out$"):
        folder.claim(small())


def claimed(tmp_path: Path, recipe: ToyRecipe) -> RunFolder:
    """A folder with what may be networks of SGLD."""
    folder = RunFolder(tmp_path / "run")
    folder.claim(recipe)
    (folder.members / "sgld").mkdir(parents=True)
    (folder.members / "sgld" / "0000-0001.000008.safetensors").touch()
    return folder


def test_a_recipe_of_a_version_that_lacked_a_setting_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.claim(small_dense(tmp_path))
    content = json.loads(folder.recipe_file.read_text())
    del content["network"]["dropout_places"], content["checksum"]
    folder.recipe_file.write_text(with_checksum(json.dumps(content)))
    words = r"recipe\.json: network\.dropout_places is missing, another version wrote it\. Fix: give another --out\.$"
    with pytest.raises(InputError, match=words):
        folder.claim(small_dense(tmp_path))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("seed=1", r"seed \(0 there, 1 now\)"),
        ("sgld.learning_rate=0.5", r"sgld\.learning_rate \(0\.01 there, 0\.5 now\)"),
        ("sgld.num_epochs=48", r"sgld\.num_epochs \(24 there, 48 now\)"),
        ("hidden=[5]", r"hidden \(\[10, 10\] there, \[5\] now\)"),
        ("data.seed=7", r"data\.seed \(0 there, 7 now\)"),
    ],
)
def test_settings_that_need_other_training_are_refused_and_named(setting: str, words: str, tmp_path: Path) -> None:
    folder = claimed(tmp_path, small())
    before = folder.recipe_file.read_bytes()
    with pytest.raises(InputError, match=f"another recipe: {words}; give another --out"):
        folder.claim(small("toy-regression", setting))
    assert folder.recipe_file.read_bytes() == before


@pytest.mark.parametrize("setting", ["draws=2", "members=[1]", "ensemble.learning_rate=0.5", 'methods=["map"]'])
def test_other_settings_are_taken_over(setting: str, tmp_path: Path) -> None:
    folder, wanted = claimed(tmp_path, small()), small("toy-regression", setting)
    folder.claim(wanted)
    assert read_recipe(folder.path) == wanted


def test_another_problem_is_refused(tmp_path: Path) -> None:
    folder = claimed(tmp_path, small())
    with pytest.raises(InputError, match="problem"):
        folder.claim(small("toy-classification"))


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="not empty"):
        RunFolder(tmp_path).claim(small())
    with pytest.raises(InputError, match="is a file"):
        RunFolder(tmp_path / "thesis.tex").claim(small())


def test_a_broken_recipe_in_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(InputError, match=r"recipe.json.*another --out"):
        RunFolder(tmp_path).claim(small())


def make_files(folder: Path, keep: tuple[int, ...] = (2, 4, 6, 8), fingerprint: str = "mine") -> Checkpoints:
    return Checkpoints(folder / "members" / "sgld", (0, 1), fingerprint, keep)


def test_a_state_of_stacked_networks_comes_back_as_it_was(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    state = TrainingState(7, torch.randn(2, 3), {"momentum": torch.randn(2, 3)})
    files.save_state(state, 1.5, "cpu")
    found, seconds = files.load_state("cpu", torch.device("cpu")) or (None, 0.0)
    assert found is not None
    assert (found.step, seconds) == (7, 1.5)
    assert torch.equal(found.parameters, state.parameters)
    assert torch.equal(found.rule["momentum"], state.rule["momentum"])


def test_snapshots_of_stacked_networks_have_files_with_their_numbers_and_epochs(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    files.save_state(TrainingState(1, torch.zeros(2, 3), {}), 0.1, "cpu")
    for epoch in files.keep:
        files.save_weights(epoch, {"parameters": torch.full((2, 3), epoch)}, (), 0.2)
    names = [f"0000-0001.{epoch:06d}.safetensors" for epoch in files.keep]
    assert sorted(path.name for path in files.folder.iterdir()) == names
    assert torch.equal(files.load_weights(2)["parameters"], torch.full((2, 3), 6))


def test_a_chain_without_one_of_its_snapshots_is_not_finished(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    for epoch in files.keep:
        files.save_weights(epoch, {"parameters": torch.ones(2, 3)}, (), 0.2)
    assert files.finished() is not None
    files.weights(1).unlink()
    assert files.finished() is None


def test_a_failure_is_known_again(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    assert files.failure() is None
    files.save_failure("sgld: network 0: the loss became NaN")
    assert files.failure() == "sgld: network 0: the loss became NaN"


def test_a_failure_under_other_settings_is_none(tmp_path: Path) -> None:
    make_files(tmp_path, fingerprint="other").save_failure("sgld: network 0: the loss became NaN")
    assert make_files(tmp_path).failure() is None


def fingerprint_of(recipe: ToyRecipe, method: str = "ensemble", networks: tuple[int, ...] = (0, 1)) -> str:
    return TrainJob(recipe, method, networks, Path("members"), "cpu").files.fingerprint


def test_the_fingerprint_knows_options_data_seed_prior_method_and_networks(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.linspace(-3, 3, 20), y=np.zeros(20))
    settings = ("seed=1", "ensemble.learning_rate=0.1", f"data.path={tmp_path / 'd.npz'}", "prior_scale=2")
    all_of_them = [
        fingerprint_of(small()),
        *(fingerprint_of(small("toy-regression", setting)) for setting in settings),
        fingerprint_of(small(), "map"),
        fingerprint_of(small(), networks=(0,)),
    ]
    np.savez(tmp_path / "d.npz", x=np.linspace(-3, 3, 20), y=np.ones(20))
    all_of_them.append(fingerprint_of(small("toy-regression", settings[2])))
    assert len(set(all_of_them)) == len(all_of_them)
    assert fingerprint_of(small()) == all_of_them[0]


def test_the_fingerprint_does_not_know_how_draws_are_made() -> None:
    changed = small("toy-regression", "draws=2", "members=[1]", "test_points=5", "ensemble.diverged=drop")
    assert fingerprint_of(changed) == fingerprint_of(small())


# Locks


def test_a_lock_is_one_process_s_and_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "members" / "0000.lock"
    with locked(path) as mine:
        assert mine
        assert is_locked(path)
        assert holder(path).startswith(f"process {os.getpid()} on ")
        with locked(path) as again:
            assert not again
        assert is_locked(path)
    assert not path.exists()
    assert not is_locked(path)


def test_a_lock_file_that_was_left_behind_is_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "0000.lock"
    path.write_bytes(b"\xff\xfe")
    assert not is_locked(path)
    with locked(path) as mine:
        assert mine


def test_a_lock_that_cannot_be_taken_is_named(tmp_path: Path, monkeypatch) -> None:
    def broken(file: object, operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", broken)
    with (
        pytest.raises(InputError, match=r"0000\.lock: cannot be locked \(Input/output error\)"),
        locked(tmp_path / "0000.lock"),
    ):
        pass


def test_a_file_system_without_locks_is_used_without(tmp_path: Path, monkeypatch) -> None:
    def unsupported(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    path, done = tmp_path / "0000.lock", list[str]()
    monkeypatch.setattr(fcntl, "flock", unsupported)
    with locked(path) as mine, locked(path) as other:  # both may work: the first complete file wins
        assert mine
        assert other
    assert not path.exists()
    share_work(["item"], done.__contains__, lambda item: path, done.extend, Silent())
    assert done == ["item"]


def test_work_that_another_process_has_is_waited_for(tmp_path: Path, monkeypatch) -> None:
    path, reporter, done, worked = tmp_path / "0000.lock", Silent(), set[str](), list[str]()
    held = locked(path)
    held.__enter__()

    def sleep(seconds: float) -> None:  # meanwhile the other process does it
        done.add("held")
        held.__exit__(None, None, None)

    def work(items: list[str]) -> None:
        worked.extend(items)
        done.update(items)

    monkeypatch.setattr("epibench.runs.folder.time.sleep", sleep)
    places = {"held": path, "free": tmp_path / "0001.lock"}
    share_work(["held", "free"], lambda item: item in done, lambda item: places[item], work, reporter)
    assert worked == ["free"]
    assert [line.partition(" process")[0] for line in reporter.said] == ["sharing the work with", "waiting for"]


# What was trained is kept


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scenes")


IMAGES = ('methods=["ensemble"]', "ensemble.num_members=2", "members=[1]", "draws=2")


@pytest.fixture(scope="module")
def images(cache: Path, tmp_path_factory) -> Path:
    """A finished run, which goes on with one setting after another."""
    path = tmp_path_factory.mktemp("runs") / "images"
    run_in(path, small_dense(cache, *IMAGES))
    return path


WILD = '{"kind": "street", "domain": "wild", "num_images": 3, "seed": 2, "size": [32, 64]}'
CLEAN = '{"kind": "street", "num_images": 5, "seed": 1, "size": [32, 64]}'


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (("members=[1,2]",), ["evaluate ensemble on clean", "evaluate ensemble on wild"]),
        (("draws=1",), ["evaluate ensemble on clean", "evaluate ensemble on wild"]),
        (("evaluation.precision=bf16-mixed",), ["evaluate ensemble on clean", "evaluate ensemble on wild"]),
        ((f'data.domains={{"clean": {CLEAN}, "more": {WILD}}}',), ["evaluate ensemble on more"]),
        (
            ('methods=["ensemble","map"]',),
            ["train map", "evaluate map on clean", "evaluate map on wild"],
        ),
        (("ensemble.num_members=3",), ["train ensemble", "evaluate ensemble on clean", "evaluate ensemble on wild"]),
    ],
    ids=["M", "draws", "precision", "domain", "method", "networks"],
)
def test_other_evaluation_settings_do_only_what_is_missing(settings, steps, images: Path, cache: Path) -> None:
    run_in(images, small_dense(cache, *IMAGES))
    weights = {path: path.stat().st_mtime_ns for path in images.glob("members/*/*.safetensors")}
    reporter = Silent()
    results = run_in(images, small_dense(cache, *IMAGES, *settings), reporter=reporter)
    assert results["failed"] == {}
    done = [step for step in reporter.steps if not step.startswith(("measure", "draw"))]
    assert done == steps
    assert {path: path.stat().st_mtime_ns for path in weights} == weights


def test_results_do_not_depend_on_what_the_folder_held_before(images: Path, cache: Path, tmp_path: Path) -> None:
    recipe = small_dense(cache, *IMAGES, "members=[1,2]", "draws=1")
    ours, fresh = run_in(images, recipe), run_in(tmp_path / "fresh", recipe)
    assert all(ours[part] == fresh[part] for part in ("summary", "draws", "curves", "pictures", "methods"))


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("seed=1", "seed"),
        ("ensemble.learning_rate=1e-4", r"ensemble\.learning_rate"),
        ("training.crop=[8,8]", r"training\.crop"),
        ("data.train.seed=9", r"data\.train\.seed"),
    ],
)
def test_training_settings_of_networks_that_are_there_are_refused(setting, key, images: Path, cache: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in images.rglob("*")}
    with pytest.raises(InputError, match=rf"holds a run of another recipe: {key} \(.* there, .* now\)"):
        run_in(images, small_dense(cache, *IMAGES, setting))
    assert {path: path.stat().st_mtime_ns for path in images.rglob("*")} == before


@pytest.mark.parametrize(
    ("first", "between", "setting"),
    [
        (("laplace",), None, "ensemble.learning_rate=0.02"),  # which were trained for others
        (("ensemble",), ("map",), "ensemble.learning_rate=0.02"),  # which were left out once
    ],
    ids=["sources", "left out"],
)
@pytest.mark.parametrize("asked", [("ensemble",), ("map",)])
def test_settings_of_any_networks_that_are_there_are_refused(first, between, setting, asked, tmp_path: Path) -> None:
    def recipe(methods: tuple[str, ...], *settings: str) -> ToyRecipe:
        return small("toy-regression", f"methods={json.dumps(methods)}", "laplace.num_networks=2", *settings)

    path = tmp_path / "run"
    run_in(path, recipe(first))
    if between is not None:
        run_in(path, recipe(between))
    with pytest.raises(
        InputError, match=r"holds a run of another recipe: ensemble\.learning_rate \(.* there, 0\.02 now"
    ):
        run_in(path, recipe(asked, setting))
    assert run_in(path, recipe(("ensemble",)))["failed"] == {}  # what is there can be gone on with


def test_toy_networks_are_kept_when_draws_change(tmp_path: Path) -> None:
    run_in(tmp_path / "run", small("toy-regression", 'methods=["ensemble"]'))
    reporter = Silent()
    changed = small("toy-regression", 'methods=["ensemble","map"]', "draws=2", "members=[1,8]", "test_points=10")
    ours = run_in(tmp_path / "run", changed, reporter=reporter)
    assert reporter.trained == ["train map"]
    fresh = run_in(tmp_path / "fresh", changed)
    assert ours["summary"] == fresh["summary"]


# Permissions


def test_files_have_the_permissions_that_the_user_gives_to_new_ones(tmp_path: Path, cache: Path) -> None:
    before = os.umask(0o027)
    try:
        run_in(tmp_path / "toy", small("toy-regression", 'methods=["sgld"]'))
        settings = ('methods=["map"]', "evaluation.store=true", "map.num_restarts=1", "training.log=csv")
        run_in(tmp_path / "images", small_dense(cache, *settings))
    finally:
        os.umask(before)
    wrong = {}
    for path in (*tmp_path.glob("*"), *tmp_path.glob("*/**/*")):
        mode = path.stat().st_mode & 0o777
        if mode != (0o750 if path.is_dir() else 0o640):
            wrong[path] = oct(mode)
    assert wrong == {}
    assert (tmp_path / "images" / "predictions").exists()
