"""What pamqp does not decode, on our connections; other code of the process decodes as without us."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
from typing import Any

import pytest
from pamqp import frame
from pamqp.exceptions import UnmarshalingException

from rabbit_chx.connection.session import decode_all, unmarshal

#: basic.deliver, whose routing key is no UTF-8.
PAYLOAD = struct.pack(">HH", 60, 60) + b"\x01c" + bytes(8) + b"\x00" + b"\x01x" + b"\x01\xff"
DELIVERY = struct.pack(">BHI", 1, 1, len(PAYLOAD)) + PAYLOAD + b"\xce"


def test_our_connections_read_a_text_that_is_no_utf_8_and_others_do_not() -> None:
    async def read() -> Any:
        return frame.unmarshal(DELIVERY)

    async def read_all() -> None:
        ours, others = asyncio.create_task(read()), asyncio.create_task(read())
        decode_all(ours)
        _, _, delivered = await ours
        assert delivered.routing_key.encode(errors="surrogateescape") == b"\xff"
        with pytest.raises(UnmarshalingException, match="utf-8"):
            await others

    _, _, delivered = unmarshal(DELIVERY)
    assert delivered.routing_key == "\udcff"
    asyncio.run(read_all())
    with pytest.raises(UnmarshalingException, match="utf-8"):
        frame.unmarshal(DELIVERY)


def test_an_import_leaves_the_decoders_of_the_process() -> None:
    program = (
        "from pamqp import decode; before = dict(decode.METHODS), dict(decode.TABLE_MAPPING)\n"
        "import rabbit_chx.consuming.channels, rabbit_chx.connection.aio_pika_opening\n"
        "assert before == (decode.METHODS, decode.TABLE_MAPPING)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
