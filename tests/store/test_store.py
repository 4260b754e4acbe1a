"""Opening prediction stores: every format, what is wrong with a store in words, and nothing ever executed."""

import json
import os
import zipfile

import numpy as np
import pytest
import zarr

from epibench.errors import InputError
from epibench.store import formats as store_module
from epibench.store import open_store, write_store
from stored_pixels import stored_pixels

RNG = np.random.default_rng(0)
TARGET = RNG.normal(size=(2, 3, 4))
MEAN = RNG.normal(size=(3, 2, 3, 4)).astype(np.float32)
VARIANCE = RNG.random(size=(3, 2, 3, 4)).astype(np.float32)
GAUSSIAN = {"mean": MEAN, "variance": VARIANCE, "target": TARGET}
PROBS = RNG.dirichlet(np.ones(5), size=(3, 2, 3, 4)).astype(np.float32)
LABELS = RNG.integers(0, 5, size=(2, 3, 4))
CATEGORICAL = {"probs": PROBS, "target": LABELS}


class Marker:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def npz(tmp_path, name="preds.npz", **arrays):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays)
    return path


def zarr_group(path, arrays, **attributes):
    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.attrs.update({"version": 1, **attributes})
    for name, values in arrays.items():
        group.create_array(name, data=np.asarray(values))
    return path


def outputs_of(store, name):
    """(member, pixel, …)"""
    return np.concatenate([pixels.outputs[name].numpy() for pixels in stored_pixels(store)], axis=1)


def error(path):
    with pytest.raises(InputError) as caught:
        open_store(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_zarr_gives_the_stored_values(tmp_path):
    path = zarr_group(tmp_path / "preds.zarr", GAUSSIAN, kind="gaussian")
    np.testing.assert_array_equal(outputs_of(open_store(path), "mean"), MEAN.reshape(3, -1))


def test_zarr_says_what_it_holds(tmp_path):
    path = zarr_group(
        tmp_path / "preds.zarr",
        CATEGORICAL,
        kind="categorical",
        method="sgld",
        domain="city",
        unit="m",
        class_names=list("abcde"),
    )
    store = open_store(str(path))
    assert (store.kind, store.method, store.domain, store.unit) == ("categorical", "sgld", "city", "m")
    assert (store.num_members, store.shape, store.num_classes, store.num_pixels) == (3, (2, 3, 4), 5, 24)
    assert store.class_names == ("a", "b", "c", "d", "e")
    assert store.output_names == ("probs",)


def test_big_endian_values_are_read(tmp_path):
    arrays = {name: values.astype(">f4") for name, values in GAUSSIAN.items()}
    path = zarr_group(tmp_path / "preds.zarr", arrays, kind="gaussian")
    np.testing.assert_array_equal(outputs_of(open_store(path), "mean"), MEAN.reshape(3, -1))


def test_npz_gives_the_stored_values(tmp_path):
    store = open_store(npz(tmp_path, **CATEGORICAL, kind="categorical", method="map", version=1))
    assert store.method == "map"
    np.testing.assert_array_equal(outputs_of(store, "probs"), PROBS.reshape(3, -1, 5))


def test_npz_kind_follows_from_the_names(tmp_path):
    store = open_store(npz(tmp_path, logits=PROBS, target=LABELS))
    assert store.kind == "categorical"


def test_npz_class_names(tmp_path):
    store = open_store(npz(tmp_path, **CATEGORICAL, class_names=np.array(list("abcde"))))
    assert store.class_names == ("a", "b", "c", "d", "e")


@pytest.mark.parametrize("leading", [True, False], ids=["member axis", "no member axis"])
@pytest.mark.parametrize("target_in", ["all", "one", "own file"])
def test_folder_of_npz_is_one_member_per_file_in_natural_order(tmp_path, leading, target_in):
    for index, number in enumerate((1, 2, 10)):
        shared = {"target": LABELS} if target_in == "all" or (target_in == "one" and number == 2) else {}
        values = PROBS[index][None] if leading else PROBS[index]
        npz(tmp_path, f"run/net_{number}.npz", probs=values, **shared)
    if target_in == "own file":
        npz(tmp_path, "run/target.npz", target=LABELS)
    store = open_store(tmp_path / "run")
    assert store.member_id == ("net_1", "net_2", "net_10")
    np.testing.assert_array_equal(outputs_of(store, "probs"), PROBS.reshape(3, -1, 5))


def test_folder_of_npz_takes_groups_from_the_files(tmp_path):
    for index in range(3):
        npz(tmp_path, f"run/{index}.npz", probs=PROBS[index], target=LABELS, group=index // 2)
    assert open_store(tmp_path / "run").group == (0, 0, 1)


def test_folder_of_npz_whose_targets_differ_is_refused(tmp_path):
    npz(tmp_path, "run/a.npz", probs=PROBS[0], target=LABELS)
    npz(tmp_path, "run/b.npz", probs=PROBS[1], target=(LABELS + 1) % 5)
    with pytest.raises(InputError, match=r"b\.npz: 'target' differs from that in a\.npz"):
        list(stored_pixels(open_store(tmp_path / "run")))


def test_folder_of_npz_whose_shapes_differ_is_refused(tmp_path):
    npz(tmp_path, "run/a.npz", probs=PROBS[0], target=LABELS)
    npz(tmp_path, "run/b.npz", probs=PROBS[1, :1], target=LABELS)
    assert "(1, 3, 4, 5)" in error(tmp_path / "run")


def test_folder_of_npz_where_a_member_lacks_an_array_is_refused(tmp_path):
    npz(tmp_path, "run/a.npz", mean=MEAN[0], variance=VARIANCE[0], target=TARGET)
    npz(tmp_path, "run/b.npz", mean=MEAN[1], std=VARIANCE[1])
    message = error(tmp_path / "run")
    assert "b.npz: no array 'variance'" in message
    assert "store its square" in message


def test_folder_of_npz_whose_attributes_differ_is_refused(tmp_path):
    npz(tmp_path, "run/a.npz", probs=PROBS[0], target=LABELS, method="a")
    npz(tmp_path, "run/b.npz", probs=PROBS[1], target=LABELS, method="b")
    assert "method is 'b', but 'a' in others" in error(tmp_path / "run")


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (np.array(["ü1", "b"]), ("ü1", "b")),
        (np.array([b"a", b"b"]), ("a", "b")),
        (np.array([7, 9], dtype=np.int16), (7, 9)),
        (np.array(["a", "bcd"], dtype=np.dtypes.StringDType()), ("a", "bcd")),
    ],
    ids=["fixed unicode", "bytes", "integers", "variable"],
)
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_ids_of_any_type_are_read(tmp_path, ids, expected):
    path = zarr_group(tmp_path / "preds.zarr", {**GAUSSIAN, "image_id": ids}, kind="gaussian")
    assert open_store(path).image_id == expected


def test_ids_of_the_wrong_number_are_refused(tmp_path):
    path = npz(tmp_path, **GAUSSIAN, image_id=np.arange(5))
    assert "'image_id' has shape (5,); it must be (2,)" in error(path)


def test_ids_that_are_no_labels_are_refused(tmp_path):
    assert "store strings or integers" in error(npz(tmp_path, **GAUSSIAN, member_id=np.arange(3.0)))


@pytest.mark.parametrize(
    ("shape", "image_id", "has_images"), [((24,), None, False), ((4, 1), None, False), ((4, 1), range(4), True)]
)
def test_has_images(tmp_path, shape, image_id, has_images):
    arrays = {"mean": np.zeros((1, *shape)), "variance": np.ones((1, *shape)), "target": np.zeros(shape)}
    if image_id is not None:
        arrays["image_id"] = np.array(image_id)
    assert open_store(npz(tmp_path, **arrays)).has_images == has_images


@pytest.mark.parametrize(
    ("name", "replaced", "remedy"),
    [
        ("std", "variance", "'std' found: store its square as 'variance'"),
        ("sigma", "variance", "'sigma' found: store its square as 'variance'"),
        ("var", "variance", "'var' found: name it 'variance'"),
        ("logvar", "variance", "'logvar' found: store its exponential as 'variance'"),
        ("log_variance", "variance", "'log_variance' found: store its exponential as 'variance'"),
        ("mu", "mean", "'mu' found: name it 'mean'"),
        ("pred", "mean", "'pred' found: name it 'mean'"),
        ("label", "target", "'label' found: name it 'target'"),
        ("labels", "target", "'labels' found: name it 'target'"),
        ("gt", "target", "'gt' found: name it 'target'"),
        ("ground_truth", "target", "'ground_truth' found: name it 'target'"),
    ],
)
def test_misnamed_gaussian_arrays_are_recognised(tmp_path, name, replaced, remedy):
    arrays = {name if key == replaced else key: values for key, values in GAUSSIAN.items()}
    message = error(npz(tmp_path, **arrays, kind="gaussian"))
    assert f"no array '{replaced}'" in message
    assert remedy in message


@pytest.mark.parametrize("name", ["probabilities", "softmax", "pred"])
def test_misnamed_categorical_arrays_are_recognised(tmp_path, name):
    message = error(npz(tmp_path, kind="categorical", target=LABELS, **{name: PROBS}))
    assert f"'{name}' found: name it" in message


def test_a_mask_that_would_be_overlooked_is_refused(tmp_path):
    message = error(npz(tmp_path, **GAUSSIAN, mask=np.ones(TARGET.shape, dtype=bool)))
    assert "'mask' found: name it 'valid'" in message


def test_a_name_that_only_resembles_another_array_is_ignored(tmp_path):
    assert open_store(npz(tmp_path, **GAUSSIAN, std=np.sqrt(VARIANCE))).kind == "gaussian"


def test_missing_arrays_list_what_was_found(tmp_path):
    assert "found 'mean', 'foo'" in error(npz(tmp_path, mean=MEAN, foo=MEAN))


def test_probs_and_logits_together_are_refused(tmp_path):
    assert "both 'probs' and 'logits'" in error(npz(tmp_path, **CATEGORICAL, logits=PROBS))


def test_zarr_without_kind_is_refused(tmp_path):
    assert "'kind' is None" in error(zarr_group(tmp_path / "preds.zarr", GAUSSIAN))


def test_unknown_kind_is_refused(tmp_path):
    assert "'kind' is 'poisson'" in error(zarr_group(tmp_path / "preds.zarr", GAUSSIAN, kind="poisson"))


@pytest.mark.parametrize("version", [2, "1", None])
def test_other_versions_are_refused(tmp_path, version):
    path = zarr_group(tmp_path / "preds.zarr", GAUSSIAN, kind="gaussian")
    zarr.open_group(path).attrs["version"] = version
    assert "reads version 1" in error(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"variance": VARIANCE[:2]}, ["'mean' has shape (3, 2, 3, 4)", "'variance' (2, 2, 3, 4)"]),
        ({"target": TARGET[:1]}, ["'mean' has shape (3, 2, 3, 4)", "'target' (1, 3, 4)"]),
        ({"valid": np.ones((3, 4), bool)}, ["'valid' has shape (3, 4)", "'target' (2, 3, 4)"]),
        ({"mean": MEAN[0], "variance": VARIANCE[0]}, ["add a member axis, mean[None]"]),
        ({"mean": MEAN[:0], "variance": VARIANCE[:0]}, ["'mean' is empty", "(0, 2, 3, 4)"]),
        ({"target": np.float64(3)}, ["'target' has no axis"]),
    ],
    ids=["members", "target", "valid", "no member axis", "no members", "no axis"],
)
def test_shapes_that_disagree_are_named(tmp_path, changes, words):
    message = error(npz(tmp_path, **{**GAUSSIAN, **changes}))
    assert all(word in message for word in words)


@pytest.mark.parametrize(("axis", "hint"), [(1, "probs, 1, -1"), (2, "probs, 2, -1")])
def test_class_axis_that_is_not_last_is_recognised(tmp_path, axis, hint):
    message = error(npz(tmp_path, probs=np.moveaxis(PROBS, -1, axis), target=LABELS))
    assert f"numpy.moveaxis({hint})" in message


def test_class_axis_of_logits_that_is_not_last_is_no_coarse_grid(tmp_path):
    labels = np.zeros((2, 6, 6), int)
    message = error(npz(tmp_path, logits=np.zeros((3, 2, 5, 6, 6)), target=labels))
    assert "numpy.moveaxis(logits, 2, -1)" in message
    assert "align_corners" not in message


def test_logits_that_may_be_coarse_or_have_their_classes_elsewhere_are_told_both(tmp_path):
    message = error(npz(tmp_path, logits=np.zeros((3, 2, 5, 6, 8)), target=np.zeros((2, 6, 8), int)))
    assert "numpy.moveaxis(logits, 2, -1)" in message
    assert "8 classes on a coarse grid" in message
    message = error(npz(tmp_path, logits=np.zeros((3, 2, 5, 3, 4)), target=np.zeros((2, 6, 8), int)))
    assert "4 classes on a coarse grid" in message
    assert "5 classes, numpy.moveaxis(logits, 2, -1)" in message


def test_one_class_is_refused(tmp_path):
    assert "one class" in error(npz(tmp_path, probs=PROBS[..., :1], target=LABELS))


def test_class_names_of_the_wrong_number_are_refused(tmp_path):
    assert "2 class_names for 5 classes" in error(npz(tmp_path, **CATEGORICAL, class_names=np.array(["a", "b"])))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"mean": MEAN.astype(int)}, "mean"),
        ({"target": TARGET.astype(str)}, "target"),
        ({"valid": np.ones(TARGET.shape, np.uint8)}, "valid"),
        ({"variance": VARIANCE.astype(complex)}, "variance"),
    ],
)
def test_dtypes_of_gaussian_stores_are_checked(tmp_path, changes, name):
    assert f"'{name}' has dtype" in error(npz(tmp_path, **{**GAUSSIAN, **changes}))


def test_integer_targets_of_gaussian_stores_are_accepted(tmp_path):
    store = open_store(npz(tmp_path, **{**GAUSSIAN, "target": LABELS}))
    assert next(stored_pixels(store)).target.dtype.is_floating_point


@pytest.mark.parametrize("target", [LABELS.astype(float), LABELS > 2])
def test_categorical_targets_must_be_integers(tmp_path, target):
    assert "'target' has dtype" in error(npz(tmp_path, probs=PROBS, target=target))


def test_missing_file(tmp_path):
    assert "no such file" in error(tmp_path / "nowhere.zarr")


def test_other_files_are_no_stores(tmp_path):
    path = tmp_path / "preds.h5"
    path.write_bytes(b"hdf")
    assert "not a prediction store" in error(path)


def test_other_folders_are_no_stores(tmp_path):
    (tmp_path / "readme.txt").write_text("hello")
    assert "found 'readme.txt'" in error(tmp_path)


@pytest.mark.parametrize("kept", [0, 0.5, 0.95])
def test_truncated_files_are_reported(tmp_path, kept):
    whole = npz(tmp_path, "whole.npz", **GAUSSIAN).read_bytes()
    path = tmp_path / "preds.npz"
    path.write_bytes(whole[: int(kept * len(whole))])
    assert "cannot be read" in error(path)


def test_npz_array_shorter_than_its_header_is_reported(tmp_path):
    path = npz(tmp_path, **GAUSSIAN)
    content = zipfile.ZipFile(path).read("mean.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mean.npy", content[:-8])
    assert "'mean' is truncated" in error(path)


def test_zarr_with_broken_metadata_is_reported(tmp_path):
    path = zarr_group(tmp_path / "preds.zarr", GAUSSIAN, kind="gaussian")
    (path / "mean" / "zarr.json").write_text("{")
    assert "cannot be read" in error(path)


def test_zarr_array_instead_of_group_is_reported(tmp_path):
    zarr.save_array(tmp_path / "preds.zarr", MEAN)
    assert "no zarr group" in error(tmp_path / "preds.zarr")


@pytest.mark.parametrize("files", ["one", "folder"])
def test_npz_too_large_to_read_whole_is_refused_before_reading(tmp_path, monkeypatch, files):
    monkeypatch.setattr(store_module, "READ_WHOLE_LIMIT", 1000)
    path = npz(tmp_path, "run/a.npz", **GAUSSIAN)
    if files == "folder":
        monkeypatch.setattr(store_module, "READ_WHOLE_LIMIT", 2000)
        npz(tmp_path, "run/b.npz", **GAUSSIAN)
        path = path.parent
    monkeypatch.setattr(np, "load", lambda *args, **options: pytest.fail("read"))
    assert "store it as zarr" in error(path)


def test_chunks_too_large_to_decode_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "CHUNK_LIMIT", 100)
    assert "use smaller chunks" in error(zarr_group(tmp_path / "preds.zarr", GAUSSIAN, kind="gaussian"))


def test_pickled_objects_in_npz_are_refused_and_not_executed(tmp_path):
    marker = tmp_path / "executed"
    path = npz(tmp_path, mean=np.array([Marker(marker)], dtype=object), variance=VARIANCE, target=TARGET)
    assert "Python objects" in error(path)
    assert not marker.exists()


def test_pickled_attributes_in_npz_are_refused_and_not_executed(tmp_path):
    marker = tmp_path / "executed"
    path = npz(tmp_path, **GAUSSIAN, method=np.array(Marker(marker), dtype=object))
    assert "Python objects" in error(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    "codec",
    [
        {"name": "numcodecs.pickle"},
        {"name": "numcodecs.lzma"},
        {"name": "sharding_indexed", "configuration": {"codecs": ["evil"]}},
    ],
)
def test_unknown_codecs_are_refused_also_inside_shards(tmp_path, codec):
    path = zarr_group(tmp_path / "preds.zarr", GAUSSIAN, kind="gaussian")
    metadata = json.loads((path / "mean" / "zarr.json").read_text())
    (path / "mean" / "zarr.json").write_text(json.dumps({**metadata, "codecs": [codec]}))
    assert "which is never run" in error(path)


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_consolidated_metadata_cannot_hide_a_codec(tmp_path):
    path = zarr_group(tmp_path / "preds.zarr", GAUSSIAN, kind="gaussian")
    zarr.consolidate_metadata(path)
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["consolidated_metadata"]["metadata"]["mean"]["codecs"] = [{"name": "evil"}]
    (path / "zarr.json").write_text(json.dumps(metadata))
    np.testing.assert_array_equal(outputs_of(open_store(path), "mean"), MEAN.reshape(3, -1))


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "mean/../../evil", "..\\evil", "C:/evil"])
def test_entries_that_leave_the_folder_are_refused(tmp_path, name):
    path = tmp_path / "preds.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"")
    assert "leaves the store's folder" in error(path)


@pytest.mark.parametrize("linked", ["mean", "mean/c", "mean/zarr.json", "mean/c/0/0/0/0"])
def test_links_out_of_the_store_are_refused(tmp_path, linked):
    path = zarr_group(tmp_path / "preds.zarr", GAUSSIAN, kind="gaussian")
    (path / linked).rename(tmp_path / "outside")
    (path / linked).symlink_to(tmp_path / "outside")
    assert "outside the store" in error(path)


def test_a_store_may_itself_be_a_link_and_hold_links_to_itself(tmp_path):
    path = zarr_group(tmp_path / "preds.zarr", {"mean": MEAN, "target": TARGET}, kind="gaussian")
    (path / "variance").symlink_to(path / "mean")
    (tmp_path / "link.zarr").symlink_to(path)
    assert open_store(tmp_path / "link.zarr").num_members == 3


@pytest.mark.parametrize("separator", ["/../../", "../"])
def test_chunk_names_that_leave_the_store_are_refused(tmp_path, separator):
    path = zarr_group(tmp_path / "preds.zarr", GAUSSIAN, kind="gaussian")
    metadata = json.loads((path / "mean" / "zarr.json").read_text())
    metadata["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": separator}}
    (path / "mean" / "zarr.json").write_text(json.dumps(metadata))
    assert "cannot be read" in error(path)


def test_opening_reads_no_pixels(tmp_path):
    path = tmp_path / "preds.zarr"
    write_store(path, kind="gaussian", **GAUSSIAN)
    for chunk in (path / "mean" / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"broken")
    assert open_store(path).shape == (2, 3, 4)
