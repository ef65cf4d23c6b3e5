"""Options of reads of streams and of queues: every one is read, or refused: `values.txt`, `refusals.txt`."""

from __future__ import annotations

import pickle

from spark_connector.options.read_options import QueueOptions, ReadOptions


def of_queue(**texts: str) -> QueueOptions:
    return QueueOptions.parse({"url": "amqp://u:c4nary@h", **texts})


def test_texts_become_options_of_a_queue() -> None:
    given = {"QUEUE": "a, b", "include": "headers,exchange", "maxRows": "7", "maxBytes": "1k"}
    options = of_queue(**given, includeHeaders="true")
    assert (options.queues, options.max_rows, options.max_bytes) == (("a", "b"), 7, 1024)
    assert options.include == ("exchange", "headers")


def test_no_password_is_shown() -> None:
    options = of_queue(exchange="x", managementUrl="http://me:c4nary-2@h:15672")
    assert "c4nary" not in repr(options)
    again = pickle.loads(pickle.dumps(options))  # noqa: S301
    assert again.brokers.resolve()[0].password.reveal() == "c4nary"
    of_streams = {
        "url": "rabbitmq-stream://here",
        "exchange": "x",
        "managementUrl": "http://ann:c4nary@here:15672",
    }
    assert "c4nary" not in repr(ReadOptions.parse(of_streams))
