"""The commands that read a ring name the command that stores its order on the broker, if no record fits it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shop import Shop

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
    says = "no record on the broker fits the order of orders: if this order is right, store it with rabbit-chx record orders"
    assert says in capsys.readouterr().err
    assert provenance(shop, answer) == "assumed"


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
