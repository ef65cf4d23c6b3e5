"""AsyncBroker without aio-pika."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_AIO_PIKA = """
import asyncio, sys
sys.modules["aio_pika"] = None
import rabbit_chx.broker
from rabbit_chx import AsyncBroker, Broker
from rabbit_chx.errors import MissingExtraError
try:
    asyncio.run(AsyncBroker("amqp://u:c4nary@127.0.0.1:1").open())
except MissingExtraError as error:
    print(error)
"""


def test_without_aio_pika() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_AIO_PIKA], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout == (
        "AsyncBroker needs aio_pika, which is not installed: pip install 'rabbit-chx[aio]', or use Broker\n"
    )
