"""Each command says what it waits for: it sends nothing to a broker, and opens no connection, without a sign of life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from exchange_types import CHX, MODULUS
from shop import Shop
from streamed import Streamed

from rabbit_chx import Publisher
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.ring_source import DiagnosticsRing
from rabbit_chx.cli import main
from rabbit_chx.rendering.progress import CountProgress
from rabbit_chx.streams.connection import StreamConnection

pytestmark = pytest.mark.broker

FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q1", weight = 10 }, { queue = "q3", weight = 2 }]
[[queues]]
name = "q{1..4}"
"""
COMMANDS = (
    "plan FILE",
    "arrange FILE",
    "check FILE",
    "export",
    "show",
    "show orders",
    "check orders",
    "check --all-vhosts",
    "record orders",
    "repair orders --yes",
    "show sharded",
    "show orders --consumers",
    "verify orders --keys k{1..100}",
    "route orders k",
    "route sharded k",
    "compare orders --keys k{1..100}",
    "show --vhost /",
    "show nothing",
    "apply FILE --yes --allow moved=1",
)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that were sent, and the connections that were opened, while nothing was shown."""
    found: list[str] = []

    def watch(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def watched(self: Any, *arguments: Any, **named: Any) -> Any:
            if not CountProgress._entered:
                found.append(f"{owner.__name__}.{name}{arguments!r:.80}")
            return real(self, *arguments, **named)

        monkeypatch.setattr(owner, name, watched)

    watch(Management, "request")
    watch(PikaConnection, "__init__")
    watch(StreamConnection, "__init__")
    watch(DiagnosticsRing, "read")
    return found


@pytest.mark.extended
@pytest.mark.usefixtures("quick_plans")
def test_a_command_shows_what_it_waits_for(
    shop: Shop, silent: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("sharded", MODULUS)
    shop.channel.queue_bind("q1", "sharded", "1")
    (tmp_path / "FILE").write_text(FILE)
    for line in COMMANDS:
        words = [str(tmp_path / word) if word == "FILE" else word for word in line.split()]
        code = main([*words, *shop.live, *shop.via])
        refused = "nothing" in words or "/" in words  # what these name does not exist
        assert (code in (2, 77)) if refused else (code in (0, 1, 3)), (line, capsys.readouterr())
        assert (line, silent) == (line, [])
    shop.management.request("GET", "whoami")
    assert silent == ["Management.request('GET', 'whoami')"], "what is watched is noticed"


def test_a_command_on_streams_shows_what_it_waits_for(
    stream: Streamed, shop: Shop, silent: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("x", CHX, durable=True)
    shop.channel.queue_bind(stream.name, "x", "1")
    with Publisher(shop.broker.url, "x") as publisher:
        publisher.publish_many(["k"] * 10, [b""] * 10)
    at = ("--url", str(shop.broker.stream_url), "--management-url", str(shop.broker.management_url))
    line = "show s --consumers --stream-group g"
    code = main([*line.split(), *at])
    assert code in (0, 1, 3), capsys.readouterr()
    assert silent == []
