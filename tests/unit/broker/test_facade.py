"""A `Broker` that is not connected."""

from __future__ import annotations

import pydoc

import pytest

from rabbit_chx.broker import Broker
from rabbit_chx.errors import InputError, UriError


def test_a_broker_that_is_not_open_reports_how_to_open_it() -> None:
    broker = Broker("amqp://localhost")
    for use in (lambda: broker.release, lambda: broker.declare("x", []), lambda: broker.ring("x")):
        with pytest.raises(
            InputError, match=r"(with Broker\(url\) as broker.*open\(\) and later close\(\))|ring_source"
        ):
            use()
    broker.close()  # of nothing


def test_no_password_is_shown() -> None:
    broker = Broker("amqp://u:c4nary@h", management_url="https://u:c4nary@h:1")

    assert repr(broker) == "Broker('amqp://u:***@h:5672/%2F', management_url='https://u:***@h:1')"
    assert repr(Broker("amqp://u:c4nary@h")) == "Broker('amqp://u:***@h:5672/%2F')"
    with pytest.raises(UriError):
        Broker("host")
    with pytest.raises(InputError, match="management URL: ") as caught:
        Broker("amqp://h", management_url="u:c4nary@h")
    assert "c4nary" not in str(caught.value)


def test_help_shows_the_arguments() -> None:
    assert "allow_existing: permits binding" in pydoc.render_doc(Broker)


def test_a_ring_source_that_is_none() -> None:
    for source, says in (
        ("docker exec 'x", "cannot be split into words"),
        (b"docker exec x", "ring_source is of type bytes"),
    ):
        with pytest.raises(InputError, match=says):
            Broker("amqp://h", ring_source=source)  # type: ignore[arg-type]
