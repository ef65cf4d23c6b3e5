"""Numbers of channels, and what is published again: without a broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.consuming.channels import ConsumingConnection
from rabbit_chx.errors import InputError


def test_the_number_of_a_channel_is_taken_again_last() -> None:
    """The client aiormq may open a channel before it has confirmed the end of the one that had the number."""
    link = SimpleNamespace(connection_tune=SimpleNamespace(channel_max=3), channels={})
    transport: Any = SimpleNamespace(transport=SimpleNamespace(connection=link))

    async def numbers() -> list[int]:
        connection = ConsumingConnection(ConnectionSettings(), transport)
        taken = []
        for _ in range(4):
            taken.append(connection._free_number())
            link.channels = {2: "in use"}
        link.channels = dict.fromkeys((1, 2, 3), "in use")
        with pytest.raises(InputError, match="all 3 channels of the connection are in use"):
            connection._free_number()
        return taken

    assert asyncio.run(numbers()) == [1, 3, 1, 3]
