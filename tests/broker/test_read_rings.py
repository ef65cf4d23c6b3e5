"""The commands that read a ring name the command that stores its order on the broker, if no record fits it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checked_orders import live_ring
from exchange_types import CHX, FANOUT
from shop import Shop

from rabbit_chx import Broker, Topology
from rabbit_chx.cli import main
from rabbit_chx.errors import UnknownOrderError

pytestmark = pytest.mark.broker


def provenance(shop: Shop, answer: Callable[..., Any], code: int = 0) -> str | None:
    """Return the provenance of the ring without a ring source; None if its order is not known."""
    found: str | None = answer("show", "orders", *shop.live, code=code)["provenance"]
    return found


@pytest.mark.parametrize("command", [("check",), ("check", "orders")])
def test_a_check_names_a_ring_without_a_record_and_stores_none(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    main([*command, *shop.live, *shop.via])
    says = capsys.readouterr().err
    assert "no record on the broker fits the order of orders:" in says
    assert "rabbit-chx record orders" in says
    assert provenance(shop, answer, 3) is None
    answer("record", "orders", *shop.live, *shop.via)
    main([*command, *shop.live, *shop.via])
    assert "record" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("route", "orders", "k"),
        ("compare", "orders", "--to", "q1=1"),
        ("plan", "FILE"),
        ("arrange", "FILE"),
        ("export",),
        pytest.param(("verify", "orders"), marks=pytest.mark.slow),
    ],
)
def test_a_command_that_reads_names_the_command_that_stores(
    shop: Shop,
    answer: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: tuple[str, ...],
) -> None:
    file = tmp_path / "topology.toml"
    file.write_text("[[queues]]\nname = 'q1'\n")
    main([*(str(file) if word == "FILE" else word for word in command), *shop.live, *shop.via])
    says = "no record on the broker fits the order of orders: if this order is right, store it with `rabbit-chx record orders"
    assert says in capsys.readouterr().err
    assert provenance(shop, answer, 3) is None


def test_a_file_makes_the_order_of_a_ring_that_is_not_known(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its members are bound again with other weights by others; on releases that ignore such a binding, the next unbind takes all."""
    file = tmp_path / "topology.toml"
    assert main(["export", *shop.live]) in (0, 3)
    file.write_text(capsys.readouterr().out)
    shop.channel.queue_bind("q1", "orders", "7")
    shop.channel.queue_unbind("q1", "orders", "7")
    before = live_ring(shop).buckets
    assert main(["repair", "orders", "--yes", *shop.live]) == 3
    assert "rabbit-chx apply FILE --allow moved=1" in capsys.readouterr().err
    for command in ("plan",), ("apply", "--yes"), ("apply", "--yes", "--allow", "moved=0.99"):
        assert main([*command, str(file), *shop.live]) == 4
        out = capsys.readouterr().out
        assert "allow with `--allow moved=1` (`allow_moved=1`) that" in " ".join(out.split())
    assert live_ring(shop).buckets == before
    made = answer("plan", str(file), *shop.live, "--allow", "moved=1", code=1)["rings"]
    shares = {"moved": 1.0, "moved_at_worst": 1.0}
    assert [(ring["determined"], ring["moved"], ring["at_most"]) for ring in made] == [
        (False, None, shares)
    ] * len(made)
    assert main(["apply", "--yes", str(file), *shop.live, "--allow", "moved=1"]) == 0
    wanted = Topology.from_toml(file.read_text()).ring("orders")
    assert live_ring(shop).buckets == wanted.buckets
    capsys.readouterr()
    assert provenance(shop, answer) == "recorded"
    assert main(["apply", "--yes", str(file), *shop.live]) == 0


def test_one_ring_of_a_broker_is_that_of_its_topology_whatever_others_bind(shop: Shop) -> None:
    """20 random rings, with and without a record; bindings that differ only in arguments are two."""
    rng, channel = random.Random(7), shop.channel  # noqa: S311
    queues = [f"k.{number}" for number in range(30)]
    channel.exchange_declare("behind", FANOUT, durable=True)
    with Broker(shop.broker.url, shop.broker.management_url) as broker:
        for case in range(20):
            name, members = f"one.{case}", rng.sample(queues, rng.randint(1, 30))
            for queue in members:
                channel.queue_declare(queue, durable=True)
            if case % 2:
                broker.declare(name, [(queue, rng.randint(1, 3)) for queue in members])
            else:
                shop.channel.exchange_declare(name, CHX, durable=True)
                for queue in members:
                    channel.queue_bind(queue, name, str(rng.randint(1, 3)))
            for _ in range(rng.randint(0, 2)):
                queue, kind = rng.choice(members), rng.randrange(4)
                if kind == 0:
                    channel.queue_bind(queue, name, "1", {"n": 1})
                elif kind == 1:
                    channel.queue_bind(queue, name, "4")
                elif kind == 2:
                    channel.queue_delete(queue)
                else:
                    channel.exchange_bind("behind", name, "2")
            of_topology = broker.topology().rings[name]
            if of_topology.is_determined:
                ring = broker.ring(name)
                assert (ring.buckets, ring.order) == (of_topology.buckets, of_topology.order), name
                continue
            with pytest.raises(UnknownOrderError, match=re.escape(of_topology.order.doubt)) as caught:
                broker.ring(name)
            assert caught.value.members == of_topology.bindings, name
