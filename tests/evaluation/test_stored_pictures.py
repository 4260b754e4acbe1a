"""Photos in a store become pictures of a score: image, prediction, error and uncertainty of a draw."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
import zarr
from PIL import Image

import epibench
from epibench.errors import InputError
from epibench.evaluation.scoring import ScoreSettings, prepare
from epibench.members.stored import StoredPredictions
from epibench.report.pictures.dense import error_of, read_grid
from epibench.results import ShownPicture
from epibench.store import StoreWriter, open_store, write_store

IMAGES, SIZE, MEMBERS = 9, (12, 20), 3


def photos():
    return np.random.default_rng(2).integers(0, 256, (IMAGES, *SIZE, 3), dtype=np.uint8)


def values(signed=False):
    rng = np.random.default_rng(0)
    target = rng.normal(-2.0 if signed else 30.0, 1.0, (IMAGES, *SIZE))
    mean = target + rng.normal(0, 0.5, (MEMBERS, *target.shape))
    return {
        "mean": mean,
        "variance": rng.gamma(2.0, 0.1, mean.shape),
        "target": target,
        "valid": rng.random(target.shape) < 0.8,
    }


def scored(path, **settings):
    return prepare(open_store(path), ScoreSettings(**settings)).run()


def page_of(folder, *stores, **options):
    epibench.score(*stores, report=folder / "page", device="cpu", **options)
    page = (folder / "page" / "score.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    return re.sub(r"<style>.*?</style>|<dt>stored.*?</dd>|class=\".*?\"", "", page, flags=re.DOTALL)


def decoded(file):
    return np.asarray(Image.open(io.BytesIO(file.read())))


@pytest.mark.parametrize("signed", [False, True])
def test_values_errors_and_std_are_those_of_the_draw(tmp_path, signed):
    arrays = values(signed)
    write_store(tmp_path / "a.zarr", kind="gaussian", image=photos(), **arrays)
    found = scored(tmp_path / "a.zarr")
    pictures = zip(found.images, found.score.pictures, strict=True)
    assert [picture.image for picture in found.images] == [1, 3, 5, 7]
    mean = arrays["mean"].mean(0)
    std = np.sqrt(arrays["variance"].mean(0) + arrays["mean"].var(0))
    for picture, drawn in pictures:
        target = np.where(arrays["valid"], arrays["target"], np.nan)[picture.image]
        step = (np.nanmax(arrays["target"]) - np.nanmin(arrays["target"])) / 900
        assert drawn.M == MEMBERS
        assert np.abs(read_grid(drawn.mean) - mean[picture.image]).max() < step
        assert np.abs(read_grid(drawn.std) - std[picture.image]).max() < step
        np.testing.assert_array_equal(np.isnan(read_grid(picture.target, zero_is_none=True)), np.isnan(target))
        error = error_of(ShownPicture(**dict(picture), methods={"a": drawn}), "a")
        assert np.nanmax(np.abs(error - np.abs(mean[picture.image] - target))) < 2 * step


@pytest.mark.parametrize("name", ["probs", "logits"])
def test_classes_are_those_of_the_averaged_probabilities(tmp_path, name):
    rng = np.random.default_rng(1)
    probs = rng.dirichlet(np.ones(4), (MEMBERS, IMAGES, *SIZE))
    target = rng.integers(0, 4, (IMAGES, *SIZE))
    target[:, 0] = 255
    outputs = {name: probs if name == "probs" else np.log(probs)}
    write_store(tmp_path / "a.zarr", kind="categorical", target=target, image=photos(), **outputs)
    found = scored(tmp_path / "a.zarr")
    for picture, drawn in zip(found.images, found.score.pictures, strict=True):
        averaged = probs.mean(0)[picture.image]
        np.testing.assert_array_equal(decoded(drawn.predicted), averaged.argmax(-1))
        np.testing.assert_array_equal(decoded(picture.target), target[picture.image])
        entropy = -(averaged * np.log(averaged)).sum(-1)
        assert np.abs(read_grid(drawn.uncertainty) - entropy).max() < 1 / 500


def test_a_loop_writes_photos_that_are_padded_as_targets_are(tmp_path):
    arrays, images = values(), photos()
    sizes = {"num_members": MEMBERS, "num_images": IMAGES, "size": SIZE}
    with StoreWriter(tmp_path / "loop.zarr", kind="gaussian", **sizes) as store:
        for number in range(IMAGES):
            rows = slice(0, 7 if number == 1 else SIZE[0])
            target, photo = arrays["target"][number, rows], images[number, rows]
            store.write_target(number, target, arrays["valid"][number, rows], image=photo)
            for member in range(MEMBERS):
                outputs = {name: arrays[name][member, number, rows] for name in ("mean", "variance")}
                store.write(member, number, **outputs)
    store = open_store(tmp_path / "loop.zarr")
    stored = store.arrays["image"].read((slice(None),) * 4)
    np.testing.assert_array_equal(stored[2:], images[2:])
    assert not stored[1, 7:].any()
    assert scored(tmp_path / "loop.zarr").images[0].image == 1


def test_without_photos_there_are_no_pictures(tmp_path):
    write_store(tmp_path / "a.zarr", kind="gaussian", **values())
    assert scored(tmp_path / "a.zarr").images == []


def test_wide_photos_are_thinned(tmp_path):
    target = np.ones((1, 2, 1100))
    arrays = {"mean": target[None], "variance": target[None], "target": target}
    write_store(tmp_path / "a.zarr", kind="gaussian", image=np.zeros((1, 2, 1100, 3), np.uint8), **arrays)
    (picture,) = scored(tmp_path / "a.zarr").images
    assert (picture.height, picture.width) == (1, 367)


@pytest.mark.parametrize("chunk", [1, 3, 12])
def test_pictures_are_read_in_bands_of_chunks(tmp_path, monkeypatch, chunk):
    group = zarr.open_group(tmp_path / "a", mode="w", zarr_format=3, attributes={"version": 1, "kind": "gaussian"})
    for name, array in {**values(), "image": photos()}.items():
        rows = (chunk, *array.shape[array.ndim - (1 if name != "image" else 2) :])
        group.create_array(name, data=array, chunks=(*[1] * (array.ndim - len(rows)), *rows))
    whole = scored(tmp_path / "a")
    monkeypatch.setattr("epibench.members.stored.BAND", 1)
    store = open_store(tmp_path / "a")
    rows = []

    def noted(source):
        axis = 1 if len(source.shape) == 3 or source.shape[-1] == 3 else 2
        return lambda selection: (rows.append(range(*selection[axis].indices(12))), source.read(selection))[1]

    arrays = {name: replace(source, read=noted(source)) for name, source in store.arrays.items()}
    predictions = StoredPredictions(replace(store, arrays=arrays))
    for step in (1, 5):
        thin = predictions.thinned("mean", 2, step, 1)
        np.testing.assert_array_equal(thin, values()["mean"][1, 2, ::step, ::step])
        np.testing.assert_array_equal(predictions.thinned("image", 2, step), photos()[2, ::step, ::step])
    assert max(map(len, rows)) == chunk
    again = scored(tmp_path / "a")
    assert (again.images, again.score.pictures) == (whole.images, whole.score.pictures)


def test_the_page_shows_every_method_beside_the_photo(tmp_path):
    arrays = values(signed=True)
    for method in ("first", "second"):
        write_store(tmp_path / method, kind="gaussian", image=photos(), method=method, domain="day", **arrays)
    page = page_of(tmp_path, tmp_path / "first", tmp_path / "second")
    assert "What the methods predict" in page
    assert page.count(">Predicted values<") == 2 * 4
    assert "depth" not in page.lower()
    assert page.count("data:image/jpeg") == 4


@pytest.mark.parametrize(
    ("image", "complaint"),
    [
        (np.zeros((*SIZE, 3)), "is float64"),
        (np.zeros((3, *SIZE), np.uint8), "put channels last"),
        (np.zeros((5, 5, 3), np.uint8), r"\(5, 5, 3\)"),
    ],
)
def test_photos_of_another_form_are_refused(tmp_path, image, complaint):
    store = StoreWriter(tmp_path / "a.zarr", kind="gaussian", num_members=1, num_images=1)
    with pytest.raises(InputError, match=complaint):
        store.write_target(0, np.zeros(SIZE), image=image)
    with pytest.raises(InputError, match="photos are uint8"):
        write_store(
            tmp_path / "b.zarr",
            kind="gaussian",
            image=image[None],
            **{k: v[..., :1, :, :] for k, v in values().items()},
        )
