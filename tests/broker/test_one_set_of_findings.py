"""`check`, `check EXCHANGE`, the pages and the metrics have the same findings, with the same severities."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from bounded import until
from exchange_types import CHX
from exposition import parsed_exposition
from served_pages import served
from shop import Shop

from rabbit_chx.cli import main

pytestmark = pytest.mark.broker

#: An exchange, a kind and a severity of findings.
Key = tuple[str, str, str]


def _listed(document: Any) -> Counter[Key]:
    return Counter((each["exchange"], each["kind"], each["severity"]) for each in document["findings"])


def _measured(text: str, vhost: str) -> Counter[Key]:
    values = parsed_exposition(text)["rabbit_chx_check_findings"].matching(vhost=vhost)
    found: Counter[Key] = Counter()
    for labels, count in values.items():
        named = dict(labels)
        found[named["exchange"], named["kind"], named["severity"]] += int(count)
    return +found


def test_each_place_has_the_same_findings(
    orders: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a ring with waiting messages, a member that expires and a forgotten queue, and of one to which nothing is bound."""
    channel, vhost = orders.channel, orders.settings.vhost
    channel.exchange_declare("empty", CHX, durable=True)
    channel.queue_declare("orders.4", durable=True)
    channel.queue_declare("late", durable=True, arguments={"x-expires": 600_000})
    channel.queue_bind("late", "orders", "1")
    for number in range(30):
        channel.basic_publish("orders", f"key-{number}", b"x")
    assert main(["record", "orders", *orders.live, *orders.via]) == 0
    capsys.readouterr()

    def all_of_them() -> Counter[Key]:
        return _listed(answer("check", *orders.live, code=1))

    def is_complete() -> bool:
        kinds = {kind for _, kind, _ in all_of_them()}
        return {"no-consumer", "expiring-destination", "unbound-queue", "hole"} <= kinds

    until(is_complete, "the statistics have the waiting messages", every_s=1)
    everything = all_of_them()
    for exchange in ("orders", "empty"):
        of_one = Counter({key: count for key, count in everything.items() if key[0] == exchange})
        assert _listed(answer("check", exchange, *orders.live, code=1)) == of_one, exchange
    main(["check", *orders.live, "-o", "prometheus"])
    assert _measured(capsys.readouterr().out, vhost) == everything
    with served(*orders.live) as address:
        query = urlencode({"vhost": vhost, "format": "json"})
        with urlopen(f"{address}/findings?{query}", timeout=60) as page:  # noqa: S310
            assert _listed(json.load(page)) == everything
        with urlopen(f"{address}/metrics", timeout=60) as metrics:  # noqa: S310
            assert _measured(metrics.read().decode(), vhost) == everything
