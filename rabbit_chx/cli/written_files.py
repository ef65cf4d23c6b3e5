"""Files that commands write: what fails leaves the old file whole, and nothing beside it."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from rabbit_chx.errors import InputError


def write_file(path: Path, text: str) -> None:
    """Write a file whole, or not at all. An existing one keeps its permissions, and a link stays a link.

    Raises:
        InputError: it cannot be written; the message has the reason.
    """
    target = path.resolve()
    content = text.encode()
    try:
        if not target.exists():
            _write_new(target, content)
        elif not target.is_file():  # such as /dev/stdout
            target.write_bytes(content)
        else:
            _replace(target, content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def _write_new(target: Path, content: bytes) -> None:
    with target.open("xb") as file:
        try:
            file.write(content)
            file.flush()
        except OSError:
            target.unlink()
            raise


def _replace(target: Path, content: bytes) -> None:
    """Replace a file in one step, or write over it where its folder does not permit that: a single file is mounted, or the folder is read-only."""
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError:
        _write_in_place(target, content)
        return
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        shutil.copymode(target, temporary)
        try:
            temporary.replace(target)
        except OSError:
            _write_in_place(target, content)
    finally:
        temporary.unlink(missing_ok=True)


def _write_in_place(target: Path, content: bytes) -> None:
    """Write over a file. If that fails, for example since the disk is full, its old content takes the same place again."""
    old = target.read_bytes()
    with target.open("r+b", buffering=0) as file:
        try:
            _overwrite(file.fileno(), content)
        except OSError:
            with suppress(OSError):
                _overwrite(file.fileno(), old)
            raise


def _overwrite(handle: int, content: bytes) -> None:
    os.lseek(handle, 0, os.SEEK_SET)
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
    os.ftruncate(handle, len(content))
