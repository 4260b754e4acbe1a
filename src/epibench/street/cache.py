"""Frames kept on disk: one file each, in a folder whose name depends on everything that a frame depends on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epibench.street.camera import Camera
from epibench.street.domains import Domain
from epibench.street.files import replacing, writing_to
from epibench.street.frames import VERSION, Frame, render_frame

# What follows height and width in the shape, and the type.
ARRAYS: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
    "image": ((3,), np.dtype(np.uint8)),
    "labels": ((), np.dtype(np.uint8)),
    "depth": ((), np.dtype(np.float32)),
    "sparse_depth": ((), np.dtype(np.float32)),
    "target_depth": ((), np.dtype(np.float32)),
}
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

    def make_folder(self) -> None:
        """Make the folder, or say why it cannot be made."""
        with writing_to(f"street cache {self.folder}"):
            self.place.mkdir(parents=True, exist_ok=True)

    def path(self, index: int) -> Path:
        """The file of a frame."""
        return self.place / f"{index:08d}.npz"

    def frame(self, index: int) -> Frame:
        """The frame from its file, or made and kept; a file that cannot be read is made anew."""
        path = self.path(index)
        kept = self._read(path)
        if kept is not None:
            return kept
        frame = render_frame(self.domain, self.seed, index, self.size)
        pose = np.array([getattr(frame.camera, name) for name in POSE])
        with writing_to(f"street cache {self.folder}"), replacing(path) as stream:
            np.savez(stream, pose=pose, **{name: getattr(frame, name) for name in ARRAYS})
        return frame

    def _read(self, path: Path) -> Frame | None:
        """The frame in a file; None if there is no such file, or if it is damaged."""
        if not path.exists():
            return None
        try:
            # Opened here: NumPy leaves a file that is no zip open.
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                pose, arrays = file["pose"], {name: file[name] for name in ARRAYS}
        except Exception:
            # Damaged bytes make zipfile and NumPy raise nearly anything: BadZipFile, NotImplementedError (a method of
            # compression), RuntimeError (encryption), SyntaxError, MemoryError (a huge shape), zlib.error.
            return None
        expected = {name: ((*self.size, *more), dtype) for name, (more, dtype) in ARRAYS.items()}
        if any((arrays[name].shape, arrays[name].dtype) != expected[name] for name in ARRAYS):
            return None
        if pose.shape != (len(POSE),) or pose.dtype != np.float64 or not np.isfinite(pose).all():
            return None
        return Frame(**arrays, camera=Camera(self.size, **dict(zip(POSE, pose.tolist(), strict=True))))
