"""Pictures as files beside the results that name them. A name is a hash of the content, so damage is noticed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import PlainSerializer, PlainValidator, SerializationInfo, ValidationInfo

from epibench.errors import InputError
from epibench.files import VERIFIED_LIMIT, DamagedError, remove, write_bytes

EMBEDDED: Final = "embedded"  # the context of JSON that holds contents as base64 instead of names
LIMIT = 2**26  # bytes of a picture
NAME = re.compile(r"pictures/[0-9a-f]{32}\.(?:png|jpg)")


@dataclass(frozen=True)
class PictureFile:
    """A PNG or JPEG file: its content, or the folder of the results that name it."""

    name: str
    content: bytes | None = field(default=None, compare=False, repr=False)
    folder: Path | None = field(default=None, compare=False)

    @classmethod
    def of(cls, content: bytes) -> PictureFile:
        """The picture with this content."""
        suffix = "jpg" if content.startswith(b"\xff\xd8") else "png"
        return cls(f"pictures/{hashlib.blake2b(content, digest_size=16).hexdigest()}.{suffix}", content)

    def read(self) -> bytes:
        """Read the content, and check it against the name."""
        if self.content is not None:
            return self.content
        if self.folder is None:
            raise InputError(f"{self.name}: the folder of the results is unknown. Fix: use load_results.")
        path = self.folder / self.name
        try:
            if not path.is_file():
                missing = path if path.parent.is_dir() else path.parent
                remedy = "copy it from where the results were made, or run their command again"
                raise DamagedError(f"{missing}: missing. Fix: {remedy}.")
            with path.open("rb") as stream:
                content = stream.read(LIMIT)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}). Fix: give yourself read access.") from None
        if PictureFile.of(content) != self:
            raise DamagedError(f"{path}: damaged. Fix: run the command that made the results again.")
        return content

    def write(self, folder: Path) -> None:
        """Write the file into the folder of results, unless it is there undamaged."""
        try:
            PictureFile(self.name, folder=folder).read()
        except DamagedError:
            content, path = self.read(), folder / self.name
            if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
                path.unlink()  # the target of a link is kept, and a pipe has no reader
            write_bytes(path, content)


def names_in(file: Path) -> set[str]:
    """Names of pictures in a results file; none if there is no such file."""
    if not file.is_file() or file.stat().st_size > VERIFIED_LIMIT:
        return set()
    return set(NAME.findall(file.read_text(encoding="utf-8", errors="replace")))


def remove_unnamed(names: Iterable[str], folder: Path) -> None:
    """Remove pictures that no JSON file in the folder names. A file that cannot be removed does no harm."""
    with suppress(OSError):
        for name in set(names).difference(*map(names_in, folder.glob("*.json"))):
            remove(folder / name)


def _validated(value: Any, info: ValidationInfo) -> PictureFile:
    if isinstance(value, PictureFile):
        return value
    if info.context == EMBEDDED:
        with suppress(binascii.Error, TypeError):
            return PictureFile.of(base64.b64decode(value, validate=True))
    elif isinstance(value, str) and NAME.fullmatch(value):
        return PictureFile(value, folder=info.context)
    raise ValueError("not the name of a picture file")


def _serialised(file: PictureFile, info: SerializationInfo) -> str:
    return base64.b64encode(file.read()).decode("ascii") if info.context == EMBEDDED else file.name


PictureField = Annotated[PictureFile, PlainValidator(_validated), PlainSerializer(_serialised, when_used="json")]
