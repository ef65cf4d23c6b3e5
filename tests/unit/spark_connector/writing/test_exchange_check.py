"""What the broker's answers to declarations tell of an exchange. tests/spark/test_exchange_check.py asks a real one."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import AccessRefusedError, BrokerRefusedError, MismatchError, RabbitChxError
from spark_connector.writing import preflight
from spark_connector.writing.preflight import HASHING_TYPES, inspect_exchange

OTHER_TYPE = "inequivalent arg 'type' for exchange 'orders' in vhost '/': received ... but current is '{}'"
OTHER_ARGUMENT = "inequivalent arg '{}' for exchange 'orders' in vhost '/'"
NO_PLUGIN = BrokerRefusedError("unknown exchange type 'x-consistent-hash'")


def _looked_at(
    monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, RabbitChxError]
) -> tuple[tuple[str | None, bool], list[str]]:
    """Look at an exchange at a broker that answers so to a declaration of a type; return the declared types, too."""
    declared: list[str] = []

    def request(declaration: Any) -> None:
        if declaration.passive:
            return
        declared.append(declaration.exchange_type)
        if declaration.exchange_type in answers:
            raise answers[declaration.exchange_type]

    connection = SimpleNamespace(
        request=request, close=lambda: None, session=SimpleNamespace(server={"version": "4.3.6"})
    )
    monkeypatch.setattr(preflight, "Connection", lambda _: connection)
    return inspect_exchange(ConnectionSettings(), "orders"), declared


def test_without_the_right_to_declare_an_exchange_its_type_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = AccessRefusedError("access refused", reply_code=403)
    found = _looked_at(monkeypatch, {"x-consistent-hash": refusal})
    assert found == ((None, False), ["x-consistent-hash"])


@pytest.mark.parametrize("type_", ["fanout", "topic", "x-modulus-hash", "x-delayed-message"])
@pytest.mark.parametrize("plugin", [True, False])
def test_another_type_is_found_without_the_plugin(
    monkeypatch: pytest.MonkeyPatch, type_: str, *, plugin: bool
) -> None:
    other = MismatchError(OTHER_TYPE.format(type_))
    answers: dict[str, RabbitChxError] = {
        "x-consistent-hash": other if plugin else NO_PLUGIN,
        "direct": other,
        "x-delayed-message": BrokerRefusedError("'x-delayed-type' must be an existing type"),
        "topic": MismatchError(OTHER_ARGUMENT.format("alternate-exchange")),
    }
    found, declared = _looked_at(monkeypatch, answers)
    assert found == (type_, type_ == "topic")
    assert (type_ in HASHING_TYPES) == (type_ == "x-modulus-hash")
    assert declared == ["x-consistent-hash", *([] if plugin else ["direct"]), type_]


def test_a_refusal_for_another_reason_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerRefusedError, match="the node is full") as caught:
        _looked_at(monkeypatch, {"x-consistent-hash": BrokerRefusedError("the node is full")})
    assert caught.value.exchange == "orders"
