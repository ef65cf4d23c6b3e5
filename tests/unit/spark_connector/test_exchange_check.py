"""What the broker's answers to two declarations tell of an exchange. tests/broker/test_exchange_check.py asks a real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import AccessRefusedError, BrokerRefusedError, MismatchError, RabbitChxError
from spark_connector.writing import exchange_check
from spark_connector.writing.exchange_check import HashExchangeFacts, look_at_hash_exchange


def _looked_at(monkeypatch: pytest.MonkeyPatch, answer: RabbitChxError | None) -> HashExchangeFacts:
    """Look at an exchange that is there, at a broker that answers so to a declaration that is not passive."""

    def request(declaration: Any) -> None:
        if answer is not None and not declaration.passive:
            raise answer

    connection = SimpleNamespace(
        request=request, close=lambda: None, session=SimpleNamespace(server={"version": "4.3.6"})
    )
    monkeypatch.setattr(exchange_check, "Connection", lambda _: connection)
    return look_at_hash_exchange(ConnectionSettings(), "orders")


def test_who_may_publish_and_not_configure_learns_that_the_exchange_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = AccessRefusedError("access to exchange 'orders' refused", reply_code=403)

    assert _looked_at(monkeypatch, refusal) == HashExchangeFacts("4.3.6", alternate_exchange=False)


@pytest.mark.parametrize(("argument", "alternate"), [("alternate-exchange", True), ("hash-header", False)])
def test_a_differing_declaration_mentions_the_alternate_exchange(
    monkeypatch: pytest.MonkeyPatch, argument: str, *, alternate: bool
) -> None:
    refusal = MismatchError(f"inequivalent arg '{argument}' for exchange 'orders' in vhost '/'")

    assert _looked_at(monkeypatch, refusal).alternate_exchange == alternate


def test_an_exchange_of_another_type_is_refused_by_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = MismatchError(
        "inequivalent arg 'type' for exchange 'orders' in vhost '/': received ... but current is 'fanout'"
    )

    with pytest.raises(MismatchError, match="exchange 'orders' is of type fanout, not x-consistent-hash"):
        _looked_at(monkeypatch, refusal)


def test_a_broker_without_the_plugin_is_reported_with_the_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerRefusedError, match="unknown exchange type") as caught:
        _looked_at(monkeypatch, BrokerRefusedError("unknown exchange type 'x-consistent-hash'"))

    assert caught.value.exchange == "orders"


@pytest.mark.parametrize("plugin", [True, False])
def test_a_modulus_exchange_is_a_hash_exchange_also_without_the_plugin(
    monkeypatch: pytest.MonkeyPatch, *, plugin: bool
) -> None:
    asked: list[Any] = []

    def request(declaration: Any) -> None:
        if declaration.passive:
            return
        asked.append(declaration.exchange_type)
        if len(asked) == 2:
            raise MismatchError("inequivalent arg 'alternate-exchange' for exchange 'orders' in vhost '/'")
        if plugin:
            raise MismatchError(
                "inequivalent arg 'type' for exchange 'orders' in vhost '/': received ... but current is 'x-modulus-hash'"
            )
        raise BrokerRefusedError("unknown exchange type 'x-consistent-hash'")

    connection = SimpleNamespace(
        request=request, close=lambda: None, session=SimpleNamespace(server={"version": "4.3.6"})
    )
    monkeypatch.setattr(exchange_check, "Connection", lambda _: connection)

    found = look_at_hash_exchange(ConnectionSettings(), "orders")
    assert found == HashExchangeFacts("4.3.6", alternate_exchange=True)
    assert asked == ["x-consistent-hash", "x-modulus-hash"]
