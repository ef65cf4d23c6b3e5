"""A check that a real broker routes the keys of a topology as predicted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from rabbit_chx.analysis.key_routing import Refused
    from rabbit_chx.routing.bindings import Place
    from rabbit_chx.testing.running_broker import RunningBroker
    from rabbit_chx.topology import Topology

_MOST_SHOWN = 20

#: The broker of the running test, which the pytest plugin sets.
broker_of_test: RunningBroker | None = None


def assert_parity(topology: Topology, keys: Iterable[Any], *, broker: RunningBroker | None = None) -> None:
    """Assert that a broker puts a message of each key into the predicted queue.

    The exchanges of the topology that hash are applied in a temporary vhost. A message of each key is published to each of them, and the
    queue that it reaches is compared with the prediction. The queues are classic queues without arguments, because routing depends
    neither on their type nor on their arguments. An exchange in a ring is replaced by a queue: what is behind it is not compared.

    Args:
        topology: the topology, as of `Topology.from_toml`.
        keys: routing keys, or values of the header or the property that the exchanges hash.
        broker: the broker, with a management URL; None: that of the running test, which takes `chx_broker` or `chx_vhost`.

    Raises:
        AssertionError: a message is in another queue. The message has the first 20 keys of each exchange, each with
            the expected and the actual queue.
        InputError: there is no broker, no management URL or no key; or no exchange of the topology hashes.
        BrokerTimeoutError: some messages reach no queue within 30 s.
        RabbitChxError: the topology cannot be applied, or the broker does not answer.
    """
    __tracebackhide__ = True
    from rabbit_chx.amqp import ConnectionSettings
    from rabbit_chx.broker import Broker
    from rabbit_chx.broker.trial import apply_trial
    from rabbit_chx.testing.running_broker import temporary_vhost

    broker = broker or broker_of_test
    if broker is None:
        raise InputError(
            "assert_parity has no broker: let the test take chx_broker or chx_vhost, or give broker="
        )
    values = list(keys)
    if not values:
        raise InputError("assert_parity has no keys to compare: give some")
    wrong: list[str] = []
    with temporary_vhost(broker) as inside, Broker(inside.url, inside.management_url) as connected:
        for trial in apply_trial(connected, topology):
            predicted = trial.hashing.route_all(values, trial.key_map)
            actual = trial.route(ConnectionSettings.from_uri(inside.url), values)
            wrong += _mismatches(trial.name, list(zip(values, predicted, actual, strict=True)))
    if wrong:
        raise AssertionError("\n".join([f"{broker.origin} routes otherwise than predicted:", *wrong]))


def _mismatches(exchange: str, routed: Sequence[tuple[Any, Place | Refused, Place]]) -> list[str]:
    """Return a line for each of the first wrong keys, and one with the number of all."""
    wrong = [
        f"  exchange {exchange}, key {key!r:.80}: expected {_name(predicted)}, actual {actual}"
        for key, predicted, actual in routed
        if predicted != actual
    ]
    if not wrong:
        return []
    return [f" {len(wrong):,} of {len(routed):,} keys of exchange {exchange}, first:", *wrong[:_MOST_SHOWN]]


def _name(place: Any) -> str:
    if place is None:
        return "no queue"
    return f"a refusal ({place.reason})" if hasattr(place, "reason") else str(place)
