"""Writing stores: what is written is read again, nothing finished is lost, and mistakes are told at once."""

import contextlib
import multiprocessing
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import zarr

from epibench.errors import InputError
from epibench.members.stored import validate
from epibench.store import open_store
from epibench.store.writer import StoreWriter, write_store
from stored_pixels import stored_pixels

RNG = np.random.default_rng(0)
MEAN = RNG.normal(size=(3, 2, 4, 5)).astype(np.float32)
VARIANCE = RNG.random(size=(3, 2, 4, 5)).astype(np.float32)
TARGET = RNG.normal(size=(2, 4, 5)).astype(np.float32)
PROBS = RNG.dirichlet(np.ones(3), size=(3, 2, 4, 5)).astype(np.float32)
LABELS = RNG.integers(0, 3, size=(2, 4, 5))


def read(path, name):
    """(member, pixel, …), and the targets."""
    blocks = list(stored_pixels(open_store(path)))
    outputs = torch.cat([pixels.outputs[name] for pixels in blocks], dim=1)
    return outputs.numpy(), torch.cat([pixels.target for pixels in blocks]).numpy()


ONE = {"num_members": 1, "num_images": 1}


def opened(path, kind="gaussian", num_members=3, num_images=2, **options):
    return StoreWriter(path, kind=kind, num_members=num_members, num_images=num_images, **options)


def write_gaussian(path, images=range(2), members=range(3), **options):
    with opened(path, **options) as writer:
        for image in images:
            writer.write_target(image, TARGET[image])
            for member in members:
                writer.write(member, image, mean=MEAN[member, image], variance=VARIANCE[member, image])


def interrupt(path, **options):
    """Write the first image, and stop with an error."""
    with contextlib.suppress(KeyboardInterrupt), opened(path, **options) as writer:
        writer.write_target(0, TARGET[0])
        for member in range(3):
            writer.write(member, 0, mean=MEAN[member, 0], variance=VARIANCE[member, 0])
        raise KeyboardInterrupt


def assert_gaussian(path):
    outputs, target = read(path, "mean")
    np.testing.assert_array_equal(outputs, MEAN.reshape(3, -1))
    np.testing.assert_array_equal(target, TARGET.reshape(-1))


@pytest.mark.parametrize("name", ["preds.zarr", "deeper/preds.zarr"])
def test_whole_gaussian_arrays_are_read_again(tmp_path, name):
    write_store(tmp_path / name, kind="gaussian", mean=MEAN, variance=VARIANCE, target=TARGET)
    assert_gaussian(tmp_path / name)


@pytest.mark.parametrize("name", ["probs", "logits"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_whole_categorical_arrays_are_read_again(tmp_path, name, dtype):
    values = (PROBS if name == "probs" else np.log(PROBS)).astype(dtype)
    write_store(tmp_path / "preds.zarr", kind="categorical", target=LABELS, **{name: values})
    outputs, target = read(tmp_path / "preds.zarr", name)
    np.testing.assert_array_equal(outputs, values.reshape(3, -1, 3))
    np.testing.assert_array_equal(target, LABELS.reshape(-1))


def test_flat_arrays_are_read_again(tmp_path):
    arrays = {"mean": MEAN.reshape(3, -1), "variance": VARIANCE.reshape(3, -1), "target": TARGET.reshape(-1)}
    write_store(tmp_path / "preds.zarr", kind="gaussian", **arrays)
    assert_gaussian(tmp_path / "preds.zarr")


def test_what_describes_a_store_is_read_again(tmp_path):
    write_store(
        tmp_path / "preds.zarr",
        kind="categorical",
        target=LABELS,
        probs=PROBS,
        valid=LABELS > 0,
        group=[0, 0, 1],
        member_id=["a", "b", "ç"],
        image_id=["../x", "y/z"],
        method="sgld",
        domain="city",
        unit="m",
        class_names=["road", "car", "sky"],
    )
    store = open_store(tmp_path / "preds.zarr")
    assert (store.method, store.domain, store.unit) == ("sgld", "city", "m")
    assert store.class_names == ("road", "car", "sky")
    assert (store.group, store.member_id, store.image_id) == ((0, 0, 1), ("a", "b", "ç"), ("../x", "y/z"))
    assert validate(store).valid == (LABELS > 0).sum()


def test_torch_tensors_are_written(tmp_path):
    mean = torch.from_numpy(MEAN).requires_grad_()
    write_store(tmp_path / "p.zarr", kind="gaussian", mean=mean, variance=torch.from_numpy(VARIANCE), target=TARGET)
    assert_gaussian(tmp_path / "p.zarr")


def test_bfloat16_is_written_as_float32(tmp_path):
    with opened(tmp_path / "p.zarr", kind="categorical", **ONE) as writer:
        writer.write_target(0, LABELS[0])
        writer.write(0, 0, logits=torch.ones(4, 5, 3, dtype=torch.bfloat16))
    assert read(tmp_path / "p.zarr", "logits")[0].dtype == np.float32


@pytest.mark.parametrize("sizes", [{}, {"size": (4, 5)}], ids=["of the first image", "given"])
def test_a_loop_writes_what_is_read_again(tmp_path, sizes):
    write_gaussian(tmp_path / "preds.zarr", **sizes)
    assert_gaussian(tmp_path / "preds.zarr")


def test_a_loop_may_write_in_any_order(tmp_path):
    with opened(tmp_path / "preds.zarr", kind="gaussian") as writer:
        for member, image in [(2, 1), (0, 0), (1, 1), (2, 0), (0, 1), (1, 0)]:
            writer.write(member, image, mean=MEAN[member, image], variance=VARIANCE[member, image])
        for image in (1, 0):
            writer.write_target(image, TARGET[image])
    assert_gaussian(tmp_path / "preds.zarr")


def test_a_loop_writes_categorical_outputs(tmp_path):
    with opened(tmp_path / "preds.zarr", kind="categorical", dtype="float16") as writer:
        for image in range(2):
            writer.write_target(image, LABELS[image], image_id=f"image_{image}")
            for member in range(3):
                writer.write(member, image, probs=PROBS[member, image])
    outputs, target = read(tmp_path / "preds.zarr", "probs")
    np.testing.assert_array_equal(outputs, PROBS.astype(np.float16).reshape(3, -1, 3))
    np.testing.assert_array_equal(target, LABELS.reshape(-1))
    assert open_store(tmp_path / "preds.zarr").image_id == ("image_0", "image_1")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint64, np.int64, ">i4"])
def test_labels_of_any_integer_type_are_written(tmp_path, dtype):
    with opened(tmp_path / "preds.zarr", kind="categorical", **ONE) as writer:
        writer.write_target(0, LABELS[0].astype(dtype))
        writer.write(0, 0, probs=PROBS[0, 0].astype(">f8"))
    np.testing.assert_array_equal(read(tmp_path / "preds.zarr", "probs")[1], LABELS[0].reshape(-1))


def test_infinite_values_are_not_taken_for_too_large(tmp_path):
    with opened(tmp_path / "preds.zarr", kind="categorical", dtype="float16", **ONE) as writer:
        writer.write(0, 0, logits=np.full((4, 5, 3), -np.inf, dtype=np.float32))
    assert np.isinf(zarr.open_group(tmp_path / "preds.zarr")["logits"][:]).all()


def test_members_have_labels(tmp_path):
    write_gaussian(tmp_path / "preds.zarr", group=["x", "x", "y"], member_id=[5, 6, 7])
    store = open_store(tmp_path / "preds.zarr")
    assert (store.group, store.member_id) == (("x", "x", "y"), (5, 6, 7))


def test_ids_never_become_file_names(tmp_path):
    with opened(tmp_path / "deep" / "preds.zarr", **ONE) as writer:
        writer.write_target(0, TARGET[0], image_id="../../evil")
        writer.write(0, 0, mean=MEAN[0, 0], variance=VARIANCE[0, 0])
    assert not list(tmp_path.rglob("*evil*"))
    assert open_store(tmp_path / "deep" / "preds.zarr").image_id == ("../../evil",)


def test_smaller_images_are_padded_with_valid_false(tmp_path):
    with opened(tmp_path / "preds.zarr", size=(4, 5), **ONE) as writer:
        writer.write_target(0, TARGET[0, :2, :3], valid=np.array([[True, True, False], [True] * 3]))
        writer.write(0, 0, mean=MEAN[0, 0, :2, :3], variance=VARIANCE[0, 0, :2, :3])
    tally = validate(open_store(tmp_path / "preds.zarr"))
    assert (tally.valid, tally.masked) == (5, 15)


def test_larger_images_are_refused_with_a_remedy(tmp_path):
    writer = opened(tmp_path / "preds.zarr", kind="gaussian")
    writer.write_target(0, TARGET[0, :2])
    with pytest.raises(InputError, match=r"axes \(4, 5\), more than size \(2, 5\); give StoreWriter the size"):
        writer.write_target(1, TARGET[1])


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("mean", "'mean' has no chunk at member 1, image 0"),
        ("target", "'target' has no chunk at image 1"),
    ],
)
def test_what_was_never_written_is_found_by_the_reader(tmp_path, name, missing):
    with opened(tmp_path / "preds.zarr", num_members=2) as writer:
        for image in range(1 if name == "target" else 2):
            writer.write_target(image, TARGET[image])
        for member in range(1 if name == "mean" else 2):
            for image in range(2):
                writer.write(member, image, mean=MEAN[member, image], variance=VARIANCE[member, image])
    with pytest.raises(InputError, match=f"{missing}.*never written"):
        open_store(tmp_path / "preds.zarr")


def test_photos_and_names_of_some_images_alone_are_written(tmp_path):
    with opened(tmp_path / "preds.zarr", num_members=1, num_images=3) as writer:
        for image in range(3):
            some = {"image_id": "b", "image": np.full((4, 5, 3), 7, np.uint8)} if image == 1 else {}
            writer.write_target(image, TARGET[0], **some)
            writer.write(0, image, mean=MEAN[0, 0], variance=VARIANCE[0, 0])
    store = open_store(tmp_path / "preds.zarr")
    assert store.image_id == ("", "b", "")
    assert store.arrays["image"].read((slice(0, 3), *(slice(0, 1),) * 3)).flatten().tolist() == [0, 7, 0]


@pytest.mark.parametrize("write", [write_gaussian, lambda path: write_store(path, kind="gaussian", target=TARGET)])
def test_an_existing_store_is_not_overwritten(tmp_path, write):
    write_gaussian(tmp_path / "preds.zarr")
    with pytest.raises(InputError, match="exists already"):
        write(tmp_path / "preds.zarr")
    assert_gaussian(tmp_path / "preds.zarr")


def test_an_existing_store_is_overwritten_on_request(tmp_path):
    write_store(tmp_path / "preds.zarr", kind="categorical", target=LABELS, probs=PROBS)
    write_gaussian(tmp_path / "preds.zarr", overwrite=True)
    assert_gaussian(tmp_path / "preds.zarr")
    write_store(tmp_path / "preds.zarr", kind="categorical", target=LABELS, probs=PROBS, overwrite=True)
    assert open_store(tmp_path / "preds.zarr").kind == "categorical"
    assert [entry.name for entry in tmp_path.iterdir()] == ["preds.zarr"]


def test_a_wrong_first_write_leaves_the_old_store(tmp_path):
    write_gaussian(tmp_path / "preds.zarr")
    with pytest.raises(InputError), opened(tmp_path / "preds.zarr", kind="gaussian", overwrite=True) as writer:
        writer.write(0, 0, mean=MEAN[0, 0], variance=VARIANCE[0, 0, :2])
    assert_gaussian(tmp_path / "preds.zarr")


def test_what_is_no_store_is_never_removed(tmp_path):
    (tmp_path / "thesis.txt").write_text("hello")
    with pytest.raises(InputError, match="not a prediction store"):
        opened(tmp_path, kind="gaussian", overwrite=True)
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.parametrize("sizes", [{}, {"size": (4, 5)}], ids=["of the first image", "given"])
def test_an_interrupted_loop_is_resumed(tmp_path, sizes):
    interrupt(tmp_path / "preds.zarr", **sizes)
    write_gaussian(tmp_path / "preds.zarr", images=[1], resume=True, **sizes)
    assert_gaussian(tmp_path / "preds.zarr")


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "categorical"},
        {"num_members": 4},
        {"num_images": 1},
        {"size": (4, 6)},
        {"dtype": "float64"},
        {"method": "other"},
    ],
)
def test_resuming_another_store_is_refused(tmp_path, options):
    write_gaussian(tmp_path / "preds.zarr", method="ensemble")
    writer = opened(tmp_path / "preds.zarr", resume=True, **options)
    with pytest.raises(InputError, match="resume with the same"):
        writer.write_target(0, LABELS[0])
    assert_gaussian(tmp_path / "preds.zarr")


def test_overwrite_and_resume_together_are_refused(tmp_path):
    with pytest.raises(InputError, match="give one of them"):
        opened(tmp_path / "preds.zarr", kind="gaussian", overwrite=True, resume=True)


def write_members(path, members):
    with opened(path, resume=True, group=[0, 1, 2], size=(4, 5)) as writer:
        for image in range(2):
            writer.write_target(image, TARGET[image])
            for member in members:
                writer.write(member, image, mean=MEAN[member, image], variance=VARIANCE[member, image])


def test_several_processes_write_one_store(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_members, args=(tmp_path / "preds.zarr", m)) for m in ([0, 2], [1])]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert_gaussian(tmp_path / "preds.zarr")


def test_threads_that_create_one_store_do_not_meet(tmp_path):
    barrier = threading.Barrier(3)

    def work(member):
        barrier.wait()
        for number in range(10):
            write_members(tmp_path / f"{number}.zarr", [member])

    with ThreadPoolExecutor(3) as executor:
        list(executor.map(work, range(3)))
    for number in range(10):
        assert_gaussian(tmp_path / f"{number}.zarr")
        assert open_store(tmp_path / f"{number}.zarr").complete


def test_a_store_that_another_process_has_just_created_is_not_written_into(tmp_path):
    writers = [opened(tmp_path / "preds.zarr", kind="gaussian") for _ in range(2)]
    writers[0].write_target(0, TARGET[0])
    with pytest.raises(InputError, match="another process has just created it; give resume=True"):
        writers[1].write_target(0, TARGET[0])


def test_a_store_is_complete_when_its_last_writer_has_finished(tmp_path):
    path, sizes = tmp_path / "preds.zarr", {"num_members": 2, "num_images": 1, "size": (4, 5), "resume": True}
    writers = [opened(path, kind="gaussian", **sizes) for _ in range(2)]
    for member, writer in enumerate(writers):
        writer.write_target(0, TARGET[0])
        writer.write(member, 0, mean=MEAN[member, 0], variance=VARIANCE[member, 0])
    for writer, complete in zip(writers, (False, True), strict=True):
        writer.close()
        assert open_store(path).complete == complete


def test_a_store_of_which_one_writer_was_stopped_is_complete_when_it_was_resumed(tmp_path):
    path, sizes = tmp_path / "preds.zarr", {"size": (4, 5), "resume": True}
    with opened(path, **sizes) as writer:
        writer.write_target(1, TARGET[1])
        for member in range(3):
            writer.write(member, 1, mean=MEAN[member, 1], variance=VARIANCE[member, 1])
        interrupt(path, **sizes)
    assert not open_store(path).complete
    write_gaussian(path, **sizes)
    assert open_store(path).complete
    assert not [file for file in path.rglob(".*") if file.is_file()]


@pytest.mark.parametrize(("silent", "complete"), [(3600, True), (0, False)])
def test_a_writer_of_another_machine_is_waited_for_until_it_is_silent(tmp_path, silent, complete):
    path = tmp_path / "preds.zarr"
    writer = opened(path, **ONE)
    writer.write_target(0, TARGET[0])
    writer.write(0, 0, mean=MEAN[0, 0], variance=VARIANCE[0, 0])
    other = path / ".writer.elsewhere-1-0.unfinished"
    other.touch()
    os.utime(other, (time.time() - silent,) * 2)
    writer.close()
    assert open_store(path).complete == complete


def test_an_error_after_closing_leaves_a_store_complete(tmp_path):
    with contextlib.suppress(KeyboardInterrupt), opened(tmp_path / "a.zarr", **ONE) as writer:
        writer.write_target(0, TARGET[0])
        writer.write(0, 0, mean=MEAN[0, 0], variance=VARIANCE[0, 0])
        writer.close()
        raise KeyboardInterrupt
    assert open_store(tmp_path / "a.zarr").complete


def test_attributes_that_others_have_added_are_kept(tmp_path):
    path = tmp_path / "preds.zarr"
    with opened(path, **ONE) as writer:
        writer.write_target(0, TARGET[0])
        writer.write(0, 0, mean=MEAN[0, 0], variance=VARIANCE[0, 0])
        zarr.open_group(path).attrs["camera"] = "left"
    assert zarr.open_group(path, mode="r").attrs.asdict() == {
        "version": 1,
        "writer": "epibench",
        "kind": "gaussian",
        "complete": True,
        "camera": "left",
    }


@pytest.mark.parametrize("whole", [True, False], ids=["write_store", "StoreWriter"])
def test_files_of_a_store_have_the_permissions_of_the_umask(tmp_path, whole):
    before = os.umask(0o027)
    try:
        for overwrite in (False, True):
            if whole:
                arrays = {"mean": MEAN, "variance": VARIANCE, "target": TARGET}
                write_store(tmp_path / "preds.zarr", kind="gaussian", overwrite=overwrite, **arrays)
            else:
                write_gaussian(tmp_path / "preds.zarr", overwrite=overwrite)
    finally:
        os.umask(before)
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in tmp_path.rglob("*")}
    assert modes <= {(True, 0o750), (False, 0o640)}


WRONG_OUTPUTS = [
    ("gaussian", {"mean": MEAN[0, 0]}, "needs mean and variance; got mean"),
    ("gaussian", {"probs": PROBS[0, 0]}, "needs mean and variance; got probs"),
    ("gaussian", {"mean": MEAN[0, 0], "variance": VARIANCE[0, 0, 0]}, "they must agree"),
    ("gaussian", {"mean": LABELS[0], "variance": VARIANCE[0, 0]}, "give floating-point values"),
    ("gaussian", {"mean": MEAN[0, 0, 0], "variance": VARIANCE[0, 0, 0]}, r"has axes \(5,\)"),
    ("gaussian", {"mean": MEAN[0, 0, :3], "variance": VARIANCE[0, 0, :3]}, r"but \(4, 5\) was written"),
    ("categorical", {"probs": PROBS[0, 0], "logits": PROBS[0, 0]}, "either probs or logits"),
    ("categorical", {}, "got neither"),
    ("categorical", {"probs": PROBS[0, 0, ..., :1]}, "has 1 classes, expected 2"),
    ("categorical", {"probs": np.moveaxis(PROBS[0, 0], -1, 0)}, "the class axis comes last"),
]


@pytest.mark.parametrize(("kind", "outputs", "message"), WRONG_OUTPUTS)
def test_wrong_outputs_are_refused_at_once(tmp_path, kind, outputs, message):
    writer = opened(tmp_path / "preds.zarr", kind=kind)
    writer.write_target(0, LABELS[0])
    with pytest.raises(InputError, match=message):
        writer.write(0, 0, **outputs)


def test_a_number_of_classes_that_changes_is_refused(tmp_path):
    writer = opened(tmp_path / "preds.zarr", kind="categorical", class_names=["a", "b"])
    with pytest.raises(InputError, match="has 3 classes, expected 2"):
        writer.write(0, 0, probs=PROBS[0, 0])


@pytest.mark.parametrize(
    ("kind", "target", "valid", "message"),
    [
        ("categorical", TARGET[0], None, "give integers"),
        ("gaussian", TARGET[0] > 0, None, "give numbers"),
        ("gaussian", TARGET[0], np.ones((4, 5)), "give bool"),
        ("gaussian", TARGET[0], np.ones((4, 4), bool), "give bool"),
        ("categorical", np.full((4, 5), 2**40), None, "too large for int32"),
        ("gaussian", np.float32(1), None, "has axes"),
        ("gaussian", [[1.0], [1.0, 2.0]], None, "not an array"),
    ],
)
def test_wrong_targets_are_refused_at_once(tmp_path, kind, target, valid, message):
    with pytest.raises(InputError, match=message):
        opened(tmp_path / "preds.zarr", kind=kind).write_target(0, target, valid)


@pytest.mark.parametrize(("member", "image"), [(2, 0), (-1, 0), (0, 1), (0, -1)])
def test_indices_outside_the_given_sizes_are_refused(tmp_path, member, image):
    writer = opened(tmp_path / "preds.zarr", kind="gaussian", num_members=2, num_images=1)
    with pytest.raises(InputError, match="give 0 to"):
        writer.write(member, image, mean=MEAN[0, 0], variance=VARIANCE[0, 0])


def test_values_too_large_for_the_dtype_are_refused(tmp_path):
    writer = opened(tmp_path / "preds.zarr", kind="gaussian", dtype="float16")
    with pytest.raises(InputError, match="too large for float16"):
        writer.write(0, 0, mean=MEAN[0, 0] + 1e6, variance=VARIANCE[0, 0])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("preds.npz", {}, "written as zarr"),
        ("preds.zip", {}, "written as zarr"),
        ("preds.zarr", {"num_members": 4097}, "give 1 to 4,096 members"),
        ("preds.zarr", {"num_images": 0}, "at least one image"),
        ("preds.zarr", {"kind": "poisson"}, "kind 'poisson'"),
        ("preds.zarr", {"dtype": "bfloat16"}, "dtype 'bfloat16'"),
        ("preds.zarr", {"num_members": 2, "group": [1]}, "1 values of group"),
    ],
)
def test_wrong_options_are_refused(tmp_path, name, options, message):
    with pytest.raises(InputError, match=message):
        opened(tmp_path / name, **options)


def test_closing_without_writing_is_refused(tmp_path):
    with pytest.raises(InputError, match="nothing was written"), opened(tmp_path / "p.zarr", kind="gaussian"):
        pass


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"mean": MEAN, "variance": VARIANCE[:2]}, "'variance'"),
        ({"mean": MEAN}, "no array 'variance'"),
        ({"mean": MEAN, "variance": VARIANCE, "probs": PROBS}, "'probs' in a gaussian store"),
    ],
)
def test_whole_arrays_are_checked_before_anything_is_written(tmp_path, arrays, message):
    with pytest.raises(InputError, match=message):
        write_store(tmp_path / "preds.zarr", kind="gaussian", target=TARGET, **arrays)
    assert not list(tmp_path.iterdir())


def test_a_chunk_holds_one_member_and_one_image(tmp_path):
    write_gaussian(tmp_path / "preds.zarr")
    assert zarr.open_group(tmp_path / "preds.zarr")["mean"].chunks == (1, 1, 4, 5)


def test_chunks_of_all_members_fit_into_a_block(tmp_path):
    with opened(tmp_path / "p.zarr", kind="categorical", num_members=26, num_images=1, size=(1024, 2048)) as writer:
        writer.write_target(0, np.zeros((64, 64), dtype=int))
        writer.write(0, 0, probs=np.full((64, 64, 19), 1 / 19, dtype=np.float32))
    chunks = zarr.open_group(tmp_path / "p.zarr")["probs"].chunks
    assert chunks[:2] + chunks[3:] == (1, 1, 2048, 19)
    assert 26 * np.prod(chunks) * 4 <= 64 * 2**20


def stopped_writer(path):
    with opened(path, **ONE) as writer:
        writer.write_target(0, TARGET[0])
        writer.write(0, 0, mean=MEAN[0, 0], variance=VARIANCE[0, 0])
        raise RuntimeError("stopped")


def test_a_store_whose_writer_was_stopped_is_not_complete(tmp_path):
    with pytest.raises(RuntimeError, match="stopped"):
        stopped_writer(tmp_path / "a.zarr")
    assert not open_store(tmp_path / "a.zarr").complete


def test_a_store_whose_writer_finished_is_complete(tmp_path):
    with opened(tmp_path / "a.zarr", **ONE) as writer:
        writer.write_target(0, TARGET[0])
        writer.write(0, 0, mean=MEAN[0, 0], variance=VARIANCE[0, 0])
    assert open_store(tmp_path / "a.zarr").complete


def test_a_closed_writer_refuses_to_write(tmp_path):
    with opened(tmp_path / "preds.zarr", kind="gaussian") as writer:
        writer.write_target(0, TARGET[0])
        writer.write(0, 0, mean=MEAN[0, 0], variance=VARIANCE[0, 0])
    with pytest.raises(InputError, match="the writer is closed"):
        writer.write(1, 0, mean=MEAN[0, 0], variance=VARIANCE[0, 0])


def test_what_lies_beside_a_store_is_left_alone(tmp_path):
    (tmp_path / "a.zarr.old").mkdir()
    (tmp_path / "a.zarr.old" / "precious.txt").write_text("precious")
    for _ in range(2):
        write_store(tmp_path / "a.zarr", kind="gaussian", mean=MEAN, variance=VARIANCE, target=TARGET, overwrite=True)
    assert (tmp_path / "a.zarr.old" / "precious.txt").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zarr", "a.zarr.old"]
