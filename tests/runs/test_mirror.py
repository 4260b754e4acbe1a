"""A run folder on object storage: one machine trains, another evaluates, with the same results."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fault_injection import before_each_step, killed_at, short_waits_for_storage, stop_at_file, written_files
from silent_reporter import read_results, run_in
from small_dense_recipe import small_dense

import epibench
from epibench.cli import main
from epibench.errors import InputError
from epibench.runs.evaluate_job import EvaluateJob
from epibench.runs.train_job import TrainJob

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'epibench[cloud]'")
SAME = ("summary", "draws", "curves", "pictures", "methods", "training", "domains", "failed", "recipe")
NEEDED = "a server to store on is not installed: pip install 'moto[server]' s3fs"
WEIGHTS = "members/ensemble/0000.safetensors"
STATE = "members/ensemble/0000.unfinished.safetensors"
TABLE = "members/ensemble/0000.csv"  # written once the state is at the URL
FAILING = ("training.epoch_steps=1", "ensemble.num_epochs=1", "ensemble.optimiser=sgd", "ensemble.learning_rate=1e6")


@pytest.fixture(autouse=True)
def alone(monkeypatch) -> None:
    """Leave out settings of AWS on this machine, and wait briefly for storage."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    short_waits_for_storage(monkeypatch.setattr)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start a server of S3's protocol, and return its address."""
    pytest.importorskip("s3fs", reason=NEEDED)
    pytest.importorskip("moto.server", reason=NEEDED)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert process.poll() is None, "the server has ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.wait()


@pytest.fixture
def bucket(server: str, monkeypatch) -> str:
    """Return the URL of an empty bucket."""
    own = {"AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for name, value in {**own, "AWS_DEFAULT_REGION": "us-east-1", "FSSPEC_S3_ENDPOINT_URL": server}.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{time.monotonic_ns()}"
    fsspec.filesystem("s3").mkdir(name)
    return f"s3://{name}"


@pytest.fixture
def on_machine(tmp_path: Path, monkeypatch, capsys):
    """Run `epibench …` as on a machine that shares the storage alone with others."""

    def call(machine: str, *arguments: object) -> tuple[int, str]:
        monkeypatch.setenv("EPIBENCH_CACHE", str(tmp_path / machine))
        monkeypatch.setattr(sys, "argv", ["epibench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, capsys.readouterr().err

    return call


@pytest.fixture
def recipe(tmp_path: Path) -> Any:
    few = ('methods=["ensemble"]', "ensemble.num_members=2", "data.domains.wild.num_images=1", "draws=2")
    made = small_dense(tmp_path / "scenes", *few)
    (tmp_path / "recipe.json").write_text(made.model_dump_json())
    return made


def results_of(folder: Path) -> dict[str, Any]:
    written = read_results(folder)
    return {name: written[name] for name in SAME}


def folder_of(machine: Path) -> Path:
    """Return the folder in which a machine mirrors a run."""
    (folder,) = (machine / "mirrors").iterdir()
    return folder


def test_one_machine_trains_another_evaluates_a_third_reports(
    bucket: str, recipe: Any, on_machine, tmp_path: Path
) -> None:
    url = f"{bucket}/some/run"
    status, said = on_machine("one", "train", tmp_path / "recipe.json", "--out", url, "--device", "cpu", "--jobs", 2)
    assert status == 0, said
    assert url in said
    shutil.rmtree(tmp_path / "one")
    status, said = on_machine("two", "evaluate", url, "--device", "cpu")
    assert status == 0, said
    status, said = on_machine("three", "report", url)
    assert status == 0, said
    folder = folder_of(tmp_path / "three")
    run_in(tmp_path / "local", recipe)
    assert results_of(folder) == results_of(tmp_path / "local")
    assert not (folder / "members").exists()  # a page needs no weights
    pictures = {path.name: path.read_bytes() for path in (tmp_path / "local/pictures").iterdir()}
    assert {path.name: path.read_bytes() for path in (folder / "pictures").iterdir()} == pictures
    assert (folder / "report.html").read_text().count("data:image/jpeg") == 2
    there = [name.partition("/some/run/")[2] for name in fsspec.filesystem("s3").find(url)]
    assert {"recipe.json", "results.json", "report.html", WEIGHTS} <= set(there)
    assert not [name for name in there if name.endswith((".lock", ".unfinished.safetensors")) or "/." in name]


def test_another_machine_continues_from_the_state(bucket: str, recipe: Any, on_machine, tmp_path, eager) -> None:
    command = ("run", tmp_path / "recipe.json", "--out", f"{bucket}/run", "--device", "cpu", "--jobs", 1)
    with killed_at(TABLE):
        on_machine("one", *command)
    assert fsspec.filesystem("s3").exists(f"{bucket}/run/{STATE}")
    with written_files() as names:
        status, said = on_machine("two", *command)
    assert status == 0, said
    assert names.count("0000.csv") == 2  # after step 4 and at the end
    assert names.count("0001.csv") == 3  # also after step 2
    run_in(tmp_path / "local", recipe)
    assert results_of(folder_of(tmp_path / "two")) == results_of(tmp_path / "local")


def test_of_two_states_the_further_one_is_kept(recipe: Any, on_machine, tmp_path: Path, eager) -> None:
    storage = tmp_path / "storage"
    train = ("train", tmp_path / "recipe.json", "--out", f"file://{storage}", "--device", "cpu", "--jobs", 1)
    train = (*train, "--only", "ensemble:0")
    with killed_at(TABLE):
        on_machine("one", *train)
    begun = (storage / STATE).read_bytes()
    with killed_at(TABLE):
        on_machine("two", *train)
    further = (storage / STATE).read_bytes()
    assert further != begun
    with killed_at("recipe.json"):  # one has fetched the state of two
        on_machine("one", *train)
    assert (folder_of(tmp_path / "one") / STATE).read_bytes() == further
    (storage / STATE).write_bytes(begun)
    with written_files() as names:
        assert on_machine("two", *train)[0] == 0
    assert Path(STATE).name not in names  # neither fetched nor saved: the state after step 4 is the last one
    assert names.count("0000.csv") == 1
    assert (storage / WEIGHTS).exists()
    assert not (storage / STATE).exists()


def test_of_trained_weights_the_first_wins_and_the_second_machine_takes_them(
    bucket: str, recipe: Any, on_machine, tmp_path: Path, monkeypatch
) -> None:
    train = ("train", tmp_path / "recipe.json", "--device", "cpu", "--only", "ensemble:0")
    assert on_machine("one", *train, "--out", f"{bucket}/one")[0] == 0
    first, storage = (folder_of(tmp_path / "one") / WEIGHTS).read_bytes(), fsspec.filesystem("s3")
    put = lambda: storage.pipe_file(f"{bucket}/two/{WEIGHTS}", first)  # noqa: E731
    stop_at_file(monkeypatch.setattr, WEIGHTS, when="before", stop=put)
    assert on_machine("two", *train, "--out", f"{bucket}/two")[0] == 0
    assert storage.cat_file(f"{bucket}/two/{WEIGHTS}") == first
    assert (folder_of(tmp_path / "two") / WEIGHTS).read_bytes() == first


@contextmanager
def unreachable(part: str, times: int = 10**9) -> Iterator[None]:
    """Let storage refuse files whose path has a part, a number of times."""
    local, left = type(fsspec.filesystem("file")), times
    pipe_file = local.pipe_file

    def fail(storage: Any, path: str, *more: Any, **options: Any) -> Any:
        nonlocal left
        if part in path and left > 0:
            left -= 1
            raise OSError(110, "Connection timed out")
        return pipe_file(storage, path, *more, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "pipe_file", fail)
        yield


REFUSED = r"members/ensemble/.*: cannot be written \(Connection timed out\); it is kept in .*, and tried again later"


def test_weights_that_storage_refuses_are_kept_and_written_later(recipe: Any, on_machine, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    train = ("train", tmp_path / "recipe.json", "--out", f"file://{storage}", "--device", "cpu", "--jobs", 1)
    train = (*train, "--only", "ensemble:0")
    with unreachable("members/"), pytest.warns(UserWarning, match=REFUSED):
        status, said = on_machine("one", *train)
    assert status == 1
    assert "all is kept in" in said.splitlines()[-1]
    assert said.endswith("and the same command writes it\n")
    weights = folder_of(tmp_path / "one") / WEIGHTS
    before = weights.stat().st_mtime_ns
    assert not (storage / WEIGHTS).exists()
    assert on_machine("one", *train)[0] == 0
    assert weights.stat().st_mtime_ns == before
    assert (storage / WEIGHTS).read_bytes() == weights.read_bytes()


def test_jobs_say_what_they_read(recipe: Any, tmp_path: Path) -> None:
    own = ("0001.safetensors", "0001.000020.safetensors", "0001.unfinished.safetensors", "0001.posterior.safetensors")
    others = ("members/ensemble/0000.safetensors", "members/map/0001.safetensors")
    stretches = [f"evaluation/ensemble/{domain}-0f.stretches/000000.safetensors" for domain in ("clean", "wild")]
    every = [*(f"members/ensemble/{name}" for name in own), *others, *stretches]

    def left_out(job: TrainJob | EvaluateJob) -> list[str]:
        return [name for name in every if not name.startswith(job.reads)]

    assert left_out(TrainJob(recipe, "ensemble", (1,), tmp_path / "members", "cpu")) == [*others, *stretches]
    assert left_out(TrainJob(recipe, "ensemble", (0, 1), tmp_path / "members", "cpu")) == [others[1], *stretches]
    job = EvaluateJob(recipe, tmp_path, "ensemble", "clean", (0,), 8, "cpu")
    assert left_out(job) == [others[1], stretches[1]]


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_run_that_fails_writes_its_weights_before_its_error(comes_back: bool, on_machine, tmp_path: Path) -> None:
    recipe = small_dense(tmp_path / "scenes", 'methods=["ensemble"]', *FAILING)
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    command = ("run", tmp_path / "recipe.json", "--out", f"file://{tmp_path}/storage", "--device", "cpu", "--jobs", 1)
    with unreachable(WEIGHTS, 2 if comes_back else 10**9), pytest.warns(UserWarning, match=REFUSED):
        status, said = on_machine("one", *command)
    assert status == 2
    assert said.splitlines()[-1].startswith("epibench: ensemble on clean: ")
    assert ("all is kept in" in said.splitlines()[-2]) is not comes_back
    assert (tmp_path / "storage" / WEIGHTS).exists() is comes_back


def test_a_stopped_run_writes_its_state(recipe: Any, on_machine, tmp_path: Path, monkeypatch) -> None:
    before_each_step(lambda step: step == 1 and os.kill(os.getpid(), signal.SIGTERM), monkeypatch.setattr)
    command = ("run", tmp_path / "recipe.json", "--out", f"file://{tmp_path}/storage", "--device", "cpu", "--jobs", 1)
    with unreachable(STATE, 2), pytest.warns(UserWarning, match=REFUSED):
        status, said = on_machine("one", *command)
    assert status == 143
    assert said.splitlines()[-1].startswith("epibench: stopped by SIGTERM")
    assert (tmp_path / "storage" / STATE).read_bytes() == (folder_of(tmp_path / "one") / STATE).read_bytes()


def test_a_url_where_a_folder_is_needed_is_refused(recipe: Any, on_machine, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (epibench.run, epibench.train):
        with pytest.raises(InputError, match=r"^out: cannot be 's3://bucket/run' \(str\)\. Fix: give a local folder, "):
            call(recipe, "s3://bucket/run", device="cpu")
    status, said = on_machine("one", "evaluate", "--model", "onnx:a.onnx", "--on", "a=own:b", "--out", "s3://bucket/a")
    complaint = "epibench: --out: cannot be 's3://bucket/a'. Fix: give a local folder, e.g. 'runs/mine'."
    assert (status, said.strip()) == (2, complaint)
    assert not Path("s3:").exists()


def test_a_recipe_is_checked_against_a_run_at_a_url(recipe: Any, on_machine, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"file://{tmp_path}/storage"
    status, said = on_machine("one", "data", "check", tmp_path / "recipe.json", "--out", url)
    assert status == 0, said
    assert f"{url} is mirrored in " in said
    assert not Path("file:").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nothing://there/run", "nothing://: is unknown to fsspec; give a folder, or file://, s3://"),
        ("s3://no-such-bucket-anywhere/run", "s3://no-such-bucket-anywhere/run: cannot be read ("),
    ],
)
def test_an_unknown_place_is_refused(url: str, message: str, bucket: str, recipe, on_machine, tmp_path) -> None:
    status, said = on_machine("one", "run", tmp_path / "recipe.json", "--out", url, "--device", "cpu")
    assert status == 2
    complaint = said.splitlines()[-1]
    assert complaint.startswith("epibench: ")
    assert message in complaint
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["run", "train"])
def test_a_place_that_cannot_be_written_is_refused_at_once(command: str, recipe, on_machine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    url = f"file://{tmp_path}/file/run"
    status, said = on_machine("one", command, tmp_path / "recipe.json", "--out", url, "--device", "cpu")
    assert status == 2
    assert said.splitlines()[-1] == f"epibench: {url}: cannot be written (Not a directory); give another --out"
    assert not list((tmp_path / "one").rglob("members"))


def test_a_run_at_a_url_is_exported_and_shown(recipe: Any, on_machine, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"file://{tmp_path}/storage"
    assert on_machine("one", "run", tmp_path / "recipe.json", "--out", url, "--device", "cpu")[0] == 0
    status, said = on_machine("two", "export", url, "--csv", tmp_path / "tables")
    assert status == 0, said
    assert (tmp_path / "tables" / "summary.csv").is_file()
    assert not list((tmp_path / "two").rglob("*.safetensors"))  # tables need no weights
    status, said = on_machine("three", "video", url, "--on", "wild", "--frames", 1, "--out", tmp_path / "frames")
    assert status == 0, said
    assert (tmp_path / "frames" / "frame-000000.png").is_file()
    assert not Path("file:").exists()


def test_predictions_at_a_url_are_refused_as_such(on_machine) -> None:
    complaint = "stores are read from local files alone; fetch it, and give the folder or file"
    status, said = on_machine("one", "score", "s3://bucket/a.zarr")
    assert (status, said.strip()) == (2, f"epibench: s3://bucket/a.zarr: {complaint}")


def test_predictions_are_not_stored_there(recipe: Any, on_machine, tmp_path: Path) -> None:
    command = ("run", tmp_path / "recipe.json", "--out", f"file://{tmp_path}/storage", "--device", "cpu")
    status, said = on_machine("one", *command, "--set", "evaluation.store=true")
    assert status == 2
    assert said.splitlines()[-1].startswith("epibench: evaluation.store: predictions are kept in a local folder alone")
