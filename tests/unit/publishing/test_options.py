"""The declared options of publishing: what follows from them, and which values are possible. `refusals.txt` has those that are not.

python tests/unit/publishing/test_options.py    # writes the refusals of this version into the file
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from frame_secrets import locals_with
from scripted_peer import Peer
from stories import each_story, played, refusals, write_stories

from rabbit_chx.errors import InputError
from rabbit_chx.options import options_of
from rabbit_chx.publishing import Publisher, SharedPublisher, shared_publisher
from rabbit_chx.publishing.options import NACK_RETRIES, Limits, PublishOptions, Retries, SharedOptions
from rabbit_chx.publishing.publisher import PublisherBase
from rabbit_chx.routing import HashRing

STORIES = Path(__file__).with_name("refusals.txt")
SECRET = "canary-4711"  # noqa: S105


# -- options of limits and retries by their own names


def test_an_option_of_limits_or_retries_is_given_by_its_name(peer: Peer) -> None:
    """It changes the value that is given, too."""
    single: dict[str, Any] = {"max_in_flight": 2, "nack_retries": 7}
    with Publisher(peer.settings, "orders", limits=Limits(confirm_timeout_s=3), **single) as publisher:
        assert publisher._delivery._limits == Limits(max_in_flight=2, confirm_timeout_s=3)
        assert publisher._delivery._retries == Retries(nack_retries=7)


@pytest.mark.parametrize("publisher", [Publisher, SharedPublisher])
@pytest.mark.parametrize("arguments", [{"max_in_flight": 0}, {"limits": 5}, {"unknown": 1}])
def test_no_error_shows_the_password(publisher: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises((InputError, TypeError)) as caught:
        publisher(exchange="x", url=f"amqp://user:{SECRET}@localhost", **arguments)
    assert locals_with(SECRET, caught.value) == []
    assert SECRET not in repr(PublishOptions(f"amqp://user:{SECRET}@localhost", "x"))


# -- retries of a SharedPublisher


@pytest.mark.parametrize(
    ("given", "repeats"),
    [
        (Retries(), 0),
        (Retries(reconnect_timeout_s=5), 0),
        (Retries(nack_retries=2), 2),
        (Retries(nack_retries=2, keep_order=True), 0),
    ],
)
def test_a_shared_publisher_repeats_a_refused_message_only_on_request(given: Retries, repeats: int) -> None:
    assert shared_publisher._adapt_retries(given).repeats == repeats
    assert Retries().repeats == NACK_RETRIES


@pytest.mark.parametrize("given", [Retries(reconnect_timeout_s=0), Retries(max_reconnects=0)], ids=str)
def test_a_message_that_closes_the_connection_costs_a_shared_publisher_one_in_any_case(
    given: Retries,
) -> None:
    retries = shared_publisher._adapt_retries(given)
    assert retries.reconnects
    assert retries.reconnect_timeout_s < 0.001


#: Options that the `Publisher` of `publish_many` does not get, and why.
NOT_OF_BULK = {
    "block_s": "publish_many waits for room without a limit, as each call of a Publisher",
    "linger_s": "the rows of publish_many are there together",
    "connection_name": "it is in the settings of `url`",
    "credentials": "they are in the settings of `url`",
}
OTHERS: dict[str, Any] = {
    "routing": "client",
    "ring": HashRing.from_buckets(["q"]),
    "mandatory": False,
    "persistent": False,
    "content_type": "text/plain",
    "properties": {"app_id": "a"},
    "limits": Limits(7),
    "retries": Retries(7),
}


def test_each_option_of_a_shared_publisher_is_one_of_publish_many_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Mock()
    monkeypatch.setattr(shared_publisher, "Publisher", made)
    with SharedPublisher("amqp://localhost", "x", **OTHERS) as publisher:
        publisher._bulk._make()
    bulk = made.call_args.kwargs
    reaching = {name for name, value in OTHERS.items() if bulk[name] == value} | {
        "url",
        "exchange",
        "retries",
    }
    assert reaching | NOT_OF_BULK.keys() == options_of(SharedOptions).keys()
    assert (bulk["exchange"], bulk["retries"].reconnect_timeout_s) == ("x", 7)
    assert [address.host for address in bulk["url"]] == ["localhost"]


# -- values


def test_a_backoff_grows_to_five_seconds() -> None:
    backoff = Retries(backoff_s=1.0).backoff
    assert [backoff.delay_s(failures) for failures in range(6)] == [1, 2, 4, 5, 5, 5]
    assert Retries(backoff_s=0).backoff.delay_s(5) == 0


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"app": "x"}, "there is no message property 'app': did you mean 'app_id'?"),
        ({"app_id": "x" * 256}, "^app_id b'x+'... has 256 bytes: AMQP carries at most 255"),
        ({"priority": -1}, "^priority is -1; pass a whole number from 0 to 255"),
    ],
)
def test_constants_that_cannot_be(constants: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Publisher("amqp://nowhere.invalid", "x", properties=constants)


def test_a_type_checker_refuses_a_misspelt_property_and_a_value_of_another_type() -> None:
    """An ignored error that is none is an error of mypy (``warn_unused_ignores``)."""
    with SharedPublisher("amqp://192.0.2.1", "x") as publisher:
        for call in (
            lambda: publisher.submit("k", "b", mesage_id="m"),  # type: ignore[call-arg]
            lambda: publisher.submit("k", "b", priority="high"),  # type: ignore[arg-type]
            lambda: Publisher("amqp://h", "x", properties={"app": "x"}),  # type: ignore[arg-type]
        ):
            with pytest.raises(InputError):
                call()


def test_an_argument_that_is_missing_is_told_in_the_words_of_the_caller() -> None:
    with pytest.raises(
        TypeError, match=r"^SharedPublisher\(\) missing 1 required positional argument: 'exchange'$"
    ):
        SharedPublisher("amqp://h")  # type: ignore[call-arg]


def open_nothing(**given: Any) -> None:
    """Read the options of a publisher."""
    PublisherBase(PublishOptions(**{"url": "amqp://localhost:1", "exchange": "x", **given}))


CALLS: dict[str, Any] = {
    "Limits": Limits,
    "Retries": Retries,
    "Publisher": open_nothing,
    "SharedPublisher": partial(SharedPublisher, "amqp://localhost", "x"),
}


@each_story(STORIES)
def test_values_that_cannot_be_are_refused_before_anything_is_opened(how: str, lines: list[str]) -> None:
    assert played(refusals(CALLS[how]), lines) == lines
    with pytest.raises(InputError, match=r"limits is .*: pass Limits\(\.\.\.\)"):
        open_nothing(limits=Retries())


if __name__ == "__main__":
    write_stories(STORIES, lambda how: refusals(CALLS[how]))
