"""Virtual KITTI in the layouts of both versions: centimetres, splits, sparse depth that belongs to its frame."""

import io
import itertools
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from torch.utils.data import DataLoader

from epibench.data.batch import stack
from epibench.data.sets.virtual_kitti import SPLITS, VARIANTS, VirtualKittiSource, sparse_depth
from epibench.errors import InputError

SIZE = (30, 40)
CENTIMETRES = [0, 1, 255, 256, 7999, 8000, 8001, 65535]


def pictures(size=SIZE):
    """An image and depth in centimetres, whose bottom row begins with the values that matter most."""
    rng = np.random.default_rng(0)
    depth = rng.integers(1, 12000, size).astype(np.uint16)
    depth[-1, : len(CENTIMETRES)] = CENTIMETRES
    return rng.integers(0, 256, (*size, 3), np.uint8), depth


def places(root, version, world, variant, number, camera=0):
    if version == "1.3.1":
        return [root / f"vkitti_1.3.1_{kind}" / world / variant / f"{number:05d}.png" for kind in ("rgb", "depthgt")]
    frames = root / f"Scene{world[2:]}" / variant / "frames"
    return [
        frames / kind / f"Camera_{camera}" / f"{kind}_{number:05d}.{ending}"
        for kind, ending in (("rgb", "jpg"), ("depth", "png"))
    ]


def encoded(pixels, ending):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, {"png": "PNG", "jpg": "JPEG"}[ending])
    return stream.getvalue()


WORLDS = sorted((*SPLITS["train"], *SPLITS["val"]))


def make(root, version="1.3.1", worlds=WORLDS, variants=VARIANTS, frames=2):
    """The same picture everywhere."""
    image, depth = pictures()
    contents = encoded(image, "png" if version == "1.3.1" else "jpg"), encoded(depth, "png")
    cameras = range(1 if version == "1.3.1" else 2)
    for world, variant, number, camera in itertools.product(worlds, variants, range(frames), cameras):
        for path, content in zip(places(root, version, world, variant, number, camera), contents, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return root


def virtual_kitti(root, split="train", version="1.3.1", worlds=(), variants=VARIANTS, **options):
    source = VirtualKittiSource(root=str(root), split=split, version=version, **options)
    return source.read(worlds, variants)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def whole_2(tmp_path_factory):
    return make(tmp_path_factory.mktemp("whole_2"), "2", frames=1)


def test_world_0002_is_for_validation(whole):
    train, val = virtual_kitti(whole), virtual_kitti(whole, split="val")
    assert (len(train), len(val)) == (4 * 10 * 2, 10 * 2)
    assert {train.frame_id(index)[:4] for index in range(len(train))} == {"0001", "0006", "0018", "0020"}
    assert {val.frame_id(index)[:4] for index in range(len(val))} == {"0002"}
    assert train.frame_id(0) == "0001/15-deg-left/00000"


def test_worlds_and_variants_are_chosen(whole):
    chosen = virtual_kitti(whole, worlds=["0002", "0020"], variants=["clone", "sunset"])
    ids = [chosen.frame_id(index) for index in range(len(chosen))]
    assert ids[::2] == ["0002/clone/00000", "0002/sunset/00000", "0020/clone/00000", "0020/sunset/00000"]


def test_version_2_has_two_cameras(whole_2):
    train, val = virtual_kitti(whole_2, version="2"), virtual_kitti(whole_2, split="val", version="2")
    assert (len(train), len(val)) == (4 * 10 * 2, 10 * 2)
    assert [val.frame_id(index) for index in (0, 1)] == [f"Scene02/15-deg-left/Camera_{n}/00000" for n in (0, 1)]
    batch = val[1]
    _, depth = pictures()
    assert batch.inputs["image"].shape == (3, *SIZE)  # from JPEG
    kept = np.where(depth <= 8000, depth, 0)
    np.testing.assert_array_equal(batch.target.numpy(), (kept / 100).astype(np.float32))


def test_values_are_centimetres_and_what_is_far_is_invalid(whole):
    batch = virtual_kitti(whole)[0]
    image, _ = pictures()
    np.testing.assert_array_equal(batch.inputs["image"].numpy().transpose(1, 2, 0), image)
    bottom = batch.target[-1, : len(CENTIMETRES)]
    np.testing.assert_array_equal(bottom.numpy(), np.array([0, 0.01, 2.55, 2.56, 79.99, 80, 0, 0], np.float32))
    assert torch.equal(batch.valid, batch.target > 0)
    assert batch.inputs["sparse_depth"].dtype == batch.target.dtype == torch.float32


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_sparse_depth_is_a_share_of_the_valid_pixels(whole, share):
    batch = virtual_kitti(whole, sparse_share=share)[0]
    sparse = batch.inputs["sparse_depth"][0]
    drawn = sparse > 0
    assert drawn.sum() == round(share * int(batch.valid.sum()))
    assert torch.equal(sparse[drawn], batch.target[drawn])


def test_sparse_depth_is_drawn_uniformly():
    depth = torch.ones(20, 30)
    depth[:, :10] = 0
    counts = sum((sparse_depth(depth, 0.05, seed) > 0).double() for seed in range(2000))
    assert counts[:, :10].sum() == 0
    expected, spread = 2000 * 0.05, (2000 * 0.05 * 0.95) ** 0.5
    assert (counts[:, 10:] - expected).abs().max() < 5 * spread


def test_sparse_depth_belongs_to_the_frame(whole):
    dataset = virtual_kitti(whole, split="val")
    alone = virtual_kitti(whole, worlds=["0002"], variants=["fog"])
    index = next(index for index in range(len(dataset)) if dataset.frame_id(index) == alone.frame_id(0))
    expected = dataset[index].inputs["sparse_depth"]
    for other in (dataset, alone, pickle.loads(pickle.dumps(alone))):  # noqa: S301
        index = index if other is dataset else 0
        assert torch.equal(other[index].inputs["sparse_depth"], expected)
    assert not torch.equal(dataset[index + 1].inputs["sparse_depth"], expected)
    assert not torch.equal(virtual_kitti(whole, "val", seed=1)[index].inputs["sparse_depth"], expected)


def test_the_draw_does_not_change_with_versions():
    drawn = sparse_depth(torch.ones(4, 5), 0.2, seed=-3)
    assert drawn.flatten().nonzero().flatten().tolist() == [1, 5, 14, 15]


def test_workers_draw_the_same(whole):
    dataset = virtual_kitti(whole, "val", variants=["clone", "fog"])
    loaded = next(iter(DataLoader(dataset, batch_size=4, num_workers=1, collate_fn=stack)))
    assert torch.equal(loaded.inputs["sparse_depth"], stack(list(dataset)).inputs["sparse_depth"])


def test_the_crop_cuts_and_changes_nothing(whole):
    whole_frame, cut = virtual_kitti(whole)[3], virtual_kitti(whole, crop=(22, 35))[3]
    for name in ("image", "sparse_depth"):
        assert torch.equal(cut.inputs[name], whole_frame.inputs[name][:, 8:, 2:37])
    assert torch.equal(cut.target, whole_frame.target[8:, 2:37])
    assert torch.equal(cut.valid, whole_frame.valid[8:, 2:37])
    assert all(tensor.is_contiguous() for tensor in (*cut.inputs.values(), cut.target, cut.valid))


def test_a_frame_of_sky_has_no_depth(tmp_path):
    make(tmp_path, worlds=["0002"], variants=["clone"], frames=1)
    _, path = places(tmp_path, "1.3.1", "0002", "clone", 0)
    Image.fromarray(np.full(SIZE, 65535, np.uint16)).save(path)
    batch = virtual_kitti(tmp_path, "val", variants=["clone"])[0]
    assert not batch.valid.any()
    assert not batch.inputs["sparse_depth"].any()


@pytest.mark.parametrize("index", [80, -1])
def test_an_index_out_of_range(whole, index):
    dataset = virtual_kitti(whole)
    for ask in (dataset.__getitem__, dataset.frame_id):
        with pytest.raises(IndexError, match=f"Virtual KITTI has frames 0 to 79, not {index}"):
            ask(index)


@pytest.mark.parametrize("version", ["1.3.1", "2"])
@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda image, depth: shutil.rmtree(image.parent), "folder is missing; unpack vkitti_"),
        (lambda image, depth: shutil.rmtree(depth.parent), "folder is missing; unpack vkitti_"),
        (lambda image, depth: depth.unlink(), "what belongs to it is missing in"),
        (lambda image, depth: image.unlink(), "what belongs to it is missing in"),
        (lambda image, depth: [path.unlink() for path in (*image.parent.iterdir(), *depth.parent.iterdir())], "no fra"),
    ],
)
def test_what_is_missing_is_named_at_once(tmp_path, version, harm, message):
    make(tmp_path, version, ["0002"], ["clone"])
    harm(*places(tmp_path, version, "0002", "clone", 1))
    with pytest.raises(InputError) as caught:
        virtual_kitti(tmp_path, "val", version, variants=["clone"])
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def truncate(path):
    path.write_bytes(path.read_bytes()[:60])


@pytest.mark.parametrize(
    ("which", "harm", "message"),
    [
        (0, truncate, "is broken or truncated"),
        (1, truncate, "is broken or truncated"),
        (1, lambda path: Image.new("L", SIZE[::-1]).save(path), "is no 16-bit grey PNG"),
        (1, lambda path: Image.new("I;16", (41, 30)).save(path), "is 30×41, but "),
    ],
)
def test_a_bad_file_is_named_when_it_is_read(tmp_path, which, harm, message):
    make(tmp_path, worlds=["0002"], variants=["clone"])
    path = places(tmp_path, "1.3.1", "0002", "clone", 1)[which]
    harm(path)
    dataset = virtual_kitti(tmp_path, "val", variants=["clone"])
    dataset[0]
    with pytest.raises(InputError) as caught:
        dataset[1]
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_frame_smaller_than_the_crop_is_named(whole):
    with pytest.raises(InputError, match=r"00000\.png: is 30×40, smaller than the crop 352×1216"):
        virtual_kitti(whole, crop=(352, 1216))[0]


@pytest.mark.parametrize(
    "options",
    [
        {"version": "3"},
        {"split": "test"},
        {"sparse_share": 0},
        {"sparse_share": 5},
        {"sparse_share": float("nan")},
        {"crop": (0, 3)},
    ],
)
def test_wrong_use_is_named(whole, options):
    with pytest.raises(ValidationError, match=next(iter(options))):
        virtual_kitti(whole, **options)


@pytest.mark.parametrize("chosen", [{"worlds": ["0003"]}, {"variants": ["snow"]}])
def test_a_video_that_is_not_there_is_named(whole, chosen):
    with pytest.raises(InputError, match=f"{next(iter(chosen.values()))[0]}.*: folder is missing"):
        virtual_kitti(whole, **chosen)


def test_a_missing_root_is_named():
    with pytest.raises(InputError, match="nowhere: folder is missing; give the one that Virtual KITTI"):
        virtual_kitti(Path("nowhere"))
