"""What refused declarations tell about a queue. The texts are those of real brokers, 3.10.8 to 4.3.6."""

from __future__ import annotations

import contextlib

import pytest

from rabbit_chx.amqp.replies import error_for
from rabbit_chx.consuming.queue_checks import REQUIRED_ARGUMENTS, check_queues, learn_argument, queue_warnings
from rabbit_chx.consuming.settings import FailurePolicy, GroupMember
from rabbit_chx.errors import MismatchError


def refusal(argument: str, current: str, received: str = "none") -> str:
    """Return what our error says of it."""
    text = (
        f"PRECONDITION_FAILED - inequivalent arg '{argument}' for queue 'q' in vhost '/': "
        f"received {received} but current is {current}"
    )
    return str(error_for(406, text, where="amqp://localhost"))


def test_arguments_are_learned_one_by_one() -> None:
    first = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    assert first == REQUIRED_ARGUMENTS
    second = learn_argument(
        "q", first, refusal("x-dead-letter-exchange", "the value 'dlx' of type 'longstr'")
    )
    assert second == {**first, "x-dead-letter-exchange": "dlx"}
    third = learn_argument("q", second, refusal("x-max-length", "the value '100000' of type 'signedint'"))
    assert third == {**second, "x-max-length": 100_000}


@pytest.mark.parametrize(
    "text",
    [
        refusal(
            "x-queue-type", "the value 'classic' of type 'longstr'", "the value 'quorum' of type 'longstr'"
        ),
        refusal("x-queue-type", "'classic'", "'quorum'"),
        refusal("x-single-active-consumer", "none", "the value 'true' of type 'bool'"),
        refusal("durable", "the value 'false' of type 'bool'", "the value 'true' of type 'bool'"),
    ],
)
def test_a_queue_that_is_not_fit_is_refused(text: str) -> None:
    with pytest.raises(MismatchError, match="a group needs quorum queues with a single active consumer"):
        learn_argument("q", REQUIRED_ARGUMENTS, text)


@pytest.mark.parametrize("text", ["PRECONDITION_FAILED - something else", refusal("x-new", "none")])
def test_what_is_not_understood_is_not_known(text: str) -> None:
    assert learn_argument("q", REQUIRED_ARGUMENTS, text) is None


def test_a_default_limit_is_reported_with_and_without_a_dead_letter_exchange() -> None:
    plain = {f"q.{n}": REQUIRED_ARGUMENTS for n in range(7)}
    dead_lettered = {"d": {**REQUIRED_ARGUMENTS, "x-dead-letter-exchange": ""}}
    dropping, moving = queue_warnings({**plain, **dead_lettered}, (4, 3, 6), GroupMember("a"))
    assert dropping.startswith(
        "q.0, q.1, q.2, q.3, q.4 and 2 more: the delivery limit is 20, the default from 4.0 on"
    )
    assert "drops or dead-letters the message" in dropping
    assert "Set -1 by x-delivery-limit or by a policy" in dropping
    assert moving.startswith("d: the delivery limit is 20, the default from 4.0 on")
    assert "the broker dead-letters the message, so the group takes `concurrency` at a time" in moving
    assert len(dropping.replace(" and 2 more", "").split()) <= 44  # of which 4 are further names
    assert list(queue_warnings({**plain, **dead_lettered}, (3, 13, 7), GroupMember("a"))) == []
    unlimited = {"u": {**REQUIRED_ARGUMENTS, "x-delivery-limit": -1}, "unknown": None}
    assert len(list(queue_warnings(unlimited, (4, 3, 6), GroupMember("a")))) == 1, (
        "only that its arguments are not known"
    )


@pytest.mark.parametrize("release", [(3, 10, 8), (4, 0, 5), (4, 3, 6)])
def test_a_limit_of_the_queue_is_reported(release: tuple[int, ...]) -> None:
    queues = {
        "a": {**REQUIRED_ARGUMENTS, "x-delivery-limit": 5},
        "b": {**REQUIRED_ARGUMENTS, "x-delivery-limit": 0},
    }
    five, zero = queue_warnings(queues, release, GroupMember("a"))
    assert five.startswith("a: the delivery limit is 5, of the argument x-delivery-limit.")
    assert "with -1 (from 4.0 on), or without the argument (before)" in five
    assert zero.startswith("b: the delivery limit is 0")


def test_concurrency_that_a_timeout_of_the_queue_makes_useless_is_reported() -> None:
    queues = {"t": {**REQUIRED_ARGUMENTS, "x-delivery-limit": -1, "x-consumer-timeout": 60_000}}
    member = GroupMember("a", concurrency=8)
    (timed,) = queue_warnings(queues, (4, 3, 6), member)
    assert timed.startswith(
        "t: because of the argument x-consumer-timeout the group takes one message at a time, not concurrency=8"
    )
    assert list(queue_warnings(queues, (4, 3, 6), GroupMember("a"))) == []
    assert list(queue_warnings(queues, (4, 0, 5), member)) == []


def test_a_queue_that_loses_what_cannot_be_handled_is_reported() -> None:
    queues = {"a": {**REQUIRED_ARGUMENTS, "x-delivery-limit": -1}, "b": None}
    missing, unknown = queue_warnings(
        queues, (4, 3, 6), GroupMember("a", failures=FailurePolicy(on_failure="dead-letter"))
    )
    assert missing.startswith("queue a has no argument x-dead-letter-exchange")
    assert unknown.startswith("queue b: whether it is a quorum queue")


@pytest.mark.parametrize(("release", "refused"), [((3, 8, 9), True), ((3, 13, 7), True), ((4, 0, 0), False)])
def test_a_limit_that_drops_what_is_returned_is_refused(release: tuple[int, ...], refused: bool) -> None:  # noqa: FBT001
    queues = {
        "a": {**REQUIRED_ARGUMENTS, "x-delivery-limit": 5},
        "b": None,
        "c": {**REQUIRED_ARGUMENTS, "x-delivery-limit": -1},
    }
    with (
        pytest.raises(MismatchError, match=r"queue 'c': x-delivery-limit is -1, with which RabbitMQ 3\.")
        if refused
        else contextlib.nullcontext()
    ):
        check_queues(queues, release)
