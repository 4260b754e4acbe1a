"""Logs of trainings: a table, TensorBoard, W&B and MLflow; none has a step twice, also after a kill."""

from __future__ import annotations

import csv
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fault_injection import killed_at, script_environment
from silent_reporter import Silent
from small_dense_recipe import small_dense

import epibench
from epibench.errors import InputError
from epibench.runs.checkpoints import Checkpoints
from epibench.runs.training_log import LogRow, TrainingLogger

LOG = (LogRow(2, 1.25, 1e-3), LogRow(4, 0.5, 1e-4))
STEPS = [2, 3, 4, 6]  # two epochs of three steps, logged every two steps and after each epoch
KINDS = ("tensorboard", "wandb", "mlflow")
pytestmark = pytest.mark.usefixtures("eager")

# Dies when it is about to save after step 4: curves have steps that the saved state, of step 2, has not.
KILLED = """
import os, signal, sys
from pathlib import Path
import epibench
from fault_injection import save_often, stop_at_file
from small_dense_recipe import small_dense
cache, folder, kind = sys.argv[1:]
save_often()
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
stop_at_file(setattr, "0001.unfinished.safetensors", 2, "before", kill)
recipe = small_dense(Path(cache), f"training.log={kind}")
epibench.train(recipe, folder, only=["ensemble:1"], device="cpu", jobs=1)
"""


def train(tmp_path: Path, kind: str, folder: str = "run", **options: Any) -> Path:
    """Train a network with a log, and return the folder of its method."""
    recipe = small_dense(tmp_path.parent / "cache", f"training.log={kind}")
    epibench.train(recipe, tmp_path / folder, only=["ensemble:1"], device="cpu", jobs=1, **options)
    return tmp_path / folder / "members" / "ensemble"


def table(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return losses and rates over steps in a table."""
    rows = list(csv.DictReader((folder / "0001.csv").read_text().splitlines()))
    return {name: [(int(row["step"]), float(row[name])) for row in rows] for name in ("loss", "rate")}


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> dict[str, list[tuple[int, float]]]:
    """The table of a network, which every log repeats."""
    return table(train(tmp_path_factory.mktemp("plain"), "csv"))


@pytest.fixture
def alone(tmp_path: Path, monkeypatch) -> None:
    """Leave out services and folders of the user."""
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
    """Return the records in all offline folders of a run, in their order."""
    from wandb.proto import wandb_internal_pb2

    records = []
    for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        for data in pieces(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            records.append(record)
    return records


def pieces(content: bytes, block: int = 32 * 1024) -> Iterator[bytes]:
    """Yield records of LevelDB's format: blocks of pieces, each with checksum, length and kind."""
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


def make_files(folder: Path, fingerprint: str = "mine") -> Checkpoints:
    return Checkpoints(folder / "members" / "ensemble", (7,), fingerprint, (3,))


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


def test_the_table_has_every_step_with_loss_and_rate(plain) -> None:
    assert [step for step, _ in plain["loss"]] == STEPS
    assert all(loss > 0 for _, loss in plain["loss"])
    assert plain["rate"] == [(step, 1e-3) for step in STEPS]


def test_no_log_writes_no_table(tmp_path: Path) -> None:
    assert [file.name for file in train(tmp_path, "none").iterdir()] == ["0001.safetensors"]


@pytest.mark.parametrize("missing", ["own package", "lightning"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_package_is_refused_before_training(kind: str, missing: str, tmp_path: Path, monkeypatch) -> None:
    for name in (kind, "sqlalchemy", "lightning"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    package = kind if missing == "own package" else missing
    monkeypatch.setitem(sys.modules, package, None)
    words = rf"^training\.log={kind} needs the package {package}: pip install {package}, or take csv$"
    with pytest.raises(InputError, match=words):
        train(tmp_path, kind)
    assert not (tmp_path / "run").exists()


def test_another_log_trains_no_network_again(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    train(tmp_path, "csv")
    for kind in ("none", "tensorboard"):
        reporter = Silent()
        train(tmp_path, kind, progress=reporter)
        assert reporter.trained == []


@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_a_training_with_other_settings_is_another_run(kind: str, tmp_path: Path, alone: None) -> None:
    pytest.importorskip(kind, reason=f"{kind} is not installed")
    ids = []
    for fingerprint in ("mine", "other"):
        log = TrainingLogger(kind, make_files(tmp_path / "run", fingerprint))
        log.add(LOG[0])
        log.close()
        ids.append(log.run_id)
    assert None not in ids
    assert ids[0] != ids[1]


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_is_logged_twice_after_a_kill(kind: str, plain, tmp_path: Path, alone: None) -> None:
    pytest.importorskip(kind, reason=f"{kind} is not installed")
    folder = tmp_path / "my run"
    command = [sys.executable, "-c", KILLED, str(tmp_path.parent / "cache"), str(folder), kind]
    done = subprocess.run(command, env=script_environment(), capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    reporter = Silent()
    train(tmp_path, kind, "my run", progress=reporter)
    assert reporter.done == {"train ensemble": 2}
    found = READ[kind](folder, "0001")
    for name, points in plain.items():
        assert [step for step, _ in found[name]] == STEPS
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in points], rel=1e-6)


class Broken:
    """A logger whose service fails after the first rows."""

    def __init__(self, save_dir: Path, name: str, version: str) -> None: ...

    def log_hyperparams(self, params: dict[str, Any]) -> None: ...

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        raise ConnectionError("the server is gone\nfor good")

    def finalize(self, status: str) -> None: ...


def test_a_service_that_fails_later_does_not_end_the_training(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"ensemble 0001: the server is gone; the rest of this training") as caught:
        folder = train(tmp_path, f"{__name__}:Broken")
    assert len(caught) == 1
    assert (folder / "0001.safetensors").exists()


def test_an_unreachable_service_is_refused_before_training(tmp_path: Path, alone: None, monkeypatch) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    with pytest.raises(InputError, match=r"^training\.log=mlflow: .*; check MLFLOW_TRACKING_URI, or take csv$"):
        train(tmp_path, "mlflow")


def test_an_online_run_continues_from_the_step_of_the_service(tmp_path: Path, alone: None, monkeypatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    begun: list[dict[str, Any]] = []
    logged: list[dict[str, float]] = []

    class Online:
        """A run of W&B that has step 2."""

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
        train(tmp_path, "wandb")


class Noting:
    """A logger of the user that notes its place and its messages."""

    def __init__(self, save_dir: Path, name: str, version: str) -> None:
        self.place = f"{save_dir.name}/{name}/{version}"
        MADE.append(self)
        self.messages: list[Any] = []

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        self.messages.append(params["seed"])

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.messages.append((step, metrics["loss"]))

    def finalize(self, status: str) -> None:
        self.messages.append(status)


MADE: list[Noting] = []


def test_a_named_logger_gets_every_step_and_a_resumed_training_another_version(plain, tmp_path: Path) -> None:
    MADE.clear()
    with killed_at("0001.unfinished.safetensors"):
        train(tmp_path, f"{__name__}:Noting")
    train(tmp_path, f"{__name__}:Noting")
    assert [made.place for made in MADE] == ["logs/ensemble/0001", "logs/ensemble/0001-from-2"]
    first, *others = plain["loss"]
    assert [made.messages for made in MADE] == [[0, first, "failed"], [0, *others, "success"]]


def test_a_logger_of_lightning_is_used_by_its_name(plain, tmp_path: Path) -> None:
    train(tmp_path, "lightning.pytorch.loggers:CSVLogger")
    file = tmp_path / "run" / "logs" / "ensemble" / "0001" / "metrics.csv"
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [(int(row["step"]), float(row["loss"])) for row in rows] == plain["loss"]
    assert list(rows[0]) == ["loss", "rate", "step"]


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
        train(tmp_path, kind)
    assert not (tmp_path / "run").exists()


def test_an_unknown_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"training\.log.*'csv'.*package\.module:name"):
        small_dense(tmp_path, "training.log=cvs")
