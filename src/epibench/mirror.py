"""A run folder on object storage (s3://, gs://, abfs://, whatever fsspec knows): a local folder that mirrors a URL.

All work is done in the local folder. Every file that is written whole there becomes one object (a PUT is atomic), and
what others have written is fetched when a command begins. There are no locks, so that two machines may do the same work
twice, but never wrongly: of trained weights the first file wins, and whoever comes second takes it over.
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
VARIABLE = "EPIBENCH_MIRROR"  # the folder and, in a second line, the URL, for this process and those that it starts
WAITS = (1.0, 4.0, 15.0)  # seconds before a request that failed is made again
STATE = ".unfinished.safetensors"
WEIGHTS = ".safetensors"
MEMBERS = "members/"
STRETCHES = ".stretches"
PICTURES = "pictures/"  # files whose names are hashes of their contents
PROBE = ".writable-"  # an object that is written to see whether one can
UNPUSHED = ".unpushed"  # a folder with an empty file for every one that is still to be pushed
LEFT_OUT = ("predictions", "video", "wandb", "mlflow.db", UNPUSHED)  # stay where they were made


def is_url(text: str) -> bool:
    """Whether a folder is named by a URL."""
    return "://" in text


def is_shown(name: str) -> bool:
    """Whether a page needs a file: results or a picture."""
    return name.endswith(".json") or name.startswith(PICTURES)


def is_read(name: str, reads: tuple[str, ...]) -> bool:
    """Whether a task needs a file: of networks and stretches, those whose names begin so; of all others, each."""
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
        """Names below the URL, with their sizes."""
        root = self.storage._strip_protocol(self.url).strip("/")
        found = self.storage.find(self.url, detail=True)
        return {name.strip("/").removeprefix(root).strip("/"): int(info["size"]) for name, info in found.items()}

    def pull(self, wanted: Callable[[str], bool] = lambda name: True) -> None:
        """Fetch what is there and missing here, or another; of two states of one work, the further one stays.

        What is still to be pushed stays, too.
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
        """How far a state there is, by its first bytes; size: of the whole object."""

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
        """Write a file as one object; weights that others have finished first are taken over."""
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
        """Remove an object, and do not push its file any more."""
        (self.folder / UNPUSHED / name).unlink(missing_ok=True)
        self.storage.rm_file(self._object(name))

    def unpushed(self) -> list[str]:
        """Files whose last version could not be pushed."""
        return _names(self.folder / UNPUSHED)

    def push_unpushed(self) -> None:
        """Push what could not be pushed before, unless others have come further meanwhile."""
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
        """Whether a state or a stretch is of no use any more: its work is finished, or its state there further."""
        if (finished := finished_names(name)) and any(
            each in there or (self.folder / each).exists() for each in finished
        ):
            return True
        further = name.endswith(STATE) and name in there
        return further and self.progress(name, there[name]) >= progress_here(self.folder / name)

    def push_missing(self) -> None:
        """Push what is not there at all; states and stretches that others have removed are not needed any more."""
        self.storage.invalidate_cache()
        there = self.objects()
        for name in _names(self.folder):
            if _is_mirrored(name) and name not in there and not finished_names(name):
                self.push(name)


def open_mirror(url: str, cache: Path, wanted: Callable[[str], bool] = lambda name: True) -> Path:
    """The local folder of a URL, below a cache, with what is there; from now on what is written goes there, too."""
    folder = cache / "mirrors" / hashlib.blake2b(url.rstrip("/").encode(), digest_size=8).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    mirror = Mirror(folder.resolve(), url)
    try:
        _push(mirror, Mirror.push_unpushed)
    except OSError as error:  # it stays here, and is tried again in the end
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
    """Refuse the URL of this process' mirror, if it has one, where nothing can be written: before work is done."""
    if (mirror := current()) is None:
        return
    name = f"{PROBE}{uuid.uuid4().hex}"
    try:
        _again(lambda: mirror.storage.pipe_file(mirror._object(name), b""))
    except OSError as error:
        raise InputError(f"{mirror.url}: cannot be written ({_in_words(error)}); give another --out") from None
    with suppress(Exception):  # not allowed to remove anything: then an empty object stays, which nobody reads
        mirror.storage.rm_file(mirror._object(name))


def fetch_current(wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Fetch what others have written to the URL of this process' mirror, if it has one, of names that are wanted."""
    if (mirror := current()) is None:
        return
    mirror.folder.mkdir(parents=True, exist_ok=True)
    try:
        _again(lambda: mirror.pull(wanted))
    except OSError as error:
        raise InputError(f"{mirror.url}: cannot be read ({_in_words(error)}); can every node reach it?") from None


def push_unpushed() -> None:
    """Push what could not be pushed before; an error says what is still here alone."""
    if (mirror := current()) is not None:
        _push(mirror, Mirror.push_unpushed)


def close_mirror() -> None:
    """Push what could not be pushed before, and all else that is missing there."""
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
    """What is written from now on stays here."""
    os.environ.pop(VARIABLE, None)


def current() -> Mirror | None:
    """The mirror that this process, or the one that started it, has opened."""
    folder, _, url = os.environ.get(VARIABLE, "").partition("\n")
    return Mirror(Path(folder), url) if folder else None


def written(path: Path) -> None:
    """Push a whole file, if it belongs to the mirror; if that fails, work goes on, and it is tried again in the end."""
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
    """A file is no longer needed: remove its object, too; one that stays does no harm."""
    mirror = current()
    if mirror is not None and mirror.folder in path.parents:
        with suppress(OSError):
            mirror.remove(path.relative_to(mirror.folder).as_posix())


def _again(request: Callable[[], Value]) -> Value:
    """A request, made again where it fails; in the end as an OSError, as each service has errors of its own."""
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
    """Whether a file is part of the run, and not a lock or something unfinished."""
    parts = Path(name).parts
    return bool(parts) and parts[0] not in LEFT_OUT and not parts[-1].startswith(".") and not name.endswith(".lock")


def finished_names(name: str) -> tuple[str, ...]:
    """The files that make a state or a stretch needless, one of which is enough; none of another file."""
    folder = name.rpartition("/")[0]
    if folder.endswith(STRETCHES):
        return (f"{folder.removesuffix(STRETCHES)}.json",)
    work = name.removesuffix(STATE)
    return (f"{work}{WEIGHTS}", f"{work}.json") if name.endswith(STATE) else ()


def _names(folder: Path) -> list[str]:
    """The files below a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def progress_here(path: Path) -> float:
    """How far a state in a local file is."""
    with path.open("rb") as file:

        def read(start: int, end: int) -> bytes:
            file.seek(start)
            return file.read(end - start)

        return _progress(read, path.stat().st_size)


def _progress(read: Callable[[int, int], bytes], size: int) -> float:
    """How far a state is: the steps or images in the notes of its file; −1 where it cannot be read.

    read: some of its bytes, from where to where; size: how many it has.
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
