"""A run folder on object storage: what one machine trains, another evaluates, with the same results."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from silent_reporter import run_in
from small_dense_recipe import small_dense

from by_name import by_name
from epibench import api, files, mirror, stopping
from epibench.cli import main
from epibench.errors import InputError
from epibench.recipes import Recipe
from epibench.runs.checkpoints import Checkpoints, save_tensors
from epibench.runs.evaluate_job import EvaluateJob
from epibench.runs.train_job import TrainJob

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'epibench[cloud]'")
SAME = ("summary", "draws", "curves", "pictures", "methods", "training", "domains", "failed", "recipe")
NEEDED = "a server to store on is not installed: pip install 'moto[server]' s3fs"


@pytest.fixture(autouse=True)
def alone(monkeypatch) -> Iterator[None]:
    """No mirror stays open, no setting of AWS of this machine counts, and nobody waits long."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(mirror, "WAITS", (0.01,))
    yield
    mirror.forget_mirror()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a real server of S3's protocol, started for these tests."""
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
    """The URL of an empty bucket."""
    own = {"AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for name, value in {**own, "AWS_DEFAULT_REGION": "us-east-1", "FSSPEC_S3_ENDPOINT_URL": server}.items():
        monkeypatch.setenv(name, value)
    import s3fs

    mirror._file_system.cache_clear()
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"bucket-{time.monotonic_ns()}"
    mirror._file_system("s3").mkdir(name)
    return f"s3://{name}"


@pytest.fixture
def on_machine(tmp_path: Path, monkeypatch, capsys):
    """Run `epibench …` as on a machine of its own: it shares nothing with others but the storage."""

    def call(machine: str, *arguments: object) -> tuple[int, str]:
        monkeypatch.setenv("EPIBENCH_CACHE", str(tmp_path / machine))
        monkeypatch.setattr(sys, "argv", ["epibench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, capsys.readouterr().err

    return call


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    few = ('methods=["ensemble"]', "ensemble.num_members=2", "data.domains.wild.num_images=1", "draws=2")
    made = small_dense(tmp_path / "scenes", *few)
    (tmp_path / "recipe.json").write_text(made.model_dump_json())
    return made


def results_of(folder: Path) -> dict[str, Any]:
    written = by_name(json.loads((folder / "results.json").read_text()))
    return {name: written[name] for name in SAME}


def test_one_machine_trains_another_evaluates_a_third_reports(
    bucket: str, recipe: Recipe, on_machine, tmp_path: Path
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
    (folder,) = (tmp_path / "three/mirrors").iterdir()
    run_in(tmp_path / "local", recipe)
    assert results_of(folder) == results_of(tmp_path / "local")
    assert not (folder / "members").exists()  # a page needs no weights
    pictures = {path.name: path.read_bytes() for path in (tmp_path / "local/pictures").iterdir()}
    assert {path.name: path.read_bytes() for path in (folder / "pictures").iterdir()} == pictures
    assert (folder / "report.html").read_text().count("data:image/jpeg") == 2
    there = mirror.Mirror(folder, url).objects()
    assert {"recipe.json", "results.json", "report.html", "members/ensemble/0000.safetensors"} <= set(there)
    assert not [name for name in there if name.endswith((".lock", mirror.STATE)) or "/." in name]


def test_another_machine_goes_on_from_the_state(bucket: str, recipe: Recipe, on_machine, tmp_path, eager) -> None:
    save, url, saved = Checkpoints.save_state, f"{bucket}/run", list[int]()
    command = ("run", tmp_path / "recipe.json", "--out", url, "--device", "cpu", "--jobs", 1)

    class Killed(BaseException):
        pass

    def die(checkpoints: Checkpoints, state: Any, *more: Any) -> None:
        save(checkpoints, state, *more)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save_state", die)
        with pytest.raises(Killed):
            on_machine("one", *command)
    load = Checkpoints.load_state

    def note(checkpoints: Checkpoints, *more: Any) -> Any:
        loaded = load(checkpoints, *more)
        saved.append(0 if loaded is None else loaded[0].step)
        return loaded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "load_state", note)
        status, said = on_machine("two", *command)
    assert status == 0, said
    assert saved == [2, 0]  # the first network went on at its second step
    run_in(tmp_path / "local", recipe)
    (folder,) = (tmp_path / "two/mirrors").iterdir()
    assert results_of(folder) == results_of(tmp_path / "local")


@pytest.fixture
def opened(tmp_path: Path):
    """Opens mirrors of one folder, which stands for storage, as machines of their own."""
    url = f"file://{tmp_path}/storage"

    def make(machine: str) -> Path:
        return mirror.open_mirror(url, tmp_path / machine)

    return make


def test_of_trained_weights_the_first_wins_and_the_second_takes_them_over(bucket: str, tmp_path: Path) -> None:
    folders = [mirror.open_mirror(f"{bucket}/run", tmp_path / name) for name in ("one", "two")]
    for content, folder in zip((b"first", b"second"), folders, strict=True):
        os.environ[mirror.VARIABLE] = f"{folder}\n{bucket}/run"
        files.write_bytes(folder / "members/map/0000.safetensors", content)
        files.write_bytes(folder / "results.json", content)
    assert (folders[1] / "members/map/0000.safetensors").read_bytes() == b"first"
    again = mirror.open_mirror(f"{bucket}/run", tmp_path / "three")
    assert (again / "members/map/0000.safetensors").read_bytes() == b"first"
    assert (again / "results.json").read_bytes() == b"second"


def test_the_further_state_stays(opened, tmp_path: Path) -> None:
    def state(folder: Path, step: int) -> Path:
        path = folder / "members/map/0000.unfinished.safetensors"
        save_tensors(path, {}, {"step": step})
        return path

    state(opened("one"), 10)
    path = state(opened("two"), 30)
    mirror.forget_mirror()
    state(tmp_path / "one/mirrors" / path.parents[2].name, 20)
    further = opened("one") / "members/map/0000.unfinished.safetensors"
    assert mirror.progress_here(further) == 30
    mirror.forget_mirror()
    state(further.parents[2], 40)
    assert mirror.progress_here(opened("one") / "members/map/0000.unfinished.safetensors") == 40


def test_what_cannot_be_written_is_kept_and_written_later(opened, tmp_path: Path, monkeypatch) -> None:
    folder = opened("one")

    def fails(storage: Any, name: str, *more: Any, **options: Any) -> None:
        raise OSError(110, "Connection timed out")

    with monkeypatch.context() as patch:
        patch.setattr(type(mirror.current().storage), "pipe_file", fails)
        with pytest.warns(
            UserWarning, match=r"0000\.safetensors: cannot be written \(Connection timed out\); it is kept"
        ):
            files.write_bytes(folder / "members/map/0000.safetensors", b"weights")
        with pytest.raises(OSError, match=r"cannot be written .* all is kept in .* the same command writes it"):
            mirror.close_mirror()
    assert (folder / "members/map/0000.safetensors").read_bytes() == b"weights"
    mirror.close_mirror()
    assert (tmp_path / "storage/members/map/0000.safetensors").read_bytes() == b"weights"


def test_jobs_say_what_they_read(recipe: Recipe, tmp_path: Path) -> None:
    own = ("0001.safetensors", "0001.000020.safetensors", "0001.unfinished.safetensors", "0001.posterior.safetensors")
    others = ("members/ensemble/0000.safetensors", "members/map/0001.safetensors")
    stretches = [f"evaluation/ensemble/{domain}-0f.stretches/000000.safetensors" for domain in ("clean", "wild")]
    shared = ("recipe.json", "members/class_counts.json", "evaluation/ensemble/wild-0f.json")
    every = [*(f"members/ensemble/{name}" for name in own), *others, *stretches, *shared]

    def left_out(job: TrainJob | EvaluateJob) -> list[str]:
        return [name for name in every if not mirror.is_read(name, job.reads)]

    assert left_out(TrainJob(recipe, "ensemble", (1,), tmp_path / "members", "cpu")) == [*others, *stretches]
    assert left_out(TrainJob(recipe, "ensemble", (0, 1), tmp_path / "members", "cpu")) == [others[1], *stretches]
    job = EvaluateJob(recipe, tmp_path, "ensemble", "clean", (0,), 8, "cpu")
    assert left_out(job) == [others[1], stretches[1]]


@pytest.fixture
def unreachable(monkeypatch):
    """A context in which nothing can be written to the storage."""

    def fails(storage: Any, name: str, *more: Any, **options: Any) -> None:
        raise OSError(110, "Connection timed out")

    @contextmanager
    def away() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(type(mirror._file_system("file")), "pipe_file", fails)
            yield

    return away


def write_unpushed(path: Path, content: bytes) -> None:
    with pytest.warns(UserWarning, match="tried again later"):
        files.write_bytes(path, content)


def test_what_could_not_be_pushed_is_not_overwritten(opened, unreachable, tmp_path: Path) -> None:
    folder = opened("one")
    files.write_bytes(folder / "results.json", b"old")
    with unreachable():
        write_unpushed(folder / "results.json", b"new")
        mirror.fetch_current()
        assert (folder / "results.json").read_bytes() == b"new"
        with pytest.warns(UserWarning, match="all is kept in"):  # the next command begins
            opened("one")
        assert (folder / "results.json").read_bytes() == b"new"
    opened("one")
    assert (tmp_path / "storage/results.json").read_bytes() == b"new"
    files.write_bytes(opened("two") / "results.json", b"newer")
    assert (opened("one") / "results.json").read_bytes() == b"newer"  # it was pushed: no longer kept


def test_a_newer_file_of_another_machine_stays(opened, tmp_path: Path) -> None:
    one = opened("one")
    files.write_bytes(one / "results.json", b"old")
    files.write_bytes(opened("two") / "results.json", b"newer")
    os.environ[mirror.VARIABLE] = f"{one}\nfile://{tmp_path}/storage"
    mirror.close_mirror()
    assert (tmp_path / "storage/results.json").read_bytes() == b"newer"


def test_what_others_have_finished_is_not_pushed_again(opened, unreachable, tmp_path: Path) -> None:
    state, stretch = "members/map/0000.unfinished.safetensors", "evaluation/map/wild-0f.stretches/000000.safetensors"
    unpushed = "members/map/0001.unfinished.safetensors", "evaluation/map/clean-0f.stretches/000000.safetensors"
    one = opened("one")
    for name in (state, stretch):
        files.write_bytes(one / name, b"begun")
    with unreachable():
        for name in unpushed:
            write_unpushed(one / name, b"begun")
    two = opened("two")
    for name in (state, stretch):
        files.remove(two / name)
    finished = ["evaluation/map/clean-0f.json", "members/map/0001.safetensors"]
    for name in finished:
        files.write_bytes(two / name, b"finished")
    os.environ[mirror.VARIABLE] = f"{one}\nfile://{tmp_path}/storage"
    mirror.close_mirror()
    there = [path for path in (tmp_path / "storage").rglob("*") if path.is_file()]
    assert sorted(path.relative_to(tmp_path / "storage").as_posix() for path in there) == finished
    assert mirror.Mirror(one, "").unpushed() == []


def test_of_two_states_the_further_one_is_pushed(opened, unreachable, tmp_path: Path) -> None:
    name = "members/map/0000.unfinished.safetensors"
    for step, other, kept in ((10, 20, 20), (40, 30, 40)):
        with unreachable(), pytest.warns(UserWarning, match="tried again later"):
            save_tensors(opened("one") / name, {}, {"step": step})
        save_tensors(opened("two") / name, {}, {"step": other})
        assert mirror.progress_here(opened("one") / name) == kept
        assert mirror.progress_here(tmp_path / "storage" / name) == kept


@pytest.mark.parametrize(("error", "status"), [(InputError("no such thing"), 2), (stopping.Stopped(), 143)])
def test_a_command_that_fails_pushes_what_it_has(
    error: BaseException, status: int, unreachable, recipe, on_machine, tmp_path: Path, monkeypatch
) -> None:
    def fail(*given: Any) -> None:
        with unreachable():
            write_unpushed(mirror.current().folder / "notes.json", b"{}")
        raise error

    monkeypatch.setattr("epibench.runs.run.train_and_evaluate", fail)
    command = ("run", tmp_path / "recipe.json", "--out", f"file://{tmp_path}/storage", "--device", "cpu")
    found, said = on_machine("one", *command)
    assert found == status
    assert said.splitlines()[-1].startswith(("epibench: no such thing", "epibench: stopped by SIGTERM"))
    assert (tmp_path / "storage/notes.json").read_bytes() == b"{}"


def test_its_error_is_not_hidden(unreachable, recipe, on_machine, tmp_path: Path, monkeypatch) -> None:
    away = ExitStack()

    def fail(*given: Any) -> None:
        away.enter_context(unreachable())
        write_unpushed(mirror.current().folder / "notes.json", b"{}")
        raise InputError("no such thing")

    monkeypatch.setattr("epibench.runs.run.train_and_evaluate", fail)
    command = ("run", tmp_path / "recipe.json", "--out", f"file://{tmp_path}/storage", "--device", "cpu")
    with away:
        status, said = on_machine("one", *command)
    assert status == 2
    assert said.splitlines()[-1] == "epibench: no such thing"
    assert "all is kept in" in said.splitlines()[-2]


def test_a_url_where_a_folder_is_needed_is_refused(recipe: Recipe, on_machine, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (api.run, api.train):
        with pytest.raises(
            InputError,
            match=r"^out: cannot be 's3://bucket/run' .*Fix: give a local folder, .*; a URL is for the command",
        ):
            call(recipe, "s3://bucket/run", device="cpu")
    status, said = on_machine("one", "evaluate", "--model", "onnx:a.onnx", "--on", "a=own:b", "--out", "s3://bucket/a")
    complaint = "epibench: --out: cannot be 's3://bucket/a'. Fix: give a local folder, e.g. 'runs/mine'."
    assert (status, said.strip()) == (2, complaint)
    assert not Path("s3:").exists()


def test_a_recipe_is_checked_against_a_run_at_a_url(recipe: Recipe, on_machine, tmp_path: Path, monkeypatch) -> None:
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
def test_a_place_that_is_not_there_is_refused(
    url: str, message: str, bucket: str, recipe, on_machine, tmp_path
) -> None:
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


def test_a_run_at_a_url_is_exported_and_shown(recipe: Recipe, on_machine, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"file://{tmp_path}/storage"
    assert on_machine("one", "run", tmp_path / "recipe.json", "--out", url, "--device", "cpu")[0] == 0
    status, said = on_machine("two", "export", url, "--csv", tmp_path / "tables")
    assert status == 0, said
    assert (tmp_path / "tables" / "summary.csv").is_file()
    assert not list((tmp_path / "two").rglob("*.safetensors"))  # what tables are made of is enough
    status, said = on_machine("three", "video", url, "--on", "wild", "--frames", 1, "--out", tmp_path / "frames")
    assert status == 0, said
    assert (tmp_path / "frames" / "frame-000000.png").is_file()
    assert not Path("file:").exists()


def test_predictions_at_a_url_are_refused_as_such(on_machine) -> None:
    complaint = "stores are read from local files alone; fetch it, and give the folder or file"
    status, said = on_machine("one", "score", "s3://bucket/a.zarr")
    assert (status, said.strip()) == (2, f"epibench: s3://bucket/a.zarr: {complaint}")


def test_predictions_are_not_stored_there(opened, recipe: Recipe, on_machine, tmp_path: Path) -> None:
    command = ("run", tmp_path / "recipe.json", "--out", f"file://{tmp_path}/storage", "--device", "cpu")
    status, said = on_machine("one", *command, "--set", "evaluation.store=true")
    assert status == 2
    assert said.splitlines()[-1].startswith("epibench: evaluation.store: predictions are kept in a local folder alone")
