"""The commands that read a ring store its order on the broker, if it has no record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from canary import CANARY, canary_user
from declared import with_login
from shop import BUCKETS, Shop

from rabbit_chx.cli import main

pytestmark = pytest.mark.broker


def provenance(shop: Shop, answer: Callable[..., Any]) -> str:
    """Return the provenance of the ring without a ring source."""
    return str(answer("show", "orders", *shop.live)["provenance"])


@pytest.mark.parametrize("command", [("check",), ("check", "orders")])
def test_a_check_names_a_ring_without_a_record_and_stores_none(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    main([*command, *shop.live, *shop.via])
    says = capsys.readouterr().err
    assert "no record on the broker fits the order of orders:" in says
    assert "rabbit-chx record orders" in says
    assert provenance(shop, answer) == "assumed"
    answer("record", "orders", *shop.live, *shop.via)
    main([*command, *shop.live, *shop.via])
    assert "record" not in capsys.readouterr().err


@pytest.mark.extended
@pytest.mark.usefixtures("quick_plans")
@pytest.mark.parametrize(
    "command",
    [
        ("plan", "FILE"),
        ("arrange", "FILE"),
        ("export",),
    ],
)
def test_a_ring_that_was_read_is_known_without_a_ring_source(
    shop: Shop,
    answer: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: tuple[str, ...],
) -> None:
    file = tmp_path / "topology.toml"
    file.write_text("[[queues]]\nname = 'q1'\n")
    command = tuple(str(file) if word == "FILE" else word for word in command)
    assert provenance(shop, answer) == "assumed"
    main([*command, *shop.live, *shop.via, "--no-record"])
    assert "stored" not in capsys.readouterr().err
    assert provenance(shop, answer) == "assumed"

    main([*command, *shop.live, *shop.via])
    assert (
        "stored on the broker: the order of orders, in exchange rabbit-chx.ring.NAME"
        in capsys.readouterr().err
    )
    assert provenance(shop, answer) == "recorded"
    assert answer("show", "orders", *shop.live)["buckets"] == [
        place if isinstance(place, str) else {"exchange": place.name} for place in BUCKETS
    ]
    main([*command, *shop.live, *shop.via])
    assert "stored" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("route", "orders", "k"),
        ("compare", "orders", "--to", "q1=1"),
        pytest.param(("verify", "orders"), marks=pytest.mark.slow),
    ],
)
def test_a_command_that_reads_names_the_command_that_stores(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    main([*command, *shop.live, *shop.via])
    says = "no record on the broker fits the order of orders: store it with rabbit-chx record orders"
    assert says in capsys.readouterr().err
    assert provenance(shop, answer) == "assumed"


def test_a_plan_and_its_application_agree_although_the_plan_stores_the_order(
    shop: Shop, answer: Callable[..., Any], tmp_path: Path
) -> None:
    file, plan = tmp_path / "topology.toml", tmp_path / "plan.json"
    file.write_text("[[queues]]\nname = 'new'\n")
    answer("plan", str(file), *shop.live, *shop.via, "--plan-out", str(plan), code=1)
    assert provenance(shop, answer) == "recorded"
    done = answer("apply", str(file), *shop.live, "--plan", str(plan))
    assert done["state"] == "applied"


def test_a_plan_of_an_assumed_ring_claims_no_match(
    shop: Shop, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "topology.toml"
    assert main(["export", *shop.live]) in (0, 3)
    file.write_text(capsys.readouterr().out)
    for command in ("plan",), ("apply", "--yes"):
        assert main([*command, str(file), *shop.live]) == 3
        out, err = capsys.readouterr()
        assert "the bindings match the topology" in out
        assert "whether the order of orders is that of the file is not known: pass --ring-via" in err


def test_an_answer_does_not_depend_on_the_permission_to_store(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "topology.toml"
    file.write_text("[[queues]]\nname = 'q1'\n")
    with canary_user(shop.management, shop.settings.vhost, read="^$") as user:
        live = [with_login(text, user, CANARY) if "//" in text else text for text in shop.live]
        assert main(["plan", str(file), *live, *shop.via]) == 0
    says = "is not stored on the broker (--no-record accepts that): the user needs configure on rabbit-chx.*"
    assert says in capsys.readouterr().err
    assert provenance(shop, answer) == "assumed"
