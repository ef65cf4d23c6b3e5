"""Advertised addresses of nodes, and the addresses that users give for them. `refusals.txt` has those that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.streams import nodes
from rabbit_chx.streams.frames import Node

STREAMS = ConnectionSettings(protocol="stream")


ADDRESSES = [
    line.split()
    for line in Path(__file__).with_name("addresses.txt").read_text("utf-8").splitlines()
    if line[0] != "#"
]


@pytest.mark.parametrize(("advertised", "key"), ADDRESSES)
def test_an_advertised_address_is_found_as_users_write_it(advertised: str, key: str) -> None:
    addresses = nodes.node_addresses({"other:5552": "x:1", key: "H:7"})
    assert nodes.node_addresses(addresses) == addresses
    there = nodes.at_node(STREAMS, Node(advertised, 5552), addresses)
    assert (there.host, there.port) == ("h", 7)
    if ":5552" in key:
        elsewhere = nodes.at_node(STREAMS, Node(advertised, 5553), addresses)
        assert (elsewhere.host, elsewhere.port) == (advertised, 5553)


@pytest.mark.parametrize(
    ("reachable", "host", "port"),
    [("[::1]:7", "::1", 7), ("::1:7", "::1", 7), ("[fe80::1%25eth0]:7", "fe80::1%eth0", 7)],
)
def test_the_reachable_address_may_be_of_ipv6(reachable: str, host: str, port: int) -> None:
    there = nodes.at_node(STREAMS, Node("h", 1), {"h:1": reachable})
    assert (there.host, there.port) == (host, port)
    assert nodes.at_node(STREAMS, Node("i", 1), {"h:1": reachable}).host == "i"
