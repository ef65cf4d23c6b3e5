"""The search for the canary: every plain form of it is found, and nothing else is."""

from __future__ import annotations

import base64
import gzip
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from canary import CANARY, traces_of_canary


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("member", data)
    return file.getvalue()


def zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)


def lz4_blocks(data: bytes) -> bytes:
    """As Spark packs: a block that is packed, one that is not, and the mark of the end."""
    half = len(data) // 2 + 20
    packed = pa.Codec("lz4_raw").compress(data[:half], asbytes=True)
    blocks = [(0x25, packed, half), (0x15, data[half:], len(data) - half), (0x15, b"", 0)]
    return b"".join(
        struct.pack("<8sB3I", b"LZ4Block", token, len(block), length, 0) + block
        for token, block, length in blocks
    )


RAW = CANARY.encode()
FORMS = {
    "raw": RAW,
    "in a host name": CANARY.lower().encode(),
    "percent-encoded": quote(CANARY).encode(),
    "each byte percent-encoded": "".join(f"%{byte:02X}" for byte in RAW).encode(),
    "hexadecimal": RAW.hex().encode(),
    "hexadecimal in capitals": RAW.hex().upper().encode(),
    "UTF-16-LE": CANARY.encode("utf-16-le"),
    "UTF-16-BE": CANARY.encode("utf-16-be"),
    "its beginning": RAW[:20],
    "its end": RAW[-20:],
    **{
        f"base64 of PLAIN, user of {size}": base64.b64encode(b"\0" + b"u" * size + b"\0" + RAW)
        for size in range(3)
    },
    **{
        f"base64 for URLs, user of {size}": base64.urlsafe_b64encode(b"\xff" * size + b":" + RAW + b"\xff?>")
        for size in range(3)
    },
}
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "two members of gzip": lambda data: gzip.compress(b"first") + gzip.compress(data),
    "gzip, cut off": lambda data: gzip.compress(data + b"." * 1_000)[:-4],
    "zstd": zstd,
    "two frames of zstd": lambda data: zstd(b"first") + zstd(data),
    "zstd, cut off": lambda data: zstd(data + b"." * (1 << 18))[:-4],
    "zip": zipped,
    "zip in gzip": lambda data: gzip.compress(zipped(data)),
    "lz4 of Spark": lz4_blocks,
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_each_form_is_found_in_each_packing(tmp_path: Path, packing: str) -> None:
    for form, data in FORMS.items():
        (tmp_path / form).write_bytes(PACKINGS[packing](b"before " * 9 + data + b" after" * 9))
    (tmp_path / "clean").write_bytes(PACKINGS[packing](b"before after" * 9))
    assert traces_of_canary(tmp_path) == sorted(FORMS)
