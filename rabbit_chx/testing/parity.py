"""A check that a real broker routes the keys of a topology as predicted."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from rabbit_chx.routing.bindings import Place
    from rabbit_chx.testing.running_broker import RunningBroker
    from rabbit_chx.topology import Topology

_MOST_SHOWN = 20

#: The broker of the running test, which the pytest plugin sets.
broker_of_test: RunningBroker | None = None


def assert_parity(topology: Topology, keys: Iterable[Any], *, broker: RunningBroker | None = None) -> None:
    """Assert that a broker puts a message of each key into the predicted queue.

    The exchanges of the topology that hash are applied in a temporary vhost. A message of each key is published to each of them, and the
    contents of every queue are compared with the prediction. The queues are classic queues without arguments, because routing depends
    neither on their type nor on their arguments. Another exchange in a ring is replaced by a queue: what is behind it is not compared.

    Args:
        topology: the topology, as in `Topology.from_toml`.
        keys: routing keys, or values of the header or the property that the exchanges hash.
        broker: the broker, with a management URL; None: that of the running test, which takes `chx_broker` or `chx_vhost`.

    Raises:
        AssertionError: a message is in another queue, in several, or in none. The message has the first 20 keys of each exchange, each with
            the expected and the actual queue.
        InputError: there is no broker or no key, or that of `broker` has no management URL (without one, the test of a fixture is skipped); or no exchange of the topology hashes.
        RabbitChxError: the topology cannot be applied, or the broker does not answer.
    """
    __tracebackhide__ = True
    from rabbit_chx.amqp import ConnectionSettings
    from rabbit_chx.broker import Broker
    from rabbit_chx.testing.broker_search import enter_or_give_up
    from rabbit_chx.testing.running_broker import temporary_vhost
    from rabbit_chx.testing.trial import Trial

    broker = broker or broker_of_test
    if broker is None:
        raise InputError("assert_parity has no broker: take chx_broker or chx_vhost, or pass broker=")
    values = list(keys)
    if not values:
        raise InputError("assert_parity has no keys to compare: pass some")
    wrong: list[str] = []
    with ExitStack() as stack:
        skipping = [InputError] if broker is broker_of_test else []  # as `chx_vhost` does
        inside = enter_or_give_up(stack, temporary_vhost(broker), *skipping)
        connected = stack.enter_context(Broker(inside.url, inside.management_url))
        trial = Trial(connected, ConnectionSettings.from_uri(inside.url), topology)
        for exchange in trial.exchanges:
            wrong += _mismatches(trial, exchange, values)
    if wrong:
        raise AssertionError("\n".join([f"{broker.origin} routes otherwise than predicted:", *wrong]))


def _mismatches(trial: Any, exchange: str, values: list[Any]) -> list[str]:
    """Return a line for each of the first wrong keys, and one with the number of all."""
    found = trial.find(exchange, values)
    wrong = [
        f"  exchange {exchange}, key {key!r:.80}: expected {_name(predicted)}, actual {_names(actual)}"
        for key, predicted, actual in zip(values, trial.predict(exchange, values), found, strict=True)
        if actual != (() if predicted is None else (predicted,))
    ]
    if not wrong:
        return []
    return [f" {len(wrong):,} of {len(values):,} keys of exchange {exchange}, first:", *wrong[:_MOST_SHOWN]]


def _names(places: tuple[Place, ...]) -> str:
    return " and ".join(map(_name, places)) or "no queue"


def _name(place: Any) -> str:
    from rabbit_chx.routing import ExchangeRef

    if place is None:
        return "no queue"
    if isinstance(place, ExchangeRef):
        return f"exchange {place.name}"
    return place if isinstance(place, str) else f"a refusal ({place.reason})"
