"""Logs of trainings: a table, TensorBoard, W&B and MLflow; none has a step twice, also after a kill."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_dense_recipe import small_dense

from epibench.errors import InputError
from epibench.runs import training_log
from epibench.runs.checkpoints import Checkpoints
from epibench.runs.checks import check_logging
from epibench.runs.train_job import TrainJob
from epibench.runs.trainers import train_job
from epibench.runs.training_log import TrainingLogger
from epibench.training.state import LogRow

LOG = (LogRow(2, 1.25, 1e-3), LogRow(4, 0.5, 1e-4))
STEPS = [2, 3, 4, 6]  # two epochs of three steps, logged every two steps and after each epoch
KINDS = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}

# Dies when it is about to save after step 4: curves have steps that the saved state, of step 2, has not.
KILLED = """
import os, signal, sys
from pathlib import Path
from small_dense_recipe import small_dense
from epibench.runs.checkpoints import Checkpoints
from epibench.runs.train_job import TrainJob
from epibench.runs.trainers import train_job
from epibench.training import network
from epibench.training.state import Pacer
network.LOG_EVERY = 2
Pacer.due = lambda pacer: True
save = Checkpoints.save_state
def save_or_die(files, state, *more):
    if state.step == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    save(files, state, *more)
Checkpoints.save_state = save_or_die
cache, folder, kind = sys.argv[1:]
recipe = small_dense(Path(cache), f"training.log={kind}")
train_job(TrainJob(recipe, "ensemble", (1,), Path(folder) / "members", "cpu"), lambda content: None)
"""


def make_files(folder: Path, fingerprint: str = "mine") -> Checkpoints:
    return Checkpoints(folder / "members" / "ensemble", (7,), fingerprint, (3,))


@pytest.fixture
def alone(tmp_path: Path, monkeypatch) -> None:
    """No service and no home but those of the test."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


def in_tensorboard(folder: Path, network: str) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "members" / "ensemble" / f"{network}-tensorboard"))
    events.Reload()
    return {name: [(one.step, one.value) for one in events.Scalars(name)] for name in ("loss", "rate")}


def wandb_records(folder: Path) -> list[Any]:
    """What all offline folders of a run hold, in their order."""
    from wandb.proto import wandb_internal_pb2

    records = []
    for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        for data in pieces(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            records.append(record)
    return records


def pieces(content: bytes, block: int = 32 * 1024) -> Iterator[bytes]:
    """The records of a log in LevelDB's format: blocks of pieces, each with a checksum, its length and its kind."""
    position, data = 7, b""  # behind W&B's own header
    while position + 7 <= len(content):
        if block - position % block < 7:
            position += block - position % block
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        if kind == 0:
            return
        data += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last of several
            yield data
            data = b""


def in_wandb(folder: Path, network: str) -> dict[str, list[tuple[int, float]]]:
    runs = [record.run for record in wandb_records(folder) if record.WhichOneof("record_type") == "run"]
    assert {run.run_id for run in runs} == {runs[0].run_id}, "the same run goes on"
    assert {(run.display_name, run.run_group, run.project) for run in runs} == {
        (f"ensemble {network}", folder.name, "epibench")
    }
    found: dict[str, list[tuple[int, float]]] = {"loss": [], "rate": []}
    for record in wandb_records(folder):
        if record.WhichOneof("record_type") == "history":
            row = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
            for name in found:
                found[name].append((int(row["trainer/global_step"]), float(row[name])))
    return found


def in_mlflow(folder: Path, network: str) -> dict[str, list[tuple[int, float]]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(folder.name)
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == (f"ensemble {network}", "FINISHED")
    assert run.data.params["seed"] == "0"
    return {
        name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
        for name in ("loss", "rate")
    }


READ: dict[str, Callable[[Path, str], dict[str, list[tuple[int, float]]]]] = {
    "tensorboard": in_tensorboard,
    "wandb": in_wandb,
    "mlflow": in_mlflow,
}


def test_the_table_is_written_whole_each_time(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    log = TrainingLogger("csv", files)
    for end in (1, 2):
        log.write(LOG[:end])
    log.close()
    assert len(files.path("csv").read_text().splitlines()) == 3


def test_no_log_writes_nothing(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    log = TrainingLogger("none", files)
    log.add(LOG[0])
    log.write(LOG)
    log.close()
    assert not files.folder.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_package_is_asked_for_before_training(kind: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, KINDS[kind], None)
    wanted = rf"^training\.log={kind} needs the package {kind}: pip install {kind}, or take csv$"
    with pytest.raises(InputError, match=wanted):
        TrainingLogger(kind, make_files(tmp_path))
    with pytest.raises(InputError, match=wanted):
        check_logging(small_dense(tmp_path, f"training.log={kind}"))
    assert not (tmp_path / "members").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_decides_no_network(kind: str, tmp_path: Path) -> None:
    plain, logged = small_dense(tmp_path), small_dense(tmp_path, f"training.log={kind}")
    assert plain.training_settings("ensemble") == logged.training_settings("ensemble")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_arrive_and_a_log_that_is_opened_again_has_none_twice(kind: str, tmp_path: Path, alone: None) -> None:
    pytest.importorskip(KINDS[kind], reason=f"{kind} is not installed")
    folder = tmp_path / "my run"
    for rows, new in ((LOG[:1], LOG), (LOG[:1], LOG)):  # the second time step 4 was logged, but not saved
        log = TrainingLogger(kind, make_files(folder), rows, {"seed": 0})
        for row in new:
            log.add(row)
        log.close()
        time.sleep(1.1)  # W&B names its folders by the second
    found = READ[kind](folder, "0007")
    assert found["loss"] == [(2, 1.25), (4, 0.5)]
    assert found["rate"] == [(2, pytest.approx(1e-3)), (4, pytest.approx(1e-4))]


@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_a_training_with_other_settings_is_another_run(kind: str, tmp_path: Path, alone: None) -> None:
    pytest.importorskip(KINDS[kind], reason=f"{kind} is not installed")
    ids = []
    for fingerprint in ("mine", "other"):
        log = TrainingLogger(kind, make_files(tmp_path / "run", fingerprint))
        log.add(LOG[0])
        log.close()
        ids.append(log.run_id)
    assert None not in ids
    assert ids[0] != ids[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("eager")
def test_no_step_is_logged_twice_after_a_kill(kind: str, tmp_path: Path, alone: None) -> None:
    pytest.importorskip(KINDS[kind], reason=f"{kind} is not installed")
    folder = tmp_path / "run"
    paths = [str(Path(__file__).parent), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "cache"), str(folder), kind],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    job = TrainJob(small_dense(tmp_path / "cache", f"training.log={kind}"), "ensemble", (1,), folder / "members", "cpu")
    assert job.files.step() == 2
    train_job(job, lambda content: None)
    rows = job.files.finished()
    assert rows is not None
    found = READ[kind](folder, "0001")
    assert [step for step, _ in found["loss"]] == STEPS
    assert [loss for _, loss in found["loss"]] == pytest.approx([row.loss for row in rows.log()], rel=1e-6)


def test_a_service_that_fails_later_does_not_end_the_training(tmp_path: Path, monkeypatch) -> None:
    class Broken:
        def log_metrics(self, metrics: object, step: int) -> None:
            raise ConnectionError("the server is gone\nfor good")

    monkeypatch.setitem(training_log.OPENED, "mlflow", lambda log, settings: (Broken(), 0))
    monkeypatch.setattr(training_log, "check_log", lambda kind: None)
    log = TrainingLogger("mlflow", make_files(tmp_path))
    with pytest.warns(UserWarning, match=r"ensemble 0007: the server is gone; the rest of this training"):
        log.add(LOG[0])
    log.add(LOG[1])
    log.close()


def test_a_service_that_cannot_be_reached_is_refused_before_training(tmp_path: Path, alone: None, monkeypatch) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    with pytest.raises(InputError, match=r"^training\.log=mlflow: .*; check MLFLOW_TRACKING_URI, or take csv$"):
        TrainingLogger("mlflow", make_files(tmp_path))


def test_an_online_run_goes_on_from_the_step_that_the_service_has(tmp_path: Path, alone: None, monkeypatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    begun: list[dict[str, Any]] = []
    logged: list[dict[str, float]] = []

    class Online:
        """A run as W&B gives it back, with step 2."""

        def __init__(self, **options: Any) -> None:
            begun.append(options)
            self.id, self.resumed, self.summary = options["id"], len(begun) > 1, {"trainer/global_step": 2}

        def define_metric(self, *names: str, **options: Any) -> None: ...

        def log(self, metrics: dict[str, float]) -> None:
            logged.append(metrics)

        def finish(self, exit_code: int) -> None: ...

    monkeypatch.setattr(wandb, "init", Online)
    for rows in ((), LOG[:1]):
        logged.clear()
        log = TrainingLogger("wandb", make_files(tmp_path / "run"), rows)
        log.add(LOG[1])
        log.close()
    assert begun[0]["id"] == begun[1]["id"]
    assert [row["trainer/global_step"] for row in logged] == [4]


def test_a_service_that_asks_for_a_login_is_refused_before_training(tmp_path: Path, alone: None, monkeypatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")

    def refuse(**options: Any) -> None:
        raise wandb.errors.UsageError("No API key configured.\nUse `wandb login`.")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(InputError, match=r"^training\.log=wandb: No API key configured; log in with wandb login, set "):
        TrainingLogger("wandb", make_files(tmp_path))


class Noting:
    """A logger of one's own: where it was opened, and what it was told."""

    def __init__(self, save_dir: Path, name: str, version: str) -> None:
        self.place = f"{save_dir.name}/{name}/{version}"
        MADE.append(self)
        self.told: list[Any] = []

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        self.told.append(params)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.told.append((step, metrics["loss"]))

    def finalize(self, status: str) -> None:
        self.told.append(status)


MADE: list[Noting] = []


def test_a_named_logger_gets_every_step_once_and_a_resumed_training_another_version(tmp_path: Path) -> None:
    MADE.clear()
    for rows, new in (((), LOG[:1]), (LOG[:1], LOG[1:])):
        log = TrainingLogger(f"{__name__}:Noting", make_files(tmp_path), rows, {"seed": 0})
        for row in new:
            log.add(row)
        log.close()
    assert [made.place for made in MADE] == ["logs/ensemble/0007", "logs/ensemble/0007-from-2"]
    assert [made.told for made in MADE] == [[{"seed": 0}, (2, 1.25), "success"], [{"seed": 0}, (4, 0.5), "success"]]


def test_a_logger_of_lightning_is_one_by_its_name(tmp_path: Path) -> None:
    log = TrainingLogger("lightning.pytorch.loggers:CSVLogger", make_files(tmp_path), (), {"seed": 0})
    log.add(LOG[0])
    log.close()
    rows = (tmp_path / "logs" / "ensemble" / "0007" / "metrics.csv").read_text().splitlines()
    assert rows == ["loss,rate,step", "1.25,0.001,2"]


@pytest.mark.parametrize("kind", ["tensorboard", "wandb", "mlflow"])
def test_without_lightning_a_logger_is_refused_in_one_line(kind: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(training_log, "find_spec", lambda name: None if name == "lightning" else name)
    wanted = rf"^training\.log={kind} needs the package lightning: pip install lightning, or take csv$"
    with pytest.raises(InputError, match=wanted):
        check_logging(small_dense(tmp_path, f"training.log={kind}"))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no_such_package:Logger", "module 'no_such_package' is not found"),
        ("pathlib:PurePath.name", "give a logger as package.module:name"),
        ("fractions:Fraction", r"unexpected keyword.*give one that takes save_dir, name and version"),
    ],
)
def test_a_named_logger_that_cannot_be_made_is_refused_before_training(kind: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        check_logging(small_dense(tmp_path, f"training.log={kind}"))


def test_a_log_that_is_none_of_ours_nor_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"training\.log.*'csv'.*package\.module:name"):
        small_dense(tmp_path, "training.log=cvs")
