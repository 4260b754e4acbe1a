"""What training leaves on disk comes back as it was; what is damaged or foreign is refused with its name."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from epibench.errors import InputError
from epibench.networks.depth_completion import DepthCompletion
from epibench.runs.checkpoints import Checkpoints, load_tensors, save_tensors
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


def test_weights_come_back(tmp_path: Path) -> None:
    files, weights = make_files(tmp_path), make_network().state_dict()
    files.save_weights(3, weights, LOG, 1.5)
    assert_same(files.load_weights(0), weights)


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


def test_a_finished_network_knows_its_log_and_its_seconds(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    files.save_weights(3, make_network().state_dict(), LOG, 1.5)
    finished = files.finished()
    assert finished.log() == LOG
    assert finished.number("seconds") == 1.5


def test_what_is_not_there_is_not_finished(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    assert files.finished() is None
    assert files.load_state(MACHINE) is None


def test_a_missing_network_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"0007\.safetensors: trained weights are missing; run the same command again"):
        make_files(tmp_path).load_weights(0)


def test_a_chain_is_finished_with_its_last_snapshot(tmp_path: Path) -> None:
    files, weights = make_files(tmp_path, (2, 5)), make_network().state_dict()
    files.save_weights(2, weights, LOG, 1.5)
    assert files.finished() is None
    files.save_weights(5, weights, LOG, 1.5)
    assert files.finished() is not None


def test_every_snapshot_has_a_file_of_its_own(tmp_path: Path) -> None:
    files = make_files(tmp_path, (2, 5))
    for epoch in (2, 5):
        files.save_weights(epoch, make_network(epoch).state_dict(), LOG, 1.5)
    for snapshot, epoch in enumerate((2, 5)):
        assert_same(files.load_weights(snapshot), make_network(epoch).state_dict())


def test_the_unfinished_state_goes_with_the_last_snapshot(tmp_path: Path) -> None:
    files = make_files(tmp_path, (2, 5))
    files.save_state(make_state(), 1.0, MACHINE)
    files.save_weights(2, make_network().state_dict(), LOG, 1.5)
    assert files.unfinished.exists()
    files.save_weights(5, make_network().state_dict(), LOG, 1.5)
    assert not files.unfinished.exists()


def test_a_state_comes_back(tmp_path: Path) -> None:
    files, state = make_files(tmp_path), make_state()
    files.save_state(state, 2.5, MACHINE)
    found, seconds = files.load_state(MACHINE)
    assert seconds == 2.5
    assert found.step == 4
    assert found.log == LOG
    assert torch.equal(found.parameters, state.parameters)
    assert_same(found.rule, state.rule)
    assert_same(found.buffers, state.buffers)


def test_a_state_replaces_the_one_before(tmp_path: Path) -> None:
    files, state = make_files(tmp_path), make_state()
    files.save_state(state, 1.0, MACHINE)
    longer = (*LOG, LogRow(6, 0.1, 1e-4))
    files.save_state(TrainingState(6, state.parameters, state.rule, state.buffers, longer), 2.0, MACHINE)
    assert files.load_state(MACHINE)[0].step == 6


def test_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    files.save_state(make_state(), 1.0, MACHINE)
    files.save_weights(3, make_network().state_dict(), LOG, 1.5)
    files.write_log(LOG)
    assert sorted(path.name for path in files.folder.iterdir()) == ["0007.csv", "0007.safetensors"]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        save_tensors(tmp_path / "x.safetensors", {"a": torch.zeros(2)}, {"fingerprint": object()})
    assert list(tmp_path.iterdir()) == []


def test_networks_do_not_meet(tmp_path: Path) -> None:
    one, other = make_files(tmp_path, network=1), make_files(tmp_path, network=2)
    one.save_weights(3, make_network(1).state_dict(), LOG, 1.0)
    assert other.finished() is None


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def overwrite(path: Path) -> None:
    path.write_bytes(b"\xff" * 1000)


def break_notes(path: Path) -> None:
    save_file(load_file(path), path, metadata={"notes": "{not json"})


DAMAGES = {"truncated": truncate, "empty": empty, "overwritten": overwrite, "notes": break_notes}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_weights_are_refused_with_their_name_and_the_remedy(damage: str, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    files.save_weights(3, make_network().state_dict(), LOG, 1.5)
    DAMAGES[damage](files.weights(0))
    with pytest.raises(InputError, match=rf"0007\.safetensors: not readable \(.*\); {REMEDY}"):
        files.finished()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_refused_with_its_name_and_the_remedy(damage: str, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    files.save_state(make_state(), 1.0, MACHINE)
    DAMAGES[damage](files.unfinished)
    with pytest.raises(InputError, match=rf"0007\.unfinished\.safetensors: not readable \(.*\); {REMEDY}"):
        files.load_state(MACHINE)


def test_weights_of_other_settings_are_refused(tmp_path: Path) -> None:
    make_files(tmp_path, fingerprint="other").save_weights(3, make_network().state_dict(), LOG, 1.5)
    with pytest.raises(InputError, match=rf"0007\.safetensors: made with other settings or other data.*; {REMEDY}"):
        make_files(tmp_path).load_weights(0)


def test_a_state_of_other_settings_is_refused(tmp_path: Path) -> None:
    make_files(tmp_path, fingerprint="other").save_state(make_state(), 1.0, MACHINE)
    with pytest.raises(InputError, match=rf"unfinished\.safetensors: made with other settings.*; {REMEDY}"):
        make_files(tmp_path).load_state(MACHINE)


def test_weights_of_somebody_else_are_refused(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    files.folder.mkdir(parents=True)
    save_file(make_network().state_dict(), files.weights(0))  # no notes at all
    with pytest.raises(InputError, match=REMEDY):
        files.load_weights(0)


def write_state(files: Checkpoints, tensors: dict[str, Tensor], **notes: object) -> None:
    given = {"fingerprint": files.fingerprint, "step": 4, "seconds": 1.0, "log": [], **notes}
    save_tensors(files.unfinished, tensors, given)


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ({"step": -1}, "its 'step' is -1"),
        ({"step": None}, "its 'step' is None"),
        ({"seconds": "long"}, "its 'seconds' is 'long'"),
        ({"log": [[1, 2]]}, "its log cannot be read"),
        ({"log": [["a", 2, 3]]}, "its log cannot be read"),
        ({"log": 5}, "its log cannot be read"),
        ({"log": [[2, 0.5, 0.1]]}, "its log ends at step 2, not at 4"),
    ],
)
def test_notes_that_make_no_sense_are_refused(notes: dict[str, object], words: str, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    write_state(files, {"parameters": torch.zeros(3)}, **notes)
    with pytest.raises(InputError, match=f"unfinished.safetensors: {words}; {REMEDY}"):
        files.load_state(MACHINE)


def test_a_state_without_parameters_is_refused(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    write_state(files, {"other": torch.zeros(3)})
    with pytest.raises(InputError, match=f"it holds no parameters; {REMEDY}"):
        files.load_state(MACHINE)


def test_notes_are_plain_json(tmp_path: Path) -> None:
    save_tensors(tmp_path / "x.safetensors", {"a": torch.zeros(2)}, {"fingerprint": "s", "log": [[1, 0.1, 2e-5]]})
    found = load_tensors(tmp_path / "x.safetensors", "s")
    assert found.notes == json.loads(json.dumps({"fingerprint": "s", "log": [[1, 0.1, 2e-5]]}))


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
