"""Options of writes: every one is read, and shows no password. `values.txt` has what they become, `refusals.txt` those that are refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from spark_messages import options_of

from rabbit_chx.errors import InputError
from rabbit_chx.options import options_of as declared_options
from rabbit_chx.publishing import Limits, Retries
from rabbit_chx.publishing.options import NACK_RETRIES, CommonOptions
from rabbit_chx.routing import HashRing
from spark_connector.options.common import ADDED_BY_SPARK
from spark_connector.options.read_options import ReadOptions
from spark_connector.options.write_options import WriteOptions, to_texts

RING = HashRing.from_bindings([("q1", 1), ("q2", 2)])


def test_what_is_not_the_default_reaches_the_publisher() -> None:
    """So each field of `Limits` and `Retries` is an option, but that of the first connection, which is always retried."""
    assert options_of().limits == Limits()
    assert options_of().retries == Retries(retry_first_connection=True, nack_retries=NACK_RETRIES)
    limits = {"maxInFlight": "7", "maxInFlightBytes": "8", "confirmTimeout": "9", "blockedTimeout": "10"}
    assert options_of(**limits).limits == Limits(7, 8, 9, 10)
    retries = {"reconnectTimeout": "11", "maxReconnects": "12", "nackRetries": "13", "reconnectBackoff": "14"}
    assert options_of(**retries, ordering="per-key").retries == Retries(11, 12, True, 13, 14, True)


def test_an_option_that_means_the_same_has_the_words_of_the_publisher() -> None:
    declared = {**declared_options(CommonOptions), **declared_options(Limits), **declared_options(Retries)}
    fields = {name: option for name, option in declared_options(WriteOptions).items() if name in declared}
    own = {"exchange", "ring", "routing", "keep_order", "connection_name"}
    assert {name for name, option in fields.items() if option.meaning != declared[name].meaning} == own


def test_a_ring_may_be_in_a_file_and_a_report_path_may_be_a_uri(tmp_path: Path) -> None:
    (tmp_path / "ring.json").write_text(RING.to_json())
    for text in (RING.to_json(), f"{tmp_path}/ring.json"):
        assert options_of(ring=text).ring == RING
    for text in (f"file:{tmp_path}/the%20report/", f"FILE://{tmp_path}/the%20report/"):
        assert options_of(reportPath=text).report_path == f"{tmp_path}/the report/"


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in ADDED_BY_SPARK if not name.startswith("path")),
        "queryName",
        "checkpointLocation",
        "option.exchange",
    ],
)
def test_names_that_spark_adds_are_not_options(name: str) -> None:
    assert options_of(**{name: "x"}) == options_of()


def test_a_path_is_refused_and_that_of_a_table_is_not() -> None:
    """`save`, `start` and `load` take the name of a queue, and Spark passes it as a path."""
    for path in ("orders", "/orders", "s3://orders", "file:/orders", "dbfs:/orders"):
        with pytest.raises(
            InputError, match=f"the path '{path}' .* leave it out, and pass the option 'queue'"
        ):
            options_of(path=path)
        with pytest.raises(InputError, match=f"the path '{path}' .* pass the option 'stream'"):
            ReadOptions.parse({"path": path})
    with pytest.raises(InputError, match="the path 'orders'"):
        WriteOptions.parse({"path": "orders", "checkpointLocation": "c"})
    for path in ("orders", "s3://warehouse/orders"):
        assert options_of(path=path, provider="rabbitmq") == options_of()


def test_a_table_without_options_is_told_what_helps() -> None:
    with pytest.raises(InputError, match=r"to no INSERT into the table: write with df\.write\.format"):
        WriteOptions.parse({"provider": "rabbitmq", "path": "file:/t"})
    with pytest.raises(InputError, match="to no read of the table: use CREATE TEMPORARY VIEW"):
        ReadOptions.parse({"provider": "rabbitmq", "path": "file:/t"})


def test_headers_that_are_too_large_are_refused() -> None:
    for text, words in (
        ('{"a": "' + "b" * 100_000 + '"}', "is 100,011 bytes long, and AMQP"),
        ("[" * 100_000, r"option 'headersConst' is '\[{60}'\.\.\.: pass a JSON object"),
    ):
        with pytest.raises(InputError, match=words):
            options_of(headersConst=text)


# -- of writes into streams


def test_an_amqp_uri_means_the_stream_port_of_its_host() -> None:
    once = {"superStream": "orders", "delivery": "exactly-once", "appId": "load", "version": "42"}
    urls = {"url": "amqp://ann:c4nary@here/v", "managementUrl": "http://ann:c4nary@here:15672"}
    given: Any = WriteOptions.parse(once | urls)
    assert (given.to_streams, given.exactly_once, given.target) == (True, True, "orders")
    assert (given.app_id, given.version, given.verify, given.window) == ("load", 42, "tail", 20_000)
    assert given.brokers.addresses[0].port == 5552
    assert "c4nary" not in repr(given)
    restored = pickle.loads(pickle.dumps(given))  # noqa: S301  # our own
    assert restored.management_url.password.reveal() == "c4nary"


# -- options as Python values


def test_values_become_the_texts_that_spark_has() -> None:
    given = to_texts({"maxInFlight": 5, "mandatory": False, "url": "amqp://h", "routingKey": None}, None)
    assert given == {"maxInFlight": "5", "mandatory": "false", "url": "amqp://h"}
    assert HashRing.from_json(to_texts({}, RING)["ring"]) == RING
    assert to_texts({}, RING.to_json()) == to_texts({}, RING)
    assert repr(to_texts({"url": "amqp://u:c4nary@h"}, None)) == "<options url>"


def test_an_unknown_option_is_refused_without_being_shown() -> None:
    with pytest.raises(InputError, match="option 'password' is a bytes: pass a text") as caught:
        to_texts({"password": b"c4nary"}, None)
    assert "c4nary" not in str(caught.value)
    with pytest.raises(InputError, match="the ring is given twice"):
        to_texts({"RING": RING.to_json()}, RING)
    with pytest.raises(InputError, match="the ring has no buckets"):
        to_texts({}, HashRing.from_buckets([]))
