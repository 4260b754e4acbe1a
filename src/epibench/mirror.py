"""A run folder on object storage: a local folder that mirrors a URL.

The URL may have any protocol of fsspec (s3://, gs://, abfs:// …). All work happens in the local folder. Every complete
file becomes one object, because a PUT is atomic. A command begins by downloading the files of other machines. There are
no locks: two machines may do the same work twice. The first file of trained weights wins. The second machine replaces
its own file by the first one.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from epibench.errors import InputError

Value = TypeVar("Value")
VARIABLE = "EPIBENCH_MIRROR"  # the folder and, on a second line, the URL, for this process and its children
WAITS = (1.0, 4.0, 15.0)  # seconds before each retry of a failed request
STATE = ".unfinished.safetensors"
WEIGHTS = ".safetensors"
MEMBERS = "members/"
STRETCHES = ".stretches"
PICTURES = "pictures/"  # files whose names are hashes of their contents
PROBE = ".writable-"  # an object that is written to see whether one can
UNPUSHED = ".unpushed"  # a folder with an empty file for every one that is still to be pushed
LEFT_OUT = ("predictions", "video", "wandb", "mlflow.db", UNPUSHED)  # stay where they were made


def is_url(text: str) -> bool:
    """Return whether a text is a URL."""
    return "://" in text


def is_shown(name: str) -> bool:
    """Whether a page needs a file: results or a picture."""
    return name.endswith(".json") or name.startswith(PICTURES)


def is_read(name: str, reads: tuple[str, ...]) -> bool:
    """Return whether a task needs a file.

    Files of networks and stretches are needed if their names begin with one of `reads`. All other files are needed.
    """
    folder = name.rpartition("/")[0]
    return name.startswith(reads) or not (folder.startswith(MEMBERS) or folder.endswith(STRETCHES))


@dataclass(frozen=True)
class Mirror:
    """A local folder and the URL that it mirrors."""

    folder: Path
    url: str

    @property
    def storage(self) -> Any:
        """The file system of the URL."""
        return _file_system(self.url.partition("://")[0])

    def _object(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{name}"

    def objects(self) -> dict[str, int]:
        """Return the names of all objects below the URL, with their sizes in bytes."""
        root = self.storage._strip_protocol(self.url).strip("/")
        found = self.storage.find(self.url, detail=True)
        return {name.strip("/").removeprefix(root).strip("/"): int(info["size"]) for name, info in found.items()}

    def pull(self, wanted: Callable[[str], bool] = lambda name: True) -> None:
        """Download files that are missing or differ here, unless they wait for their upload.

        Weights are downloaded only where their size differs. Of two checkpoints the one with more steps stays.
        """
        self.storage.invalidate_cache()
        unpushed = set(self.unpushed())
        for name, size in self.objects().items():
            local = self.folder / name
            if not _is_mirrored(name) or not wanted(name) or name in unpushed:
                continue
            if local.exists() and (name.endswith(WEIGHTS) or name.startswith(PICTURES)):
                if not name.endswith(STATE) and local.stat().st_size == size:
                    continue
                if name.endswith(STATE) and progress_here(local) >= self.progress(name, size):
                    continue
            self._fetch(name)

    def progress(self, name: str, size: int) -> float:
        """Return the steps or images of a remote checkpoint, from its first bytes.

        Args:
            name: Name of the object.
            size: Size of the whole object in bytes.
        """

        def read(start: int, end: int) -> bytes:
            content: bytes = self.storage.cat_file(self._object(name), start=start, end=end)
            return content

        return _progress(read, size)

    def _read(self, name: str) -> bytes:
        content: bytes = self.storage.cat_file(self._object(name))
        return content

    def _fetch(self, name: str) -> None:
        local = self.folder / name
        local.parent.mkdir(parents=True, exist_ok=True)
        beside = local.with_name(f".{local.name}.{os.getpid()}.fetched")
        beside.write_bytes(self._read(name))
        os.replace(beside, local)

    def push(self, name: str) -> None:
        """Upload a file as one object. If finished weights exist remotely, download them instead."""
        mark = self.folder / UNPUSHED / name
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        content, first = (self.folder / name).read_bytes(), name.endswith(WEIGHTS) and not name.endswith(STATE)
        try:
            self.storage.pipe_file(self._object(name), content, mode="create" if first else "overwrite")
        except FileExistsError:
            self._fetch(name)
        mark.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove an object, and cancel the upload of its file."""
        (self.folder / UNPUSHED / name).unlink(missing_ok=True)
        self.storage.rm_file(self._object(name))

    def unpushed(self) -> list[str]:
        """Return the names of files whose last upload failed."""
        return _names(self.folder / UNPUSHED)

    def push_unpushed(self) -> None:
        """Upload files whose upload failed, except those that are outdated meanwhile."""
        if not (names := self.unpushed()):
            return
        self.storage.invalidate_cache()
        there = self.objects()
        for name in names:
            if (self.folder / name).exists() and not self._is_outdated(name, there):
                self.push(name)
            else:
                (self.folder / UNPUSHED / name).unlink(missing_ok=True)

    def _is_outdated(self, name: str, there: Mapping[str, int]) -> bool:
        """Return whether the work of a checkpoint or stretch is finished, or its remote checkpoint has more steps."""
        if (finished := finished_names(name)) and any(
            each in there or (self.folder / each).exists() for each in finished
        ):
            return True
        further = name.endswith(STATE) and name in there
        return further and self.progress(name, there[name]) >= progress_here(self.folder / name)

    def push_missing(self) -> None:
        """Upload files without an object, except checkpoints and stretches: other machines may have removed them."""
        self.storage.invalidate_cache()
        there = self.objects()
        for name in _names(self.folder):
            if _is_mirrored(name) and name not in there and not finished_names(name):
                self.push(name)


def open_mirror(url: str, cache: Path, wanted: Callable[[str], bool] = lambda name: True) -> Path:
    """Make the local folder of a URL, download its files, and mirror it from now on.

    Args:
        url: URL of the run folder.
        cache: Folder below which the local folder lies.
        wanted: Returns whether a file is downloaded, by its name.

    Returns:
        The local folder.

    Raises:
        InputError: The URL cannot be read.
    """
    folder = cache / "mirrors" / hashlib.blake2b(url.rstrip("/").encode(), digest_size=8).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    mirror = Mirror(folder.resolve(), url)
    try:
        _push(mirror, Mirror.push_unpushed)
    except OSError as error:  # the files stay here, and `close_mirror` tries again
        warnings.warn(str(error), stacklevel=2)
    try:
        _again(lambda: mirror.pull(wanted))
    except OSError as error:
        raise InputError(
            f"{url}: cannot be read ({_in_words(error)}); is the address right, and are you let in?"
        ) from None
    os.environ[VARIABLE] = f"{mirror.folder}\n{url}"
    return mirror.folder


def check_writable() -> None:
    """Raise an InputError if this process has a mirror whose URL is not writable."""
    if (mirror := current()) is None:
        return
    name = f"{PROBE}{uuid.uuid4().hex}"
    try:
        _again(lambda: mirror.storage.pipe_file(mirror._object(name), b""))
    except OSError as error:
        raise InputError(f"{mirror.url}: cannot be written ({_in_words(error)}); give another --out") from None
    with suppress(Exception):  # without permission to remove objects, an empty object stays
        mirror.storage.rm_file(mirror._object(name))


def fetch_current(wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Download the wanted files of other machines, if this process has a mirror."""
    if (mirror := current()) is None:
        return
    mirror.folder.mkdir(parents=True, exist_ok=True)
    try:
        _again(lambda: mirror.pull(wanted))
    except OSError as error:
        raise InputError(f"{mirror.url}: cannot be read ({_in_words(error)}); can every node reach it?") from None


def push_unpushed() -> None:
    """Upload files whose upload failed before. An OSError names the folder that keeps them."""
    if (mirror := current()) is not None:
        _push(mirror, Mirror.push_unpushed)


def close_mirror() -> None:
    """Upload files whose upload failed before, and all other files that are missing remotely."""
    if (mirror := current()) is not None:
        _push(mirror, Mirror.push_unpushed, Mirror.push_missing)


def _push(mirror: Mirror, *parts: Callable[[Mirror], None]) -> None:
    try:
        for part in parts:
            _again(lambda part=part: part(mirror))  # type: ignore[misc]
    except OSError as error:
        raise OSError(
            f"{mirror.url}: cannot be written ({_in_words(error)}); all is kept in {mirror.folder}, and the same "
            f"command writes it"
        ) from None


def forget_mirror() -> None:
    """Stop mirroring: files that are written from now on are not uploaded."""
    os.environ.pop(VARIABLE, None)


def current() -> Mirror | None:
    """Return the mirror that this process or its parent has opened, or None."""
    folder, _, url = os.environ.get(VARIABLE, "").partition("\n")
    return Mirror(Path(folder), url) if folder else None


def written(path: Path) -> None:
    """Upload a complete file if it belongs to the mirror. A failure is a warning: `close_mirror` tries again."""
    if (mirror := current()) is None or mirror.folder not in path.parents:
        return
    name = path.relative_to(mirror.folder).as_posix()
    if not _is_mirrored(name):
        return
    try:
        _again(lambda: mirror.push(name))
    except OSError as error:
        text = (
            f"{mirror.url}/{name}: cannot be written ({_in_words(error)}); it is kept in {path}, and tried again later"
        )
        warnings.warn(text, stacklevel=2)


def removed(path: Path) -> None:
    """Remove the object of a file that is no longer needed. A failure is ignored: the object does no harm."""
    mirror = current()
    if mirror is not None and mirror.folder in path.parents:
        with suppress(OSError):
            mirror.remove(path.relative_to(mirror.folder).as_posix())


def _again(request: Callable[[], Value]) -> Value:
    """Retry a request that fails. The last error becomes an OSError, because each service has its own errors."""
    for seconds in (*WAITS, None):
        try:
            return request()
        except (InputError, PermissionError, FileNotFoundError):
            raise
        except Exception as error:
            if seconds is None:
                raise error if isinstance(error, OSError) else OSError(f"{type(error).__name__}: {error}") from None
            time.sleep(seconds)
    raise AssertionError("the last request has returned or raised")


def _in_words(error: OSError) -> str:
    return " ".join(str(error.strerror or error).split())[:300]


def _is_mirrored(name: str) -> bool:
    """Return whether a file is uploaded: not a lock, hidden file or file of `LEFT_OUT`."""
    parts = Path(name).parts
    return bool(parts) and parts[0] not in LEFT_OUT and not parts[-1].startswith(".") and not name.endswith(".lock")


def finished_names(name: str) -> tuple[str, ...]:
    """Return the files of finished work, any of which makes a checkpoint or stretch obsolete. Other files have none."""
    folder = name.rpartition("/")[0]
    if folder.endswith(STRETCHES):
        return (f"{folder.removesuffix(STRETCHES)}.json",)
    work = name.removesuffix(STATE)
    return (f"{work}{WEIGHTS}", f"{work}.json") if name.endswith(STATE) else ()


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def progress_here(path: Path) -> float:
    """Return the steps or images of a local checkpoint."""
    with path.open("rb") as file:

        def read(start: int, end: int) -> bytes:
            file.seek(start)
            return file.read(end - start)

        return _progress(read, path.stat().st_size)


def _progress(read: Callable[[int, int], bytes], size: int) -> float:
    """Return the steps or images in the notes of a checkpoint; −1 if it cannot be read.

    Args:
        read: Returns the bytes of the file from a start to an end.
        size: Size of the file in bytes.
    """
    if size <= 8:
        return -1.0
    try:
        header = json.loads(read(8, min(size, 8 + int.from_bytes(read(0, 8), "little"))))
        notes = json.loads(header["__metadata__"]["notes"])
        return float(notes.get("step", notes.get("images", -1)))
    except (ValueError, KeyError, TypeError):
        return -1.0


@lru_cache
def _file_system(protocol: str) -> Any:
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError:
        raise InputError(f"{protocol}://: needs fsspec; pip install 'epibench[cloud]'") from None
    try:
        options = {"auto_mkdir": True} if protocol == "file" else {}
        return fsspec.filesystem(protocol, **options)
    except ImportError as error:
        raise InputError(f"{protocol}://: {error}") from None
    except ValueError:
        known = "file://, s3://, gs://, abfs://"
        raise InputError(f"{protocol}://: is unknown to fsspec; give a folder, or {known}") from None
