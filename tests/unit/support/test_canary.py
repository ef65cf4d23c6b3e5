"""The search for the canary: every plain form of it is found, and nothing else is."""

from __future__ import annotations

import base64
import gzip
import io
import string
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.parse import quote

import canary
import pyarrow as pa
import pytest
import zstandard
from canary import CANARY, traces_of_canary


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("member", data)
    return file.getvalue()


def lz4_blocks(data: bytes) -> bytes:
    """As Spark packs: a block that is packed, one that is not, and the mark of the end."""
    half = len(data) // 2 + 20
    packed = pa.Codec("lz4_raw").compress(data[:half], asbytes=True)
    blocks = [(0x25, packed, half), (0x15, data[half:], len(data) - half), (0x15, b"", 0)]
    return b"".join(
        b"LZ4Block"
        + bytes([token])
        + len(block).to_bytes(4, "little")
        + length.to_bytes(4, "little")
        + bytes(4)
        + block
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
    "zstd": zstandard.compress,
    "two frames of zstd": lambda data: zstandard.compress(b"first") + zstandard.compress(data),
    "zip": zipped,
    "zip in gzip": lambda data: gzip.compress(zipped(data)),
    "lz4 of Spark": lz4_blocks,
}


def test_the_canary_needs_no_quoting() -> None:
    assert set(CANARY) <= {*string.ascii_letters, *string.digits, "-"}
    assert quote(CANARY, safe="") == CANARY


@pytest.mark.parametrize("packing", PACKINGS)
def test_each_form_is_found_in_each_packing(tmp_path: Path, packing: str) -> None:
    for form, data in FORMS.items():
        (tmp_path / form).write_bytes(PACKINGS[packing](b"before " * 9 + data + b" after" * 9))
    (tmp_path / "clean").write_bytes(PACKINGS[packing](b"before after" * 9))
    assert traces_of_canary(tmp_path) == sorted(FORMS)


def test_it_is_found_over_the_border_of_two_reads(tmp_path: Path) -> None:
    places = {0, 1, len(RAW) // 2, len(RAW) - 1}
    for before in places:
        (tmp_path / str(before)).write_bytes(bytes((1 << 22) - before) + RAW)
    assert len(traces_of_canary(tmp_path)) == len(places)


def test_it_is_found_in_the_name_of_a_file_and_below_folders(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / f"of-{CANARY}.log").touch()
    (tmp_path / "a" / "clean").write_text(CANARY[:13] + CANARY[-13:])
    assert traces_of_canary(tmp_path) == [f"a/b/of-{CANARY}.log"]


def test_a_broken_archive_is_searched_as_it_is(tmp_path: Path) -> None:
    for begin in (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"LZ4Block"):
        (tmp_path / begin.hex()).write_bytes(begin + b"\xff" * 50)
    (tmp_path / "with").write_bytes(b"\x1f\x8b\x08" + RAW)
    assert traces_of_canary(tmp_path) == ["with"]


def test_a_folder_without_a_file_shows_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="holds no file"):
        traces_of_canary(tmp_path)


def test_a_file_that_is_deleted_meanwhile_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(CANARY)
    look = canary._shows

    def look_late(file: IO[bytes], depth: int) -> bool:
        (tmp_path / "b").unlink(missing_ok=True)
        return look(file, depth)

    monkeypatch.setattr(canary, "_shows", look_late)
    assert traces_of_canary(tmp_path) == ["a", "c"]
