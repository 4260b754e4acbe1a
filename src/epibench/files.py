"""Files that are whole or not there: written beside and renamed; and fingerprints of what decides a result."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from epibench import mirror
from epibench.errors import InputError

Json = Any  # what json.dumps takes
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")  # of what becomes a file: a method, a domain

UNFINISHED = ".unfinished"
_OWNER = re.compile(rf"\..*\.([^.]+)-(\d+)-\d+{re.escape(UNFINISHED)}")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a disk, a quota, the limit of a process
DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_ABANDONED_SECONDS = 24 * 3600  # processes of other machines cannot be asked whether they live
_NUMBERS = re.compile(r"\[\n([-+.,\deEnul\s]+)\]")  # no text of JSON holds a line break
_CHECKSUM = re.compile(rb',\n "checksum": "([0-9a-f]{32})"\n}\n\Z')
VERIFIED_LIMIT = 2**28
_NAME_BYTES = 255  # what most file systems allow
_numbers = itertools.count()


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a stream that becomes the file at its end: readers see the old file or the whole new one.

    Written beside `path`, with the permissions that the user's umask gives, then renamed. A device or a pipe is
    written straight into. A link is followed; if it leads into a folder that does not exist, the file takes its place.
    What the system refuses is an OSError that names `path`.
    """
    followed = Path(os.path.realpath(path))
    path = followed if followed.parent.is_dir() or not path.is_symlink() else path
    if path.is_dir():
        raise InputError(f"{path}: a folder is where a file is to be written; remove it and run the command again")
    if path.exists() and not path.is_file():
        with naming(path), path.open("wb") as stream:
            yield stream
        return
    with naming(path), _beside(path) as beside:
        with beside.open("xb") as stream:
            yield stream
        os.replace(beside, path)
    mirror.written(path)


def make_folder(folder: str | os.PathLike[str]) -> None:
    """Make a folder to write to, or refuse it before hours are spent on its content."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot make this folder ({error.strerror})") from None
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder}: this folder cannot be written to")


def create(path: Path, content: bytes) -> bool:
    """Write a file unless it is there already, and say whether it was written: of several writers the first wins."""
    with naming(path), _beside(path) as beside:
        beside.write_bytes(content)
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links: nearly as good
            if path.exists():
                return False
            os.replace(beside, path)
    mirror.written(path)
    return True


def remove(path: Path) -> None:
    """Remove a file that is no longer needed, if it is there."""
    path.unlink(missing_ok=True)
    mirror.removed(path)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file that is written in errors of the file system that name none, or an unfinished one."""
    try:
        yield
    except OSError as error:
        if error.filename is None or UNFINISHED in str(error.filename):
            error.filename, error.filename2 = str(path), None
        raise


def in_words(error: OSError) -> str:
    """What the file system refused: the file, the reason, and what to do where a disk is full."""
    where = "" if error.filename is None else f"{error.filename}: "
    remedy = "; make room there, and the same command goes on" if error.errno in FULL else ""
    return f"{where}{error.strerror or error}{remedy}"


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = unfinished(path)
    try:
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def unfinished(path: Path) -> Path:
    """A new name for what will become `path`, different for every call, thread, process and machine."""
    owner = f".{machine()}-{os.getpid()}-{next(_numbers)}{UNFINISHED}"
    # The name is there for people to read: it may be cut where the file system would refuse it.
    name = os.fsdecode(os.fsencode(path.name)[: _NAME_BYTES - len(owner) - 1])
    return path.with_name(f".{name}{owner}")


def machine() -> str:
    """The name of this machine, as it is part of file names."""
    return re.sub(r"[^A-Za-z0-9]+", "_", socket.gethostname())[:64] or "unnamed"


def remove_leftovers(folder: Path, *, deep: bool = True) -> None:
    """Remove what processes left in a folder (deep: and below it) that were killed while they wrote."""
    for path in folder.rglob(f".*{UNFINISHED}") if deep else folder.glob(f".*{UNFINISHED}"):
        if is_abandoned(path):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def is_abandoned(path: Path, seconds: float = _ABANDONED_SECONDS) -> bool:
    """Whether an unfinished file is of a process that is no more; of another machine, if it has that age."""
    owner = _OWNER.fullmatch(path.name)
    if owner is None:
        return False
    if owner[1] == machine():
        return not is_alive(int(owner[2]))
    try:
        return time.time() - path.stat().st_mtime > seconds
    except FileNotFoundError:
        return False


def is_of_this_machine(path: Path) -> bool:
    """Whether an unfinished file was begun on this machine."""
    owner = _OWNER.fullmatch(path.name)
    return owner is not None and owner[1] == machine()


def is_alive(process: int) -> bool:
    """Whether there is a process of that number on this machine."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file in one step."""
    with replacing(path) as stream:
        stream.write(content)


def write_text(path: Path, text: str) -> None:
    """Write a whole text in one step."""
    write_bytes(path, text.encode("utf-8"))


def json_text(content: Json) -> str:
    """JSON as files hold it; numbers that are not finite are refused."""
    return numbers_in_lines(json.dumps(content, indent=1, allow_nan=False)) + "\n"


def write_json(path: Path, content: Json) -> None:
    """Write JSON in one step."""
    write_text(path, json_text(content))


class DamagedError(InputError):
    """A file is not as it was written."""


def with_checksum(text: str) -> str:
    """The text of a JSON object with a checksum of it as its last key."""
    body = text.rstrip().removesuffix("}").rstrip()
    return f'{body},\n "checksum": "{_text_hash(body.encode())}"\n}}\n'


def read_verified(path: Path) -> bytes:
    """Read the text of a JSON object, check its checksum, and return the text without the checksum."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: a folder, a pipe or a device where a file belongs. Fix: remove it.")
    if path.stat().st_size > VERIFIED_LIMIT:
        raise DamagedError(f"{path}: damaged: it has {path.stat().st_size / 2**20:,.0f} MiB")
    content = path.read_bytes()
    written = _CHECKSUM.search(content)
    if written is None:
        raise DamagedError(f"{path}: damaged, or of another version: it does not end in a checksum")
    if written[1].decode() != _text_hash(content[: written.start()]):
        raise DamagedError(f"{path}: damaged: its checksum does not fit what it holds")
    return content[: written.start()] + b"\n}\n"


def _text_hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def numbers_in_lines(text: str) -> str:
    """Indented JSON with each list of numbers on one line: shorter, and easier to read."""
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)


def read_json(path: Path) -> dict[str, Json] | None:
    """A JSON object from a file, or None where there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def fingerprint(*parts: Json | bytes) -> str:
    """A hash of everything that decides a result: plain data, and bytes as they are."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        plain = not isinstance(part, bytes)
        content = json.dumps(part, sort_keys=True).encode() if plain else part
        # With its kind and length before each part, what is cut elsewhere has another fingerprint.
        digest.update(f"{'json' if plain else 'bytes'} {len(content)} ".encode() + content)
    return digest.hexdigest()
