"""Options of reads of streams and of queues: every one is read, or refused: `values.txt`, `refusals.txt`."""

from __future__ import annotations

import pickle
from typing import Any

from rabbit_chx import HashRing
from spark_connector.options.read_options import QueueOptions, ReadOptions

RING = HashRing.from_buckets(["s"]).to_json()
EXCHANGE = {"stream": "", "exchange": "x"}


def parse(*, streaming: Any = False, **options: object) -> ReadOptions:
    texts = {"url": "rabbitmq-stream://ann@here/v", "stream": "s", **options}
    return ReadOptions.parse({name: str(text) for name, text in texts.items()}, streaming=streaming)


def test_what_is_not_given() -> None:
    given = parse()
    assert (given.streams, given.super_stream, given.exchange) == (("s",), None, None)
    assert (given.start, given.end, given.include) == (None, None, ())
    assert (given.fail_on_data_loss, given.min_partitions, given.timeout_s) == (True, None, 60.0)
    assert (given.push_filters, given.ring) == ("none", None)
    assert (given.filter_values, given.filter_match_unfiltered) == ((), False)
    assert parse(**EXCHANGE, ring=RING, pushFilters="keys").ring == HashRing.from_buckets(["s"])
    assert parse(url="amqp://a:1111").brokers.addresses[0].port == 5552


# -- of queues


def of_queue(**texts: str) -> QueueOptions:
    return QueueOptions.parse({"url": "amqp://u:c4nary@h", **texts})


def test_texts_become_options_of_a_queue() -> None:
    options = of_queue(queue="a")
    assert (options.queues, options.include) == (("a",), ())
    assert (options.max_rows, options.max_bytes) == (10_000, 64 << 20)
    given = {"QUEUE": "a, b", "include": "headers,exchange", "maxRows": "7", "maxBytes": "1k"}
    options = of_queue(**given, includeHeaders="true")
    assert (options.queues, options.max_rows, options.max_bytes) == (("a", "b"), 7, 1024)
    assert options.include == ("exchange", "headers")


def test_no_password_is_shown() -> None:
    options = of_queue(exchange="x", managementUrl="http://me:c4nary-2@h:15672")
    assert "c4nary" not in repr(options)
    again = pickle.loads(pickle.dumps(options))  # noqa: S301
    assert again.brokers.resolve()[0].password.reveal() == "c4nary"
    assert "c4nary" not in repr(parse(**EXCHANGE, managementUrl="http://ann:c4nary@here:15672"))
