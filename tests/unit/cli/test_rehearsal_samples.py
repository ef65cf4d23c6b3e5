"""The messages of a rehearsal."""

from __future__ import annotations

from upgrade_topologies import MIXED

from rabbit_chx import Topology
from rabbit_chx.amqp import AmqpField
from rabbit_chx.cli.rehearse import field_types, samples_of
from rabbit_chx.cli.samples import SampleOptions

ASKED = SampleOptions(count=3)


def test_types_are_of_all_headers_or_of_one() -> None:
    assert field_types(["long"], MIXED) == {"account": "long", "tenant": "long"}
    assert field_types(["long", "tenant=bool"], MIXED) == {"account": "long", "tenant": "bool"}
    assert field_types(["tenant=bool", "long"], MIXED) == {"account": "long", "tenant": "bool"}


def test_keys_without_a_pattern_suit_their_exchange() -> None:
    text = '[[exchanges]]\nname = "t"\ntype = "x-consistent-hash"\nring = []\narguments = { hash-property = "timestamp" }\n'
    (message, *_) = samples_of(Topology.from_toml(text), ASKED, {})["t"]
    assert (message.key, dict(message.properties)) == ("0", {"timestamp": 0})
    made = samples_of(MIXED, ASKED, {"account": "long"})
    assert [message.key for message in made["accounts"]] == ["0", "1", "2"]
    assert [message.key for message in made["tenants"]] == ["key-0", "key-1", "key-2"]
    assert made["tenants"][0].headers == ((b"tenant", AmqpField("longstr", "key-0")),)
