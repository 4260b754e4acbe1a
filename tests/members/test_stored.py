"""Reading pixels: C order in any blocks, bounded memory, masking once, and what is wrong with the values in words."""

import threading
import weakref

import numpy as np
import pytest
import torch
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from epibench.errors import InputError
from epibench.members.stored import StoredPredictions, location, plan_blocks, validate
from epibench.results import Tally
from epibench.store import open_store, write_store
from memory_stores import memory_store

SHAPE = (3, 4, 5)


def gaussian(shape=SHAPE, members=2, **changes):
    rng = np.random.default_rng(0)
    mean = np.arange(members * np.prod(shape), dtype=np.float32).reshape(members, *shape)
    arrays = {"mean": mean, "variance": rng.random((members, *shape)).astype(np.float32), "target": rng.random(shape)}
    return {**arrays, **changes}


def categorical(shape=SHAPE, members=2, classes=4, dtype=np.float32, **changes):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(classes), size=(members, *shape)).astype(dtype)
    return {"probs": probs, "target": rng.integers(0, classes, size=shape), **changes}


def edited(values, index, value):
    copy = np.array(values)
    copy[index] = value
    return copy


def error(store, **options):
    with pytest.raises(InputError) as caught:
        validate(store, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_outputs_keep_their_dtype_and_values(tmp_path, dtype):
    arrays = categorical(dtype=dtype)
    (pixels,) = StoredPredictions(memory_store(tmp_path, **arrays))
    np.testing.assert_array_equal(pixels.outputs["probs"].numpy(), arrays["probs"].reshape(2, -1, 4))
    assert pixels.outputs["probs"].numpy().dtype == dtype


@pytest.mark.parametrize(("arrays", "dtype"), [(gaussian(), torch.float64), (categorical(), torch.int64)])
def test_targets_are_float64_or_int64(tmp_path, arrays, dtype):
    (pixels,) = StoredPredictions(memory_store(tmp_path, **arrays))
    assert pixels.target.dtype == dtype
    np.testing.assert_array_equal(pixels.target.numpy(), arrays["target"].reshape(-1))


def shapes(largest):
    """Samples (n,), and images with any further axes."""
    axes = st.lists(st.integers(1, largest), min_size=1, max_size=4).map(tuple)
    return axes.filter(lambda shape: len(shape) != 2)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_blocks_follow_each_other_in_c_order_for_any_budget(data):
    shape = data.draw(shapes(6))
    chunks = tuple(data.draw(st.integers(1, n)) for n in shape)
    budget = data.draw(st.integers(1, 4000))
    valid = np.array(data.draw(st.lists(st.booleans(), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))))
    valid[0] = True
    store = memory_store("preds.zarr", chunks, **gaussian(shape, valid=valid.reshape(shape)))
    means = torch.cat([pixels.outputs["mean"] for pixels in StoredPredictions(store, budget=budget)], dim=1)
    everything = np.arange(2 * valid.size).reshape(2, -1)
    np.testing.assert_array_equal(means.numpy(), everything[:, valid])


@given(shape=shapes(9), budget=st.integers(16, 4000))
@settings(max_examples=60, deadline=None)
def test_blocks_stay_within_the_budget(shape, budget):
    store = memory_store("preds.zarr", **gaussian(shape))
    pixel_bytes = 2 * 2 * 4
    assert all(block.num_pixels * pixel_bytes <= budget for block in plan_blocks(store, budget))


def test_one_pixel_beyond_the_budget_is_still_read(tmp_path):
    assert validate(memory_store(tmp_path, **gaussian()), budget=1).valid == 60


@pytest.mark.parametrize(
    ("rows_in_budget", "starts"), [(10, [0, 8]), (4, [0, 4, 8]), (3, [0, 3, 4, 7, 8, 11]), (20, [0])]
)
def test_blocks_end_at_chunk_borders(tmp_path, rows_in_budget, starts):
    store = memory_store(tmp_path, (4, 5, 1), **gaussian((12, 5, 1)))
    blocks = plan_blocks(store, rows_in_budget * 5 * 16)
    assert [block.selection[0].start for block in blocks] == starts


def test_no_chunk_is_decoded_twice_if_a_chunk_of_every_member_fits(tmp_path, monkeypatch):
    arrays = gaussian((2, 32, 8), members=3)
    group = zarr.open_group(tmp_path / "preds.zarr", mode="w", attributes={"version": 1, "kind": "gaussian"})
    for name, values in arrays.items():
        group.create_array(name, data=values, chunks=(1, 8, 8) if name == "target" else (1, 1, 8, 8))
    store = open_store(tmp_path / "preds.zarr")
    read = []
    get = zarr.storage.LocalStore.get

    async def counted(self, key, *args, **options):
        read.append(key)
        return await get(self, key, *args, **options)

    monkeypatch.setattr(zarr.storage.LocalStore, "get", counted)
    validate(store, budget=13 * 8 * 3 * 8)
    chunks = [key for key in read if "/c/" in key]
    assert len(chunks) == len(set(chunks)) == 2 * 3 * 2 * 4 + 2 * 4


def test_two_blocks_are_in_memory_at_most(tmp_path):
    store = memory_store(tmp_path, **gaussian((40, 5, 1)))
    alive = weakref.WeakSet()
    reader = StoredPredictions(store, budget=5 * 16)
    read = reader._read

    def watched(block):
        assert len(alive) <= 1
        checked = read(block)
        alive.add(checked.pixels.outputs["mean"])
        return checked

    reader._read = watched
    assert sum(len(pixels.target) for pixels in reader) == 200


def test_abandoned_iteration_leaves_no_thread(tmp_path):
    before = threading.active_count()
    iterator = iter(StoredPredictions(memory_store(tmp_path, **gaussian()), budget=200))
    next(iterator)
    iterator.close()
    assert threading.active_count() == before


def test_scanned_counts_all_pixels_read(tmp_path):
    valid = np.zeros(SHAPE, dtype=bool)
    valid[1, 2:] = valid[2, 3, 4] = True
    reader = StoredPredictions(memory_store(tmp_path, **gaussian(valid=valid)), budget=100)
    assert sum(pixels.scanned for pixels in reader) == 60


def test_images_are_numbered(tmp_path):
    reader = StoredPredictions(memory_store(tmp_path, **gaussian()), budget=100)
    images = torch.cat([pixels.image for pixels in reader])
    np.testing.assert_array_equal(images.numpy(), np.arange(3).repeat(20))


def test_stores_without_images_have_no_image_numbers(tmp_path):
    (pixels,) = StoredPredictions(memory_store(tmp_path, **gaussian((60,))))
    assert pixels.image is None


def test_reading_twice_gives_the_same_blocks(tmp_path):
    reader = StoredPredictions(memory_store(tmp_path, **gaussian()), budget=300)
    first, second = ([pixels.target for pixels in reader] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_outputs_of_blocks_without_a_valid_pixel_are_not_read(tmp_path):
    valid = np.zeros(SHAPE, dtype=bool)
    valid[0] = True
    store = memory_store(tmp_path, **gaussian(valid=valid))
    read = []
    source = store.arrays["mean"]
    values = source.read
    object.__setattr__(source, "read", lambda selection: (read.append(selection[1].start), values(selection))[1])
    validate(store, budget=20 * 16)
    assert set(read) == {0}


def test_masked_and_ignored_pixels_are_counted_once(tmp_path):
    arrays = categorical()
    target = edited(arrays["target"], (0, slice(0, 2)), 255)
    valid = np.ones(SHAPE, dtype=bool)
    valid[0, 0] = False
    tally = validate(memory_store(tmp_path, **{**arrays, "target": target, "valid": valid}))
    assert tally == Tally(valid=50, masked=5, ignored=5, skipped=0)


def test_ignore_index_replaces_255(tmp_path):
    arrays = categorical()
    tally = validate(memory_store(tmp_path, **arrays), ignore_index=2)
    assert tally.ignored == (arrays["target"] == 2).sum()


def test_255_is_a_class_where_there_are_that_many(tmp_path):
    probs = np.full((1, 4, 256), 1 / 256)
    assert validate(memory_store(tmp_path, probs=probs, target=np.full(4, 255))).valid == 4


def test_ignore_index_does_not_concern_gaussian_targets(tmp_path):
    store = memory_store(tmp_path, **gaussian(target=np.full(SHAPE, 255.0)))
    assert validate(store, ignore_index=255).valid == 60


@pytest.mark.parametrize(
    ("arrays", "name"),
    [
        (gaussian(mean=edited(gaussian()["mean"], (1, 0, 2, 3), np.nan)), "mean"),
        (gaussian(variance=edited(gaussian()["variance"], (1, 0, 2, 3), np.inf)), "variance"),
        (categorical(probs=edited(categorical()["probs"], (1, 0, 2, 3, 0), np.nan)), "probs"),
    ],
)
def test_invalid_values_are_counted_and_their_first_place_named(tmp_path, arrays, name):
    message = error(memory_store(tmp_path, **arrays))
    assert f"1 value of '{name}' NaN or infinite, in 1 pixel, first at member 1, image 0, row 2, column 3" in message


def test_invalid_values_are_counted_to_the_end(tmp_path):
    mean = edited(gaussian()["mean"], (slice(None), [0, 2], 1, 1), -np.inf)
    target = edited(gaussian()["target"], (1, 0, 0), np.nan)
    message = error(memory_store(tmp_path, **gaussian(mean=mean, target=target)), budget=100)
    assert (
        "4 values of 'mean' and 1 value of 'target' NaN or infinite, in 3 pixels, first at member 0, image 0" in message
    )


def test_nothing_is_yielded_after_an_invalid_value(tmp_path):
    store = memory_store(tmp_path, **gaussian(mean=edited(gaussian()["mean"], (0, 1, 0, 0), np.nan)))
    seen = []
    with pytest.raises(InputError):
        seen.extend(int(pixels.image[0]) for pixels in StoredPredictions(store, budget=20 * 16))
    assert seen == [0]


def test_invalid_target_is_placed_without_a_member(tmp_path):
    message = error(memory_store(tmp_path, **gaussian(target=edited(gaussian()["target"], (2, 0, 0), np.nan))))
    assert "first at image 2, row 0, column 0;" in message


def test_invalid_values_can_be_skipped(tmp_path):
    arrays = gaussian(mean=edited(gaussian()["mean"], (0, 1, slice(0, 2)), np.nan))
    reader = StoredPredictions(memory_store(tmp_path, **arrays), skip_invalid=True, budget=200)
    means = torch.cat([pixels.outputs["mean"] for pixels in reader], dim=1)
    kept = ~np.isnan(arrays["mean"]).any(0)
    np.testing.assert_array_equal(means.numpy(), arrays["mean"][:, kept])
    assert reader.tally == Tally(valid=50, masked=0, ignored=0, skipped=10)


def test_invalid_values_under_the_mask_do_not_matter(tmp_path):
    valid = edited(np.ones(SHAPE, dtype=bool), (0, 0, 0), False)
    arrays = gaussian(mean=edited(gaussian()["mean"], (0, 0, 0, 0), np.nan), valid=valid)
    assert validate(memory_store(tmp_path, **arrays)).masked == 1


def test_values_that_overflow_when_summed_are_not_invalid(tmp_path):
    store = memory_store(tmp_path, **gaussian(mean=np.full((2, *SHAPE), 3e38, dtype=np.float32)))
    assert validate(store).valid == 60


@pytest.mark.parametrize("name", ["mean", "target"])
def test_an_image_that_was_never_written_is_suspected(tmp_path, name):
    index = (0, 1) if name == "mean" else 1
    message = error(memory_store(tmp_path, **gaussian(**{name: edited(gaussian()[name], index, np.nan)})))
    assert "never written" in message


@pytest.mark.parametrize("skip_invalid", [True, False])
def test_negative_variance_is_refused(tmp_path, skip_invalid):
    store = memory_store(tmp_path, **gaussian(variance=edited(gaussian()["variance"], (1, 2, 3, 4), -0.5)))
    message = error(store, skip_invalid=skip_invalid)
    assert "variance -0.5 at member 1, image 2, row 3, column 4 is negative; was the log variance stored?" in message


def test_variance_zero_is_accepted(tmp_path):
    assert validate(memory_store(tmp_path, **gaussian(variance=np.zeros((2, *SHAPE))))).valid == 60


def test_probs_outside_0_and_1_are_refused(tmp_path):
    probs = edited(categorical()["probs"], (1, 2, 3, 4), [3, -2, 0, 0])
    message = error(memory_store(tmp_path, **categorical(probs=probs)))
    assert "probs 3 at member 1, image 2, row 3, column 4 is outside [0, 1]; are these logits?" in message


@pytest.mark.parametrize(("dtype", "accepted", "refused"), [(np.float16, 5e-3, 2e-2), (np.float32, 5e-4, 2e-3)])
def test_probs_sum_to_1_within_the_tolerance_of_their_dtype(tmp_path, dtype, accepted, refused):
    for excess in (accepted, refused):
        probs = np.full((2, *SHAPE, 4), 0.25, dtype=dtype)
        probs[1, 2, 3, 4, 0] += dtype(excess)
        store = memory_store(tmp_path, **categorical(probs=probs))
        if excess == accepted:
            assert validate(store).valid == 60
        else:
            assert "at member 1, image 2, row 3, column 4 is not 1" in error(store)


def test_logits_may_have_any_finite_value(tmp_path):
    logits = np.full((2, *SHAPE, 4), -1e30)
    assert validate(memory_store(tmp_path, logits=logits, target=np.zeros(SHAPE, int))).valid == 60


@pytest.mark.parametrize("label", [4, -2, 254])
def test_targets_outside_the_classes_are_refused(tmp_path, label):
    target = edited(categorical()["target"], (1, 2, 3), label)
    message = error(memory_store(tmp_path, **categorical(target=target)), skip_invalid=True)
    assert f"target {label} at image 1, row 2, column 3 is none of the 4 classes" in message


def test_a_target_that_was_never_written_is_suspected(tmp_path):
    target = edited(categorical()["target"], 1, -1)
    assert "never written" in error(memory_store(tmp_path, **categorical(target=target)))


def test_no_valid_pixel_says_why(tmp_path):
    target = np.full(SHAPE, 255)
    valid = edited(np.zeros(SHAPE, dtype=bool), 0, True)
    message = error(memory_store(tmp_path, **categorical(target=target, valid=valid)))
    assert "none of 60 pixels is valid (40 masked by 'valid', 20 with the ignored label, 0 with" in message


def test_only_skipped_pixels_say_so(tmp_path):
    store = memory_store(tmp_path, **gaussian(target=np.full(SHAPE, np.nan)))
    assert "60 with NaN or infinite values" in error(store, skip_invalid=True)


def assert_damage_is_named(path, chunk, damage):
    chunk.write_bytes(damage(chunk.read_bytes()))
    message = error(open_store(path), budget=20 * 16)
    assert "array 'mean' from member 1, image 2, row 0, column 0: cannot be read" in message


CUT = [lambda content: content[:-1], lambda content: content[:20], lambda content: b"", lambda content: b"x" * 200]


@pytest.mark.parametrize("damage", [*CUT, lambda content: content[:30] + b"x" + content[31:]])
def test_a_damaged_chunk_is_named(tmp_path, damage):
    path = tmp_path / "preds.zarr"
    write_store(path, kind="gaussian", **gaussian())
    assert_damage_is_named(path, path / "mean" / "c" / "1" / "2" / "0" / "0", damage)


@pytest.mark.parametrize("damage", CUT)
@pytest.mark.parametrize(
    "codec",
    [zarr.codecs.BloscCodec(cname="lz4"), zarr.codecs.GzipCodec(), zarr.codecs.ZstdCodec()],
    ids=lambda codec: type(codec).__name__,
)
def test_a_chunk_without_checksum_that_is_cut_short_is_named(tmp_path, damage, codec):
    path = tmp_path / "preds.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=3, attributes={"version": 1, "kind": "gaussian"})
    for name, values in gaussian().items():
        group.create_array(name, data=values, chunks=(1, 1, 4, 5)[-values.ndim :], compressors=codec)
    assert_damage_is_named(path, path / "mean" / "c/1/2/0/0", damage)


def test_a_damaged_npz_is_named(tmp_path):
    path = tmp_path / "preds.npz"
    np.savez(path, **gaussian((50, 20, 20)))
    content = bytearray(path.read_bytes())
    content[100_000] ^= 255
    path.write_bytes(content)
    assert "array 'mean': cannot be read" in error(open_store(path))


def test_errors_surface_after_the_blocks_before(tmp_path):
    store = memory_store(tmp_path, **gaussian(variance=edited(gaussian()["variance"], (0, 2, 0, 0), -1)))
    seen = []
    with pytest.raises(InputError):
        seen.extend(int(pixels.image[0]) for pixels in StoredPredictions(store, budget=20 * 16))
    assert seen == [0, 1]


@pytest.mark.parametrize(
    ("shape", "position", "words"),
    [
        ((60,), 7, "sample 7"),
        ((6, 1), 2, "sample 2"),
        ((3, 4, 5), 27, "image 1, row 1, column 2"),
        ((3, 2, 2, 5), 27, "image 1, index (0, 1, 2)"),
    ],
)
def test_places_in_words(tmp_path, shape, position, words):
    assert location(memory_store(tmp_path, **gaussian(shape)), position) == words


def test_places_name_members_and_images(tmp_path):
    ids = {"member_id": np.array(["net_a", "net_b"]), "image_id": np.array(["x", "y", "z"])}
    store = memory_store(tmp_path, **gaussian(**ids))
    assert location(store, 27, 1) == "member 1 ('net_b'), image 1 ('y'), row 1, column 2"
