"""Training on two devices (gloo processes on a CPU): its resume, its network beside that of one, its failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from two_devices import HalvedRecipe, make_job

from epibench.runs.trainers import train_job


class Ended:
    """The program after its end: its status, what it printed, and whether a process of it is left."""

    def __init__(self, folder: Path, what: str = ""):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        script = Path(__file__).with_name("two_devices.py")
        process = subprocess.Popen(
            [sys.executable, str(script), str(folder), "2", what],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.printed, self.errors = process.communicate(timeout=240)
        self.status = process.returncode
        self.left = is_left(process.pid)


def is_left(group: int, seconds: float = 20) -> bool:
    """Whether a process of a group stays; Python's own resource tracker ends a moment after the one that it serves."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


def weights_in(folder: Path) -> Mapping[str, Tensor]:
    return make_job(folder, 2).files.load_weights(0)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Tensor]:
    """The network of a training on two devices that nothing stopped."""
    folder = tmp_path_factory.mktemp("together")
    ended = Ended(folder)
    assert ended.status == 0, ended.errors
    return weights_in(folder)


def test_two_devices_train_the_network_that_one_trains_on_both_halves(
    together: Mapping[str, Tensor], tmp_path: Path
) -> None:
    job = make_job(tmp_path, 1, HalvedRecipe)
    train_job(job, lambda message: None)
    alone = job.files.load_weights(0)
    assert together.keys() == alone.keys()
    assert any("running_mean" in name for name in alone)
    for name, expected in alone.items():
        torch.testing.assert_close(together[name], expected, rtol=1e-4, atol=1e-6)


def test_a_training_on_two_devices_that_was_killed_ends_with_the_same_weights(
    together: Mapping[str, Tensor], tmp_path: Path
) -> None:
    killed = Ended(tmp_path, "kill")
    assert killed.status == -signal.SIGKILL
    assert make_job(tmp_path, 2).files.finished() is None
    resumed = Ended(tmp_path)
    assert resumed.printed == "from step 4\n", resumed.errors
    again = weights_in(tmp_path)
    assert together.keys() == again.keys()
    assert all(torch.equal(together[name], again[name]) for name in together)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("fail", "InputError: train/0003.png: is broken or truncated; unpack or download it again"),
        ("die", "JobFailedError: a process that trained a network has died (process 1 terminated with signal SIGKILL"),
    ],
)
def test_a_process_that_fails_ends_all_of_them_with_one_message(what: str, message: str, tmp_path: Path) -> None:
    ended = Ended(tmp_path, what)
    assert ended.status == 0, ended.errors
    first, *others = ended.printed.splitlines()
    assert first == "from step 0"
    assert len(others) == 1
    assert others[0].startswith(message)
    assert not ended.left
    assert ended.errors == ""
