"""Advertised addresses of nodes, and the addresses that users give for them. `refusals.txt` has those that are refused."""

from __future__ import annotations

import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.streams import nodes
from rabbit_chx.streams.frames import Node

STREAMS = ConnectionSettings(protocol="stream")


@pytest.mark.parametrize(
    ("advertised", "key"),
    [
        ("Rabbit-1", "rabbit-1:5552"),
        ("rabbit-1", "RABBIT-1:5552"),
        ("::1", "[::1]:5552"),
        ("::1", "::1"),
        ("::1", "[::1]"),
        ("::1", "::1:5552"),
        ("::1", "[0:0:0:0:0:0:0:1]:5552"),
        ("2001:db8::A", "[2001:DB8::a]:5552"),
        ("2001:db8:0:0:0:0:0:a", "2001:db8::a"),
        ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8:5552"),
        ("fe80::1%eth0", "[fe80::1%eth0]:5552"),
        ("fe80::1%eth0", "[fe80::1%25eth0]:5552"),
        ("fe80::1%eth0", "FE80::1"),
        ("fe80::1", "[fe80::1%eth1]:5552"),
    ],
)
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
