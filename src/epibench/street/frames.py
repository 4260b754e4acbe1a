"""A frame: the camera's and the LiDAR's records of a scene, with the truth; and frames on disk.

On disk a frame is one file, in a folder whose name depends on everything that a frame depends on.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import warnings
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from epibench.data.cityscapes_classes import TRAIN_IDS
from epibench.files import replacing
from epibench.parallel import keep_freed_memory
from epibench.street.arrays import Array, check_whole, generator
from epibench.street.camera import Camera, check_size
from epibench.street.domains import Domain, draw_conditions
from epibench.street.layout import make_scene
from epibench.street.lidar import sparse_depth, target_depth
from epibench.street.lighting import add_haze, add_rain, illuminate, make_sky
from epibench.street.optics import take_picture
from epibench.street.rendering import FACES, Surfaces, ground_material, render
from epibench.street.scene import Scene

VERSION = 4  # increases with every change that changes a frame
# The classes of the materials of sky, road, paving, grass and kerb, which are not parts.
GROUND_LABELS = [TRAIN_IDS[name] for name in ("sky", "road", "sidewalk", "terrain", "sidewalk")]
ARRAYS = {"image": np.uint8, "labels": np.uint8} | dict.fromkeys(("depth", "sparse_depth", "target_depth"), np.float32)
POSE = ("x", "height", "yaw", "pitch", "roll")


@dataclass(frozen=True)
class Frame:
    """image: (height, width, 3) uint8; labels: train ids, (height, width) uint8; depth in metres, 0: none, float32.

    depth is exact and complete; sparse_depth is the input of a network; target_depth is its target.
    """

    image: Array
    labels: Array
    depth: Array
    sparse_depth: Array
    target_depth: Array
    camera: Camera


def render_frame(domain: Domain, seed: int, index: int, size: tuple[int, int] = (256, 512)) -> Frame:
    """Return the frame of an index, a function of the arguments alone."""
    keep_freed_memory()
    seed, index = check_whole("seed", seed), check_whole("index", index)
    conditions = draw_conditions(domain, seed, index)
    scene = make_scene(conditions, seed, index, check_size(size))
    surfaces = render(scene.parts, scene.ground, scene.camera)
    sky = make_sky(conditions)
    light, returned = illuminate(scene, surfaces, sky, conditions)
    light = add_haze(light, surfaces.depth, conditions["haze"], sky)
    light = add_rain(light, conditions["rain"], generator(seed, index, "rain"))
    image = take_picture(light, surfaces.surface, sky.daylight, conditions, generator(seed, index, "camera"))
    sensed = (surfaces.depth, returned, scene.camera, conditions)
    return Frame(
        image=image,
        labels=surface_labels(scene, surfaces),
        depth=surfaces.depth,
        sparse_depth=sparse_depth(*sensed, generator(seed, index, "lidar")),
        target_depth=target_depth(*sensed, generator(seed, index, "target")),
        camera=scene.camera,
    )


def surface_labels(scene: Scene, surfaces: Surfaces) -> Array:
    """The train id of every pixel, uint8."""
    solid = surfaces.surface >= 0
    of_part = scene.parts.label[np.where(solid, surfaces.surface // FACES, 0)]
    of_ground = np.array(GROUND_LABELS)[np.where(solid, 0, ground_material(surfaces.surface))]
    return np.where(solid, of_part, of_ground).astype(np.uint8)


@dataclass(frozen=True)
class FrameCache:
    """The frames of one domain, seed and size in a folder."""

    folder: Path
    domain: Domain
    seed: int
    size: tuple[int, int]

    @property
    def frames_folder(self) -> Path:
        """The folder of exactly these frames."""
        settings = json.dumps([VERSION, asdict(self.domain), self.seed, self.size], sort_keys=True)
        return self.folder / f"street-{hashlib.sha256(settings.encode()).hexdigest()[:16]}"

    @cached_property
    def can_keep(self) -> bool:
        """Whether frames can be written here, with a warning otherwise. It makes the folder."""
        try:
            self.frames_folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.frames_folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            self._warn(error)
            return False
        return True

    def path(self, index: int) -> Path:
        """The file of a frame."""
        return self.frames_folder / f"{index:08d}.npz"

    def frame(self, index: int) -> Frame:
        """Return the frame from its file, or render it and keep it if possible. Unreadable files are rendered again."""
        path = self.path(index)
        if (kept := self._read(path)) is not None:
            return kept
        frame = render_frame(self.domain, self.seed, index, self.size)
        if self.can_keep:
            self._write(path, frame)
        return frame

    def _write(self, path: Path, frame: Frame) -> None:
        pose = np.array([getattr(frame.camera, name) for name in POSE])
        try:
            with replacing(path) as stream:
                np.savez(stream, pose=pose, **{name: getattr(frame, name) for name in ARRAYS})
        except OSError as error:  # the frame exists: a full disk costs time, not the run
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        # The same text from the same line is shown once, for all data sets and frames.
        text = f"street cache {self.folder}: cannot be written to ({reason(error)}); scenes are drawn, but not kept"
        warnings.warn(text, stacklevel=1)

    def _read(self, path: Path) -> Frame | None:
        """The frame in a file; None if there is no such file, or if it is damaged."""
        try:
            # Opened here: NumPy leaves a file that is no zip open.
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                pose, arrays = file["pose"], {name: file[name] for name in ARRAYS}
        except Exception:
            # Damaged bytes raise almost any exception: BadZipFile, NotImplementedError (a method of
            # compression), RuntimeError (encryption), SyntaxError, MemoryError (a huge shape), zlib.error.
            return None
        shapes = {name: (*self.size, 3) if name == "image" else self.size for name in ARRAYS}
        if any(arrays[name].shape != shapes[name] or arrays[name].dtype != ARRAYS[name] for name in ARRAYS):
            return None
        if pose.shape != (len(POSE),) or pose.dtype != np.float64 or not np.isfinite(pose).all():
            return None
        return Frame(**arrays, camera=Camera(self.size, **dict(zip(POSE, pose.tolist(), strict=True))))


def reason(error: OSError) -> str:
    """Return why something cannot be written."""
    in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
    return "a file is in its path" if in_the_way else error.strerror or str(error)
