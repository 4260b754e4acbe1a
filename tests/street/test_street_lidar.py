"""The scanner beside the camera: whom its beams meet, what it sees past edges, and how that grows with severity."""

import numpy as np
import pytest

from epibench.street import Domain, render_frame
from epibench.street.camera import Camera
from epibench.street.lidar import beam_angles, make_beams, scan_past_edges

SIZE = (375, 1242)
CAMERA = Camera(SIZE)
NEAR, FAR, ASIDE = 8.0, 40.0, 0.47
SHIFT = CAMERA.focal * ASIDE * (1 / NEAR - 1 / FAR)  # by which the near surface moves before the far one, in pixels


def panel(left, right):
    """A wall with a panel before it, from one column to another."""
    depth = np.full(SIZE, FAR, np.float32)
    depth[:, left:right] = NEAR
    return depth


def scanned(depth, strength=1.0, aside=ASIDE, camera=CAMERA):
    rng = np.random.default_rng(0)
    return scan_past_edges(depth, make_beams(camera, rng, aside=aside), strength, rng)


# The panel begins or ends at the middle of the picture, where it does not matter that the scanner stands farther back.
@pytest.mark.parametrize(("aside", "depth"), [(ASIDE, panel(300, 610)), (-ASIDE, panel(610, 900))])
def test_the_far_wall_is_seen_past_the_edge_on_the_side_of_the_scanner(aside, depth):
    returns = scanned(depth, aside=aside)
    through = (depth[returns.row, returns.column] == NEAR) & (returns.depth == FAR) & (abs(returns.column - 610) < 150)
    into_panel = abs(returns.column[through] - 610)
    assert through.sum() > 200
    assert into_panel.max() == pytest.approx(SHIFT, abs=4)


def test_the_near_panel_hides_the_wall_on_the_other_side():
    returns = scanned(panel(610, 900))
    beside = (returns.column < 610) & (returns.column > 500)
    assert 610 - returns.column[beside].max() == pytest.approx(SHIFT, abs=4)


def test_a_thin_pole_is_met_from_aside():
    depth = panel(700, 708)
    returns = scanned(depth)
    rows = returns.row[(returns.depth == NEAR) & (abs(returns.column - 704) < 5)]
    assert len(np.unique(rows)) > 40


def test_on_a_plane_every_return_has_the_depth_that_the_camera_sees():
    road = np.where(CAMERA.rows > 0.03, 1.65 / np.maximum(CAMERA.rows, 0.03), 0).astype(np.float32)
    depth = np.repeat(road[:, None], SIZE[1], 1)
    returns = scanned(depth)
    assert len(returns.depth) > 10_000
    np.testing.assert_array_equal(returns.depth, depth[returns.row, returns.column])


def test_without_strength_every_return_has_the_depth_that_the_camera_sees():
    depth = panel(300, 610)
    returns = scanned(depth, strength=0.0)
    np.testing.assert_array_equal(returns.depth, depth[returns.row, returns.column])


def test_more_is_seen_past_edges_as_severity_grows():
    def wrong(level):
        made = [render_frame(Domain(lidar=level), 3, index, (128, 256)) for index in range(6)]
        return sum(((frame.sparse_depth > 1.3 * frame.depth) & (frame.depth > 0)).sum() for frame in made)

    low, middle, high = (wrong(level) for level in (0.2, 0.6, 1.0))
    assert 0 < low < middle < high


def test_the_place_beside_the_camera_differs_among_scenes():
    """Seen from the right place, returns on the road lie at the beams' angles; from the camera's they do not."""

    def off(frame, aside):
        camera, (row, column) = frame.camera, np.nonzero((frame.sparse_depth > 0) & (frame.labels == 0))
        ahead = frame.sparse_depth[row, column]
        right, down = ahead * camera.columns[column], ahead * camera.rows[row]
        level = ahead * np.cos(camera.pitch) + down * np.sin(camera.pitch)
        up = ahead * np.sin(camera.pitch) - down * np.cos(camera.pitch)
        angle = np.arctan2(up - 0.08, np.hypot(level + 0.27, right - aside))
        return np.abs(angle[:, None] - beam_angles(SIZE)).min(1).mean()

    places = np.linspace(-0.5, 0.5, 21)
    best = [
        places[np.argmin([off(frame, aside) for aside in places])]
        for frame in (render_frame(Domain(lidar=1e-6), 0, index, SIZE) for index in range(4))
    ]
    assert min(best) < -0.1
    assert max(best) > 0.1
