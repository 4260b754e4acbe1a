"""Depth, occlusion and labels against a ray caster in float64; planes stay planes; edges of image and labels agree."""

from dataclasses import replace

import numpy as np
import pytest
from ray_caster import cast

from epibench.data.cityscapes_classes import CITYSCAPES_TRAIN_IDS
from epibench.street import make_domain, render_frame
from epibench.street.camera import Camera
from epibench.street.domains import draw_conditions
from epibench.street.frames import surface_labels
from epibench.street.layout import make_scene
from epibench.street.parts import Look, Material, Parts
from epibench.street.rendering import FACES, SKY, render
from epibench.street.scene import Ground, Markings, Scene

FLAT = Ground(0.0, 4.0, 0.12, ((9, Material.GRASS),))


def made(domain, index, size=(48, 96)):
    return make_scene(draw_conditions(make_domain(domain), 3, index), 3, index, size)


def alone(camera, *boxes):
    parts = Parts()
    for number, (centre, half) in enumerate(boxes):
        parts.at(0, 0).box(centre, half, Look(number, Material.PLAIN, (0.5, 0.5, 0.5)))
    return Scene(parts.table(), FLAT, Markings(()), camera, (0.3, 0.8, 0.2), (), 0)


@pytest.mark.parametrize(("domain", "index"), [("clean", 0), ("clean", 1), ("wild", 2), ("wild", 4)])
def test_equals_a_ray_caster(domain, index):
    scene = made(domain, index)
    seen = render(scene.parts, scene.ground, scene.camera)
    depth, part = cast(scene)
    drawn = np.where(seen.surface >= 0, seen.surface // FACES, np.where(seen.surface == SKY, -2, -1))
    # Rounding decides at outlines, and between surfaces that touch.
    same = drawn == part
    assert same.mean() > 0.997
    shown = same & (part > -2)
    np.testing.assert_allclose(seen.depth[shown], depth[shown], rtol=2e-4)
    assert (seen.depth[same & (part == -2)] == 0).all()
    # Where another part is drawn, it is as near, or its outline is next to it.
    for row, column in np.argwhere(~same):
        around = part[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
        near = np.isclose(seen.depth[row, column], depth[row, column], rtol=2e-3)
        assert near or drawn[row, column] in around or part[row, column] in drawn[max(row - 1, 0) : row + 2]


def test_a_plane_reprojects_to_a_plane():
    camera = Camera((96, 192), 0.3, 1.6, yaw=0.1, pitch=-0.02, roll=0.03)
    scene = alone(camera, ((2.0, 3.0, 14.0), (5.0, 3.0, 1.0)))
    seen = render(scene.parts, scene.ground, camera)
    wall = seen.surface == 5  # its rear face, z = 13
    u, v = np.meshgrid(camera.columns, camera.rows)
    rays = u[..., None] * camera.axes[0] + v[..., None] * camera.axes[1] + camera.axes[2]
    points = camera.position + seen.depth[..., None] * rays
    assert wall.sum() > 500
    np.testing.assert_allclose(points[wall][:, 2], 13.0, atol=1e-4)
    road = (seen.surface < 0) & (seen.depth > 0) & (np.abs(points[..., 0]) < 3.9)
    np.testing.assert_allclose(points[road][:, 1], 0.0, atol=1e-4)


def test_nearer_hides_farther_whatever_the_order():
    camera = Camera((64, 128))
    near, far = ((0.5, 1.0, 8.0), (1.0, 1.0, 0.5)), ((0.0, 2.0, 20.0), (4.0, 2.0, 0.5))
    both, swapped = (
        render(scene.parts, FLAT, camera) for scene in (alone(camera, near, far), alone(camera, far, near))
    )
    np.testing.assert_array_equal(both.depth, swapped.depth)
    only = render(alone(camera, near).parts, FLAT, camera)
    covered = only.surface >= 0
    assert covered.sum() > 50
    np.testing.assert_array_equal(both.depth[covered], only.depth[covered])


def test_a_part_that_reaches_behind_the_camera_is_drawn():
    camera = Camera((64, 128))
    scene = alone(camera, ((3.0, 2.0, 0.0), (0.5, 2.0, 30.0)))
    seen = render(scene.parts, FLAT, camera)
    depth, _ = cast(scene)
    assert (seen.surface[:, -20:] >= 0).any()
    np.testing.assert_allclose(seen.depth[seen.surface >= 0], depth[seen.surface >= 0], rtol=1e-4)


def test_labels_follow_surfaces_and_the_sky_has_no_depth():
    scene = made("wild", 5, (96, 192))
    seen = render(scene.parts, scene.ground, scene.camera)
    labels = surface_labels(scene, seen)
    assert ((labels == CITYSCAPES_TRAIN_IDS.names.index("sky")) == (seen.depth == 0)).all()
    changes = labels[:, 1:] != labels[:, :-1]
    assert (seen.surface[:, 1:] != seen.surface[:, :-1])[changes].all()


def test_depth_jumps_only_where_surfaces_change():
    scene = made("clean", 6, (96, 192))
    seen = render(scene.parts, scene.ground, scene.camera)
    solid = (seen.surface[:, 1:] >= 0) & (seen.depth[:, 1:] < 60)
    same = (seen.surface[:, 1:] == seen.surface[:, :-1]) & solid
    jump = np.abs(seen.depth[:, 1:] / np.maximum(seen.depth[:, :-1], 1e-6) - 1)
    assert np.quantile(jump[same], 0.99) < 0.2


def test_edges_of_the_image_lie_on_edges_of_the_labels():
    on, off = [], []
    for index in range(6):
        frame = render_frame(make_domain("clean"), 1, index, (128, 256))
        grey = frame.image.astype(float).mean(2)
        step = np.abs(np.diff(grey, axis=1))
        edge = frame.labels[:, 1:] != frame.labels[:, :-1]
        beside = edge.copy()
        beside[:, 1:] |= edge[:, :-1]
        beside[:, :-1] |= edge[:, 1:]
        on.append(step[edge].mean())
        off.append(step[~beside].mean())
    assert np.mean(on) > 5 * np.mean(off)


def test_a_ring_and_a_fence_have_holes():
    camera = Camera((128, 256))
    parts = Parts()
    look = Look(0, Material.PLAIN, (0.5, 0.5, 0.5))
    parts.at(0, 6.0, np.pi / 2).ring((0, 1.6, 0), 1.0, 0.2, look)
    scene = replace(alone(camera), parts=parts.table())
    seen = render(scene.parts, FLAT, camera)
    _, part = cast(scene)
    assert ((seen.surface >= 0) == (part >= 0)).mean() > 0.999
    assert 0.25 < (seen.surface >= 0).sum() / (np.pi * (camera.focal / 6) ** 2) < 0.45  # 1 − 0.8²
