"""What training leaves on disk comes back as it was; what is damaged or foreign is refused with its name."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from epibench.errors import InputError
from epibench.networks.depth_completion import DepthCompletion
from epibench.runs.checkpoints import Checkpoints, save_tensors
from epibench.training.network import FlatParameters
from epibench.training.state import LogRow, TrainingState

LOG = (LogRow(2, 1.25, 1e-3), LogRow(4, 0.1 + 0.2, 1e-4))
REMEDY = "remove it, and it is made anew$"

MACHINE = "cpu (32-true)"


def make_files(folder: Path, keep: tuple[int, ...] = (3,), fingerprint: str = "mine", network: int = 7) -> Checkpoints:
    return Checkpoints(folder / "members" / "ensemble", (network,), fingerprint, keep)


def make_network(seed: int = 0) -> DepthCompletion:
    torch.manual_seed(seed)
    return DepthCompletion(8, (1, 1, 1, 1), init_std=None)


def make_state() -> TrainingState:
    network = make_network()
    flat = FlatParameters(network)
    rule = {"first": torch.randn_like(flat.values), "second": torch.rand_like(flat.values)}
    return TrainingState(4, flat.values, rule, dict(network.named_buffers()), LOG)


def assert_same(one, other) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_weights_load_with_plain_safetensors_into_a_fresh_network(tmp_path: Path) -> None:
    files, weights = make_files(tmp_path), make_network().state_dict()
    files.save_weights(3, weights, LOG, 1.5)
    fresh = make_network(1)
    fresh.load_state_dict(load_file(files.weights(0)))
    assert_same(fresh.state_dict(), weights)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_weights_that_are_views_of_flat_parameters_come_back(layout: torch.memory_format, tmp_path: Path) -> None:
    files, network = make_files(tmp_path), make_network().to(memory_format=layout)
    FlatParameters(network)
    files.save_weights(3, network.state_dict(), LOG, 1.5)
    assert_same(files.load_weights(0), make_network().state_dict())


def test_the_unfinished_state_goes_with_the_last_snapshot(tmp_path: Path) -> None:
    files = make_files(tmp_path, (2, 5))
    files.save_state(make_state(), 1.0, MACHINE)
    files.save_weights(2, make_network().state_dict(), LOG, 1.5)
    assert files.unfinished.exists()
    files.save_weights(5, make_network().state_dict(), LOG, 1.5)
    assert not files.unfinished.exists()


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        save_tensors(tmp_path / "x.safetensors", {"a": torch.zeros(2)}, {"fingerprint": object()})
    assert list(tmp_path.iterdir()) == []


def write_state(files: Checkpoints, tensors: dict[str, Tensor], **notes: object) -> None:
    given = {"fingerprint": files.fingerprint, "step": 4, "seconds": 1.0, "log": [], **notes}
    save_tensors(files.unfinished, tensors, given)


def test_a_state_without_parameters_is_refused(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    write_state(files, {"other": torch.zeros(3)})
    with pytest.raises(InputError, match=f"it holds no parameters; {REMEDY}"):
        files.load_state(MACHINE)


def test_the_log_is_a_table_that_reads_back(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    files.write_log(LOG)
    with files.path("csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert tuple(LogRow(int(row["step"]), float(row["loss"]), float(row["rate"])) for row in rows) == LOG


def test_training_that_began_elsewhere_is_not_gone_on_with(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    files.save_state(make_state(), 1.0, "cuda (bf16-mixed)")
    with pytest.raises(InputError, match=r"0007\.unfinished\.safetensors: .*began on cuda \(bf16-mixed\), not on cpu"):
        files.load_state(MACHINE)
