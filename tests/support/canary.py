"""A password that tests log in with, and the search for it in all that they wrote.

A test that finds no trace shows that the password is not there in plain form. It does not show that no secret form
of it is there: the pickle of a `Secret` is covered and not encrypted, and is not looked for.
"""

from __future__ import annotations

import base64
import io
import uuid
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pyarrow as pa

from rabbit_chx.broker.management import Management

CANARY = "Kestrel-7vQ2mXw9Tz4LbR8nYp3Hd-Siskin"
"""The password: ASCII letters, digits and ``-``."""

_PART = 14  # bytes; a message that is cut off holds one end only
_CHUNK = 1 << 22
_DEEPEST = 5  # archives within archives
_ZSTD_PIECE = 1 << 12  # the read that reaches the end of a truncated file returns nothing
_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER = len(_LZ4_MAGIC) + 13
_LZ4_STORED = 0x10  # a block that is not packed
_LZ4_LARGEST = 1 << 25


@contextmanager
def canary_user(
    management: Management, vhost: str, tags: str = "monitoring,policymaker", **permissions: str
) -> Iterator[str]:
    """Make a user whose password is the canary for a block: with all permissions on a vhost, or with these patterns.

    Args:
        management: the HTTP API, as a user who may make users.
        vhost: the vhost, not quoted.
        tags: the tags of the user, separated by commas.
        permissions: the pattern of `configure`, `write` and `read`; those that are not named permit nothing.

    Yields:
        The user's name. `declared.with_login(url, name, CANARY)` puts it into a URL.
    """
    name = f"canary-{uuid.uuid4().hex[:12]}"
    make_canary_user(management, vhost, name, tags)
    if permissions:
        patterns = {"configure": "^$", "write": "^$", "read": "^$", **permissions}
        management.request("PUT", "permissions", vhost, name, body=patterns)
    try:
        yield name
    finally:
        management.request("DELETE", "users", name)


def make_canary_user(management: Management, vhost: str, name: str, tags: str = "") -> None:
    """Make a user whose password is the canary, with all permissions on a vhost."""
    management.request("PUT", "users", name, body={"password": CANARY, "tags": tags})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    management.request("PUT", "permissions", vhost, name, body=everything)


def traces_of_canary(folder: Path) -> list[str]:
    """Return the files below a folder that show the canary, in order of their names.

    A file shows it in its name, or in its bytes: as it is in any case of letters, percent-encoded, in hexadecimal, as
    UTF-16, in base64 at any alignment; the first or the last bytes of it are enough. Streams of gzip, zstd and Spark's
    lz4, and members of zip files, are unpacked as far as they are whole.

    Args:
        folder: the folder.

    Raises:
        ValueError: there is no file, so that a search would show nothing.
        OSError: a file is there and cannot be read.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        raise ValueError(f"{folder} holds no file: nothing was written that could be searched")
    found = []
    for path in files:
        name = str(path.relative_to(folder))
        with suppress(FileNotFoundError), path.open("rb") as file:  # Spark deletes files of its shuffles
            if _shows(io.BytesIO(name.encode()), _DEEPEST) or _shows(file, 0):
                found.append(name)
    return found


def _ends(text: str) -> tuple[str, str]:
    return text[:_PART], text[-_PART:]


def _base64_forms(part: bytes) -> Iterator[bytes]:
    """The characters of base64 that depend on these bytes alone, wherever they begin."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + part)
        first = -(-before * 8 // 6)
        last = (before + len(part)) * 8 // 6
        yield encoded[first:last]


def _forms(part: str) -> Iterator[bytes]:
    raw = part.encode()
    for encoding in ("utf-16-le", "utf-16-be"):
        yield part.encode(encoding)
    for text in _base64_forms(raw):
        yield from (text, text.replace(b"+", b"-").replace(b"/", b"_"))


def _caseless_forms(part: str) -> Iterator[bytes]:
    raw = part.lower().encode()
    yield raw
    # Hexadecimal does not tell cases of letters apart, but the letters that it writes do.
    for exact in (part.encode(), raw):
        yield exact.hex().encode()
        yield "".join(f"%{byte:02x}" for byte in exact).encode()


_EXACT = frozenset(form for part in _ends(CANARY) for form in _forms(part))
_CASELESS = frozenset(form for part in _ends(CANARY) for form in _caseless_forms(part))
_OVERLAP = max(map(len, _EXACT | _CASELESS)) - 1


def _shows(stream: IO[bytes], depth: int) -> bool:
    """Whether a stream that can be read again shows the canary, or what is packed in it does."""
    tail = b""
    while chunk := stream.read(_CHUNK):
        window = tail + chunk
        if any(form in window for form in _EXACT):
            return True
        lower = window.lower()
        if any(form in lower for form in _CASELESS):
            return True
        tail = window[-_OVERLAP:]
    if depth >= _DEEPEST:
        return False
    return any(_shows(io.BytesIO(unpacked), depth + 1) for unpacked in _unpacked(stream))


def _unpacked(stream: IO[bytes]) -> Iterator[bytes]:
    stream.seek(0)
    begin = stream.read(8)
    stream.seek(0)
    if begin.startswith(b"\x1f\x8b"):
        yield _gunzipped(stream.read())
    elif begin.startswith(b"\x28\xb5\x2f\xfd"):
        yield _of_zstd(stream.read())
    elif begin.startswith(_LZ4_MAGIC):
        yield _of_lz4_blocks(stream.read())
    elif begin.startswith(b"PK\x03\x04"):
        yield from _members(stream)


def _gunzipped(packed: bytes) -> bytes:
    unpacked = b""
    with suppress(zlib.error):
        while packed:
            stream = zlib.decompressobj(wbits=31)
            unpacked += stream.decompress(packed)
            packed = stream.unused_data
    return unpacked


def _of_zstd(packed: bytes) -> bytes:
    unpacked = bytearray()
    reader = pa.CompressedInputStream(pa.BufferReader(packed), "zstd")
    with suppress(OSError):  # the file ends in the middle
        while piece := reader.read(_ZSTD_PIECE):
            unpacked += piece
    return bytes(unpacked)


def _of_lz4_blocks(packed: bytes) -> bytes:
    """Unpack net.jpountz.lz4.LZ4BlockOutputStream, which Spark writes."""
    unpacked, codec = b"", pa.Codec("lz4_raw")
    at = packed.find(_LZ4_MAGIC)
    with suppress(OSError):
        while 0 <= at <= len(packed) - _LZ4_HEADER:
            header = packed[at : at + _LZ4_HEADER]
            stored = header[len(_LZ4_MAGIC)] & 0xF0 == _LZ4_STORED
            size, length = (int.from_bytes(header[offset : offset + 4], "little") for offset in (9, 13))
            block = packed[at + _LZ4_HEADER : at + _LZ4_HEADER + size]
            if len(block) < size or length > _LZ4_LARGEST:
                break
            unpacked += block if stored else codec.decompress(block, length).to_pybytes()
            at = packed.find(_LZ4_MAGIC, at + _LZ4_HEADER + size)
    return unpacked


def _members(stream: IO[bytes]) -> Iterator[bytes]:
    damaged = zipfile.BadZipFile, NotImplementedError, RuntimeError
    with suppress(*damaged), zipfile.ZipFile(stream) as archive:
        for name in archive.namelist():
            yield name.encode()
            yield archive.read(name)
