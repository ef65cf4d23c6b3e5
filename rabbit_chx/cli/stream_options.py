"""The options of consumers and of their streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rabbit_chx.cli.command import TEXT, option
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.errors import InputError
from rabbit_chx.streams.nodes import node_addresses


def address_option() -> Any:  # a field's default
    """Return a field that is the option for advertised addresses."""
    return option(
        "--address",
        is_rare=True,
        metavar="HOST:PORT=HOST:PORT",
        help="An address that a node advertises for streams, and the address that is reachable from here.",
    )


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The options of the consumers of an exchange."""

    section: ClassVar = "Consumers"
    consumers: bool = option(help="Show who consumes the queues of EXCHANGE, and their backlog.")
    journal: str | None = option(
        type=TEXT,
        metavar="NAME",
        help=f"The stream that contains the journal of the group.  [default: {JOURNAL}]",
    )
    stream_group: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="The name of a StreamGroup: show the lag of its streams, without the management API. Each EXCHANGE is then a super "
        "stream, an exchange of streams, or a stream.",
    )
    address: tuple[str, ...] = address_option()


def parse_addresses(texts: tuple[str, ...]) -> Mapping[str, str]:
    """Return the address to connect to for each advertised address."""
    addresses: dict[str, str] = {}
    for text in texts:
        advertised, _, reachable = text.partition("=")
        try:
            addresses |= node_addresses({advertised: reachable})
        except InputError:
            raise InputError(
                f"--address is {text!r:.60}: write HOST:PORT=HOST:PORT, as in rabbit-0:5552=127.0.0.1:15552"
            ) from None
    return addresses
