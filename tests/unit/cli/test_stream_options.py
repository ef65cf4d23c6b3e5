"""The addresses of a command about streams, as the user writes them."""

from __future__ import annotations

import pytest

from rabbit_chx.cli.show import parse_addresses
from rabbit_chx.errors import InputError


def test_addresses_are_pairs() -> None:
    assert parse_addresses(("Rabbit-0:5552=127.0.0.1:15552", "[0:0::1]:1=h:2", "FE80::1=h:3")) == {
        "rabbit-0:5552": "127.0.0.1:15552",
        "[::1]:1": "h:2",
        "[fe80::1]": "h:3",
    }
    for text in ("rabbit-0:5552", "rabbit-0=127.0.0.1:1", "a:1=b", "a:0=b:1", "a:1=b:65536"):
        with pytest.raises(InputError, match="as in rabbit-0:5552="):
            parse_addresses((text,))
