"""The data set: the same scene for everybody, whoever asks and in whatever order, drawn or from a cache."""

import copy
import hashlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader

from epibench.data.batch import stack
from epibench.street import Domain, StreetDataset, make_domain, render_frame


def fingerprint(frame):
    names = ("image", "labels", "depth", "sparse_depth", "target_depth")
    return hashlib.sha256(b"".join(np.ascontiguousarray(getattr(frame, name)).tobytes() for name in names)).hexdigest()


def test_the_same_scene_in_another_process():
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from test_street_dataset import fingerprint;"
        "from epibench.street import make_domain, render_frame;"
        "print(fingerprint(render_frame(make_domain('wild'), 7, 11, (64, 128))))"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    render_frame(make_domain("wild"), 7, 3, (64, 128))  # what was drawn before does not matter
    assert fingerprint(render_frame(make_domain("wild"), 7, 11, (64, 128))) == there


def test_known_numbers():
    """A change of these numbers changes everybody's data: then VERSION must grow."""
    known = {
        "clean": ([2587, 1269, 273, 2133], 112.61, 13.36, 13.83),
        "wild": ([2929, 1371, 471, 1776], 125.71, 12.96, 10.03),
    }
    for domain, (counts, mean, sparse, target) in known.items():
        frame = render_frame(make_domain(domain), 0, 0, (64, 128))
        # Road, building, vegetation, sky. Rounding may differ between machines, in a pixel or two.
        assert np.bincount(frame.labels.ravel(), minlength=19)[[0, 2, 8, 10]] == pytest.approx(counts, abs=3)
        assert frame.image.mean() == pytest.approx(mean, abs=0.1)
        assert frame.sparse_depth[frame.sparse_depth > 0].mean() == pytest.approx(sparse, abs=0.1)
        assert frame.target_depth[frame.target_depth > 0].mean() == pytest.approx(target, abs=0.1)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with one core
@pytest.mark.parametrize("task", ["depth", "segmentation"])
def test_a_loader_with_workers_yields_batches(task):
    dataset = StreetDataset(task, "wild", length=4, seed=5, size=(64, 128))
    loaded = list(DataLoader(dataset, batch_size=2, num_workers=2, collate_fn=stack))
    assert len(loaded) == 2
    for number, batch in enumerate(loaded):
        for position in range(2):
            sample = dataset[2 * number + position]
            assert (batch.target[position] == sample.target).all()
            assert (batch.valid[position] == sample.valid).all()
            for name, values in sample.inputs.items():
                assert (batch.inputs[name][position] == values).all()
    batch = loaded[0].to("cpu")
    assert batch.inputs["image"].shape == (2, 3, 64, 128)
    assert batch.target.shape == batch.valid.shape == (2, 64, 128)
    assert set(batch.inputs) == ({"image", "sparse_depth"} if task == "depth" else {"image"})


def test_a_cache_gives_the_same_frames_and_mends_itself(tmp_path):
    settings = {"length": 2, "seed": 1, "size": (64, 128), "first": 3}
    plain, cached = StreetDataset("depth", **settings), StreetDataset("depth", cache=tmp_path, **settings)
    assert fingerprint(cached.frame(1)) == fingerprint(plain.frame(1))
    (file,) = tmp_path.rglob("*.npz")
    assert fingerprint(cached.frame(1)) == fingerprint(plain.frame(1))
    assert cached.frame(1).camera == plain.frame(1).camera
    file.write_bytes(file.read_bytes()[:1000])
    assert fingerprint(cached.frame(1)) == fingerprint(plain.frame(1))
    StreetDataset("depth", "noise", cache=tmp_path, **settings).frame(1)
    assert len(list(tmp_path.rglob("*.npz"))) == len(list(tmp_path.iterdir())) == 2


def damaged(frame, **changes):
    names = ("image", "labels", "depth", "sparse_depth", "target_depth")
    return {name: getattr(frame, name) for name in names} | {"pose": np.zeros(5)} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": np.zeros((3, 4), np.uint8)},
        {"labels": np.zeros((64, 128), np.int64)},
        {"depth": np.array(["far"])},
        {"pose": np.zeros(4)},
        {"pose": np.full(5, np.nan)},
        {"image": np.array([None])},
    ],
)
def test_a_cached_file_of_wrong_arrays_is_made_anew(changes, tmp_path):
    cached = StreetDataset("depth", length=1, size=(64, 128), cache=str(tmp_path))
    frame = cached.frame(0)
    (file,) = tmp_path.rglob("*.npz")
    np.savez(file, **damaged(frame, **changes))
    assert fingerprint(cached.frame(0)) == fingerprint(frame)
    assert cached.frame(0).camera == frame.camera


def test_a_cached_file_with_any_damage_is_made_anew(tmp_path):
    cached = StreetDataset("depth", length=1, size=(64, 128), cache=tmp_path)
    frame = cached.frame(0)
    (file,) = tmp_path.rglob("*.npz")
    whole = file.read_bytes()
    rng = np.random.default_rng(0)
    # Most of what describes the contents stands at the begin and at the end.
    for place in [*rng.integers(0, 200, 30), *rng.integers(len(whole) - 600, len(whole), 60)]:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        assert fingerprint(cached.frame(0)) == fingerprint(frame)
    assert [path.name for path in file.parent.iterdir()] == ["00000000.npz"]


def test_a_cache_leaves_nothing_behind_when_writing_fails(tmp_path, monkeypatch):
    cached = StreetDataset("depth", length=1, size=(64, 128), cache=tmp_path)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.warns(UserWarning, match=r"street cache .*: cannot be written to \(No space left on device\)"):
        frame = cached.frame(0)
    assert fingerprint(frame) == fingerprint(render_frame(Domain(), 0, 0, (64, 128)))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_cache_that_cannot_be_written_is_said_once_and_scenes_are_drawn(tmp_path):
    (tmp_path / "cache").write_text("a file")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for task in ("depth", "segmentation"):
            dataset = StreetDataset(task, length=2, size=(64, 128), cache=tmp_path / "cache")
            assert dataset.missing() == []
            assert fingerprint(dataset.frame(1)) == fingerprint(render_frame(Domain(), 0, 1, (64, 128)))
            assert copy.deepcopy(dataset).frame(0).image.shape == (64, 128, 3)
    assert len(said) == 1
    assert f"street cache {tmp_path / 'cache'}: cannot be written to (a file is in its path)" in str(said[0].message)


def test_frames_of_a_cache_that_can_only_be_read_are_read(tmp_path, monkeypatch):
    settings = {"length": 2, "size": (64, 128), "cache": tmp_path}
    frame = StreetDataset("depth", **settings).frame(0)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write whatever the permissions are
    with pytest.warns(UserWarning, match="cannot be written to .Permission denied."):
        dataset = StreetDataset("depth", **settings)
    monkeypatch.setattr("epibench.street.frames.render_frame", None)
    assert fingerprint(dataset.frame(0)) == fingerprint(frame)
    assert dataset.missing() == []


def test_numbers_of_numpy_are_numbers(tmp_path):
    plain = StreetDataset("depth", Domain(haze=0.5), 2, 3, (64, 128), cache=tmp_path)
    other = StreetDataset(
        "depth", Domain(haze=np.float32(0.5)), np.int64(2), np.int64(3), np.array([64, 128]), cache=tmp_path
    )
    assert fingerprint(other.frame(np.int64(1))) == fingerprint(plain.frame(1))
    assert len(list(tmp_path.iterdir())) == 1


def test_what_is_no_number_of_a_scene_is_refused():
    dataset = StreetDataset("depth", length=2, size=(64, 128))
    for index in (2, -1):
        with pytest.raises(IndexError, match=f"street has scenes 0 to 1, not {index}"):
            dataset[index]
    for index in (slice(0, 1), 0.5):
        with pytest.raises(TypeError, match="integer"):
            dataset[index]
