"""The broker's reply codes and words, as errors: whose fault, and whether time cures it."""

from __future__ import annotations

import pytest

from rabbit_chx.amqp.replies import error_for, is_transient
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    BrokerTimeoutError,
    ConnectionLimitError,
    ConnectionLostError,
    InputError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)

_NOT_ALLOWED = "NOT_ALLOWED - access to vhost '/' refused for user 'u'"
_EXPIRED = (
    'backend rabbit_auth_backend_oauth2 returned an error: "Provided JWT token has expired at timestamp 1795726698 '
    '(validated at 1795726698)"'
)
_JOURNAL = "'rabbit-chx.groups' in vhost '/'"


@pytest.mark.parametrize(
    ("code", "text", "kind", "passes"),
    [
        # The texts are those of RabbitMQ 3.8 to 4.3.
        (320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", ConnectionLostError, True),
        (403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.", AccessRefusedError, False),
        (403, f"ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused for user 'u', {_EXPIRED}", ConnectionLostError, True),
        (403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use", AccessRefusedError, False),
        (404, "NOT_FOUND - no exchange 'x' in vhost '/'", NotFoundError, False),
        (404, f"NOT_FOUND - home node 'rabbit@b' of durable queue {_JOURNAL} is down or inaccessible", UnreachableError, True),
        (405, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'.", BrokerRefusedError, False),
        (406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 1800000 ms.", BrokerRefusedError, False),
        (406, "PRECONDITION_FAILED - cannot declare queue 'q': queue limit in vhost '/' (1) is reached", BrokerRefusedError, False),
        (406, "PRECONDITION_FAILED - user_id property set to 'nobody' but authenticated user was 'guest'", BrokerRefusedError, False),
        (406, "PRECONDITION_FAILED - invalid expiration 'soon': {leftover_string,\"soon\"}", BrokerRefusedError, False),
        (406, f"PRECONDITION_FAILED - stream queue {_JOURNAL} does not have a running replica on the local node", UnreachableError, True),
        (406, f"PRECONDITION_FAILED - queue {_JOURNAL} does not have a replica on the local node", UnreachableError, True),
        (530, f"{_NOT_ALLOWED}: connection limit (1) is reached", ConnectionLimitError, True),
        (530, f"{_NOT_ALLOWED}: user is not permitted", AccessRefusedError, False),
        (530, "NOT_ALLOWED - vhost nope not found", NotFoundError, False),
        (541, "INTERNAL_ERROR - access to vhost '/' refused for user 'u': vhost '/' is down", BrokerRefusedError, True),
    ],
)  # fmt: skip
def test_what_an_answer_means(code: int, text: str, kind: type[RabbitChxError], passes: bool) -> None:  # noqa: FBT001
    error = error_for(code, text, where="amqp://h")
    assert type(error) is kind
    assert error.reply_code == code
    assert is_transient(error) is passes


def test_a_refused_login_may_be_a_full_disk() -> None:
    """4.3.6 answers so to right passwords after its metadata store met a full disk."""
    text = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
    assert "if they are right, look at the broker's disk and log" in str(
        error_for(403, text, where="amqp://h")
    )
    refused = "ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused for user 'u'"
    assert "disk" not in str(error_for(403, refused, where="amqp://h"))


def test_silence_passes_and_wrong_input_does_not() -> None:
    assert is_transient(BrokerTimeoutError("no answer"))
    assert not is_transient(InputError("the connection is closed"))


def test_a_reserved_name_is_not_a_wrong_password() -> None:
    said = "ACCESS_REFUSED - exchange name 'amq.foo' contains reserved prefix 'amq.*'"
    error = error_for(403, said, where="amqp://localhost")
    assert str(error).endswith("names that begin with amq. are the broker's own: choose another name")
