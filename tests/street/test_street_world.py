"""What is in the scenes: classes, LiDAR, targets; how domains differ."""

import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest

from epibench.data.cityscapes_classes import CITYSCAPES_TRAIN_IDS
from epibench.errors import InputError
from epibench.street import FACTORS, Domain, StreetDataset, make_domain, render_frame
from epibench.street.arrays import generator
from epibench.street.domains import draw_conditions
from epibench.street.layout import make_scene
from epibench.street.lidar import ASIDE, BEAMS, beam_angles

# Percent of the pixels, over 60 scenes; docs/street.md has the shares over more.
SHARES = {
    "road": (22, 42), "sidewalk": (2, 10), "building": (10, 32), "wall": (0.03, 1.5), "fence": (0.1, 2),
    "pole": (0.5, 2.5), "traffic light": (0.02, 0.5), "traffic sign": (0.1, 1.5), "vegetation": (6, 20),
    "terrain": (1.5, 9), "sky": (8, 24), "person": (0.2, 2.0), "rider": (0.05, 1), "car": (3, 12), "truck": (0.2, 4),
    "bus": (0.05, 2), "train": (0.002, 3), "motorcycle": (0.04, 1), "bicycle": (0.04, 1),
}  # fmt: skip

TRAIN_IDS = {name: number for number, name in enumerate(CITYSCAPES_TRAIN_IDS.names)}


def frames(domain, count, size=(64, 128), seed=0):
    made = make_domain(domain) if isinstance(domain, str) else domain
    return [render_frame(made, seed, index, size) for index in range(count)]


@pytest.fixture(scope="module")
def many():
    return {domain: frames(domain, 60) for domain in ("clean", "wild")}


@pytest.mark.parametrize("domain", ["clean", "wild"])
def test_every_class_has_its_share(many, domain):
    counts = sum(np.bincount(frame.labels.ravel(), minlength=256) for frame in many[domain])
    shares = 100 * counts / counts.sum()
    wrong = {
        name: shares[TRAIN_IDS[name]]
        for name, (low, high) in SHARES.items()
        if not low < shares[TRAIN_IDS[name]] < high
    }
    assert not wrong
    assert set(SHARES) == {*CITYSCAPES_TRAIN_IDS.names}
    assert (shares[255] == 0) if domain == "clean" else (0 < shares[255] < 4)


def test_clean_depth_is_dense_and_its_input_is_five_percent(many):
    for frame in many["clean"]:
        np.testing.assert_array_equal(frame.target_depth, np.where(frame.depth <= 80, frame.depth, 0))
        valid = (frame.target_depth > 0).sum()
        given = frame.sparse_depth > 0
        assert given.sum() == round(0.05 * valid)
        np.testing.assert_array_equal(frame.sparse_depth[given], frame.depth[given])


def test_lidar_density_at_the_size_of_kitti():
    made = frames("wild", 4, (375, 1242), seed=2)
    sparse = np.mean([(frame.sparse_depth > 0).mean() for frame in made])
    target = np.mean([(frame.target_depth > 0).mean() for frame in made])
    assert 0.028 < sparse < 0.05
    assert 0.22 < target < 0.36


def test_density_stays_the_same_at_small_sizes(many):
    assert 0.035 < np.mean([(frame.sparse_depth > 0).mean() for frame in many["wild"]]) < 0.06
    assert 0.22 < np.mean([(frame.target_depth > 0).mean() for frame in many["wild"]]) < 0.40


def test_lidar_has_the_beams_of_the_scanner():
    assert len(beam_angles((375, 1242))) == BEAMS == 64
    assert np.degrees(beam_angles((375, 1242))[[0, -1]]) == pytest.approx([2.0, -24.33])
    assert len(beam_angles((256, 512))) == 34
    frame = render_frame(Domain(lidar=1e-6), 0, 3, (375, 1242))
    given = frame.sparse_depth > 0
    # On the road lines are far apart: in any column, most of the pixels between two returns are empty.
    rows = [np.flatnonzero(given[250:, column]) for column in range(300, 900, 7)]
    gaps = np.concatenate([np.diff(found) for found in rows if len(found) > 1])
    assert np.median(gaps) >= 3
    # Seen from the scanner, 8 cm above, 27 cm behind and at its place aside, returns lie at the beams' angles.
    camera, aside = frame.camera, generator(0, 3, "lidar").uniform(-ASIDE, ASIDE)
    row, column = np.nonzero(given)
    ahead = frame.sparse_depth[given]
    right, down = ahead * camera.columns[column], ahead * camera.rows[row]
    level = ahead * np.cos(camera.pitch) + down * np.sin(camera.pitch)
    up = ahead * np.sin(camera.pitch) - down * np.cos(camera.pitch)
    angle = np.degrees(np.arctan2(up - 0.08, np.hypot(level + 0.27, right - aside)))
    off = np.abs(angle[:, None] - np.degrees(beam_angles((375, 1242)))).min(1)
    assert (off < 0.06).mean() > 0.9
    assert len(ahead) > 12_000


def test_returns_are_lost_on_dark_and_glassy_surfaces():
    seen, dim = [], []
    for index in range(12):
        frame = render_frame(Domain(lidar=1.0), 0, index, (128, 256))
        full = render_frame(Domain(lidar=1e-9), 0, index, (128, 256))
        for labels, rates in ((("sidewalk", "building"), seen), (("car",), dim)):
            place = np.isin(frame.labels, [TRAIN_IDS[name] for name in labels])
            expected = (full.sparse_depth[place] > 0).sum()
            if expected > 30:
                rates.append((frame.sparse_depth[place] > 0).sum() / expected)
    assert np.mean(dim) < np.mean(seen) - 0.05


def test_semi_dense_targets_have_small_errors(many):
    errors = np.concatenate(
        [(frame.target_depth / np.maximum(frame.depth, 1e-6) - 1)[frame.target_depth > 0] for frame in many["wild"]]
    )
    assert 0.0005 < np.median(np.abs(errors)) < 0.01
    assert np.quantile(np.abs(errors), 0.95) < 0.1
    assert np.abs(errors).max() > 0.2  # strays at edges


def test_sparse_input_has_mixed_returns_at_edges(many):
    errors = np.concatenate(
        [(frame.sparse_depth / np.maximum(frame.depth, 1e-6) - 1)[frame.sparse_depth > 0] for frame in many["wild"]]
    )
    assert np.quantile(np.abs(errors), 0.5) < 0.02
    assert 0.005 < (np.abs(errors) > 0.2).mean() < 0.12


@pytest.mark.parametrize("size", [(128, 256), (256, 512)])
def test_on_open_road_the_lidar_errs_by_its_range_noise_alone(size):
    errors, far = [], 0
    for frame in frames(make_domain("wild"), 8, size):
        road = frame.labels == TRAIN_IDS["road"]
        around = np.lib.stride_tricks.sliding_window_view(road, (3, 3)).all((2, 3))
        open_road = np.zeros_like(road)
        open_road[1:-1, 1:-1] = around
        open_road &= frame.sparse_depth > 0
        errors.append(np.abs(frame.sparse_depth - frame.depth)[open_road])
        far += (frame.depth[open_road] > 20).sum()
    assert far > 50
    assert np.concatenate(errors).max() < 0.1  # five times 2 cm
    assert np.concatenate(errors).std() > 0.005


def test_no_return_lies_at_the_limit_of_the_range(many):
    for frame in many["wild"]:
        for depth in (frame.sparse_depth, frame.target_depth):
            assert depth.max() <= 80
            assert (depth == 80).sum() == 0


def test_bins_and_cones_stand_on_the_ground():
    on_road = 0
    for index in range(80):
        scene = make_scene(draw_conditions(Domain(objects=1.0), 0, index), 0, index, (64, 128))
        parts, ground = scene.parts, scene.ground
        loose = (parts.label == 255) & (parts.half[:, 1] < 0.6) & (parts.half[:, 1] > 0.3)
        for centre, half in zip(parts.centre[loose], parts.half[loose], strict=True):
            foot = centre[1] - half[1]
            if foot > 0.5:
                continue  # boards and parts of bridges
            height = 0.0 if ground.off_road(centre[0], centre[2]) < 0 else ground.kerb
            assert foot == pytest.approx(height, abs=1e-3)
            on_road += height == 0
    assert on_road > 3


@pytest.mark.parametrize("index", range(4))
def test_the_image_moves_away_from_clean_with_severity(index):
    def image(severity):
        domain = make_domain("wild", severity).without("layout", "objects")
        return render_frame(domain, 4, index, (96, 192)).image.astype(float)

    clean = image(0)
    distances = [np.sqrt(((image(severity) - clean) ** 2).mean()) for severity in (1, 2, 3, 4, 5)]
    assert distances[0] > 0
    assert all(low < high for low, high in itertools.pairwise(distances)), distances


def test_severity_zero_is_clean():
    assert make_domain("wild", 0).without() == Domain(mixed=True)
    for one, other in zip(frames(make_domain("wild", 0), 2), frames("clean", 2), strict=True):
        np.testing.assert_array_equal(one.image, other.image)
        np.testing.assert_array_equal(one.sparse_depth, other.sparse_depth)


@pytest.mark.parametrize("factor", FACTORS)
def test_a_factor_alone_changes_what_it_says(factor):
    clean, shifted = render_frame(Domain(), 1, 2, (64, 128)), render_frame(make_domain(factor), 1, 2, (64, 128))
    changed = {
        name
        for name in ("image", "labels", "sparse_depth", "target_depth")
        if not np.array_equal(getattr(clean, name), getattr(shifted, name))
    }
    if factor in ("layout", "objects"):
        assert changed == {"image", "labels", "sparse_depth", "target_depth"}
    else:
        assert changed == {{"lidar": "sparse_depth", "target": "target_depth"}.get(factor, "image")}


def test_weather_comes_one_at_a_time_in_wild_and_always_alone():
    drawn = [draw_conditions(make_domain("wild"), 0, index) for index in range(300)]
    kinds = [[conditions[name] > 0 for name in ("haze", "rain", "night")] for conditions in drawn]
    assert max(sum(kind) for kind in kinds) == 1
    assert 0.3 < np.mean([sum(kind) for kind in kinds]) < 0.7
    assert all(draw_conditions(make_domain("haze"), 0, index)["haze"] > 0.5 for index in range(50))


def test_patches_show_the_domains_apart(many):
    benchmark = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "street.py"))
    frechet_distance, patch_descriptors = benchmark["frechet_distance"], benchmark["patch_descriptors"]
    size = (64, 128)
    clean = patch_descriptors(many["clean"])
    floor = frechet_distance(clean, patch_descriptors(frames("clean", 40, size, seed=1)))
    middle = frechet_distance(clean, patch_descriptors(frames(make_domain("wild", 2.5), 40, size, seed=1)))
    wild = frechet_distance(clean, patch_descriptors(many["wild"]))
    assert 2 * floor < middle < wild


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_domain("fog"), "street domain 'fog' is unknown; there are clean, wild, layout"),
        (lambda: make_domain("night+fog"), "street domain 'fog' is unknown"),
        (lambda: make_domain("wild", 6), "street severity 6: give a number from 0 (clean) to 5"),
        (lambda: make_domain("wild", float("nan")), "street severity nan: give a number from 0 (clean) to 5"),
        (lambda: make_domain("clean", 2), "street domain 'clean' has severity 0, not 2: take 'wild'"),
        (lambda: Domain(haze=1.5), "street domain: level 1.5 of 'haze' is not between 0 and 1"),
        (lambda: render_frame(Domain(), 0, 0, (16, 512)), "street size 16×512: give a height and width from 32×64"),
        (lambda: StreetDataset("flow"), "street task 'flow' is unknown; there are depth, segmentation"),
        (lambda: render_frame(Domain(), 0, 0, (64, 128.5)), "street size (64, 128.5): give a height and a width"),
        (lambda: render_frame(Domain(), 0, 0, 64), "street size 64: give a height and a width"),
        (lambda: render_frame(Domain(), 0, 0, (64, 128, 3)), "street size (64, 128, 3): give a height and a width"),
        (lambda: render_frame(Domain(), -1, 0), "street seed -1: give a whole number ≥ 0"),
        (lambda: render_frame(Domain(), 0, -1), "street index -1: give a whole number ≥ 0"),
        (lambda: render_frame(Domain(), 0.5, 0), "street seed 0.5: give a whole number ≥ 0"),
        (lambda: Domain(haze="much"), "street domain: level 'much' of 'haze' is not between 0 and 1"),
        (lambda: StreetDataset("depth", length=0), "street length 0: give a whole number ≥ 1"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
