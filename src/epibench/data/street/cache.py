"""Frames kept on disk: one file each, in a folder whose name depends on everything that a frame depends on."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from epibench.data.street.camera import Camera
from epibench.data.street.domains import Domain
from epibench.data.street.frames import VERSION, Frame, render_frame

ARRAYS = ("image", "labels", "depth", "sparse_depth", "target_depth")
POSE = ("x", "height", "yaw", "pitch", "roll")


@dataclass(frozen=True)
class FrameCache:
    """The frames of one domain, seed and size in a folder."""

    folder: Path
    domain: Domain
    seed: int
    size: tuple[int, int]

    @property
    def place(self) -> Path:
        """The folder of exactly these frames."""
        settings = json.dumps([VERSION, asdict(self.domain), self.seed, self.size], sort_keys=True)
        return self.folder / f"street-{hashlib.sha256(settings.encode()).hexdigest()[:16]}"

    def frame(self, index: int) -> Frame:
        """The frame from its file, or made and kept; a file that cannot be read is made anew."""
        path = self.place / f"{index:08d}.npz"
        try:
            # Opened here: NumPy leaves a file that is no zip open.
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                pose = dict(zip(POSE, file["pose"].tolist(), strict=True))
                return Frame(**{name: file[name] for name in ARRAYS}, camera=Camera(self.size, **pose))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            pass
        frame = render_frame(self.domain, self.seed, index, self.size)
        self._keep(path, frame)
        return frame

    def _keep(self, path: Path, frame: Frame) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Each process has a name of its own: whoever is last replaces the same by the same.
        unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
        with unfinished.open("wb") as stream:
            pose = np.array([getattr(frame.camera, name) for name in POSE])
            np.savez(stream, pose=pose, **{name: getattr(frame, name) for name in ARRAYS})
        os.replace(unfinished, path)
