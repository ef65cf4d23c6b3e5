"""The failures of a connection and their errors.

Each function returns the error; the caller raises it. Our own connections, pika's and aio-pika's call the same functions, so that one fault
has one wording. `where` is the address without its password; `words` replace the text of the cause.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from rabbit_chx import errors
from rabbit_chx.amqp.frames import IF_RIGHT
from rabbit_chx.amqp.settings import SCHEMES

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings

_T = TypeVar("_T")

#: The reasons by which OpenSSL refuses an answer that is not one of TLS, by version.
WITHOUT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
#: OpenSSL's text when the peer rejects our certificate. With TLS 1.3 it arrives after the handshake.
_OUR_CERTIFICATE = re.compile(
    "alert (certificate (required|unknown|expired|revoked)|unknown ca|bad certificate|unsupported certificate)"
)

#: A failure, and the client's exception types for it.
ClientFailure: TypeAlias = tuple[
    type[BaseException] | tuple[type[BaseException], ...],
    Callable[["ConnectionSettings", str], errors.RabbitChxError],
]

_PROTOCOLS = {"amqp": "AMQP 0-9-1", "stream": "the stream protocol"}
#: What a closed port may lack.
_NEEDS = {
    "amqp": "",
    "stream": "; streams need the plugin rabbitmq_stream (rabbitmq-plugins enable rabbitmq_stream)",
}

#: The codes with which the broker closes a connection whose new token it refuses: rabbitmq-server v4.3.6, rabbit_reader.erl,
#: ``connection.update_secret``.
TOKEN_REFUSED = frozenset({403, 530})
_ADDRESS = re.compile(" object at 0x[0-9a-f]+")  # as pamqp writes in its errors


class StallError(errors.BrokerTimeoutError):
    """The broker does not reply, although it has not blocked the connection."""


class InterruptedLinkError(errors.ConnectionLostError):
    """Ctrl-C or another signal interrupted the connection."""


class RefusedCertificateError(errors.ConnectionLostError):
    """The broker requires a client certificate, or another one."""


# -- while it is opened


def connect_error(
    settings: ConnectionSettings, cause: BaseException, words: str, failures: Sequence[ClientFailure]
) -> errors.RabbitChxError:
    """Return the error for a connection that a client could not open."""
    refused = certificate_error(settings.masked_url, cause, words)
    if refused is not None:
        return refused
    for kinds, failure in failures:
        if isinstance(cause, kinds):
            return failure(settings, words)
    return unreachable(settings, cause, words)


def no_mechanism(settings: ConnectionSettings, offered: Sequence[str] = ()) -> errors.AccessRefusedError:
    """Return the error for a broker that supports none of the configured auth mechanisms."""
    offers = f"the auth mechanisms {', '.join(offered)}" if offered else "other auth mechanisms"
    return errors.AccessRefusedError(
        f"{settings.masked_url}: the broker offers {offers}, not {' or '.join(settings.auth_mechanisms)}: "
        "change auth_mechanism in the URL, or the broker's auth_mechanisms"
    )


def login_error(settings: ConnectionSettings, words: str) -> errors.AccessRefusedError:
    """Return the error for a connection that ended at the login without a reply."""
    return errors.AccessRefusedError(
        f"{settings.masked_url}: the broker refuses the login ({words}): check user name, password and auth_mechanism; "
        f"{IF_RIGHT}",
        reply_code=403,
    )


def vhost_error(settings: ConnectionSettings, words: str) -> errors.BrokerRefusedError:
    """Return the error for a connection that ended at connection.open without a reply."""
    return errors.BrokerRefusedError(
        f"{settings.masked_url}: the broker refuses the vhost {settings.vhost!r} ({words}): check the vhost in the URL, the user's "
        "permissions on it, and the limits of connections",
        reply_code=530,
    )


def connect_timeout_error(settings: ConnectionSettings, _words: str = "") -> errors.BrokerTimeoutError:
    """Return the error for a connection, or for its token, that was not ready in time."""
    timeout_s = settings.connection_timeout_s
    if settings.password.pending:
        return errors.BrokerTimeoutError(no_token(settings.password.pending, timeout_s))
    return errors.BrokerTimeoutError(
        f"{settings.masked_url}: not open within {timeout_s:g} s: check host, port and firewall"
    )


def no_token(name: str, waited_s: float) -> str:
    """Return the message of an error for a function or command that takes too long to return a token."""
    return f"{name}: no token within {waited_s:g} s: run it by hand"


def not_amqp(settings: ConnectionSettings, words: str) -> errors.UnreachableError:
    """Return the error for a peer that closes during the handshake: a starting broker behind a proxy, or another protocol."""
    tls = "" if settings.tls else f"; a port that speaks TLS needs {SCHEMES[settings.protocol][1]}://"
    return errors.UnreachableError(
        f"{settings.masked_url}: {words}; a broker that is starting behind a proxy, such as Docker's, closes connections like this: try again "
        f"in a moment. Else: is {_PROTOCOLS[settings.protocol]} spoken there? Check the port{tls}"
        f"{_NEEDS[settings.protocol]}"
    )


def unreachable(
    settings: ConnectionSettings, cause: BaseException | None, words: str | None = None
) -> errors.UnreachableError:
    """Return the error for a connection that could not be opened."""
    where = settings.masked_url
    if isinstance(cause, ssl.SSLError):
        return tls_error(settings, cause, words)
    if isinstance(cause, (socket.gaierror, UnicodeError)):
        return errors.UnreachableError(
            f"{where}: the host cannot be resolved ({words or cause}): check the URL"
        )
    if isinstance(cause, TimeoutError):
        return errors.BrokerTimeoutError(
            f"{where}: no answer within {settings.connection_timeout_s:g} s: check host, port and firewall"
        )
    if isinstance(cause, (ConnectionResetError, BrokenPipeError)):
        return not_amqp(settings, words or str(cause))
    if has_no_descriptor(cause):
        return errors.UnreachableError(
            f"{where}: there is no file descriptor left ({words or cause}): close files or sockets, or raise the limit (ulimit -n)"
        )

    return errors.UnreachableError(
        f"{where}: no server answers there ({words or cause}): check host and port, and that the broker runs"
        f"{_NEEDS[settings.protocol]}"
    )


def has_no_descriptor(cause: BaseException | None) -> bool:
    """Return whether the process or the system lacks file descriptors, which may be temporary."""
    return isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE)


def tls_error(
    settings: ConnectionSettings, cause: BaseException, words: str | None = None
) -> errors.UnreachableError:
    """Return the error for a TLS handshake that failed."""
    where = settings.masked_url
    refused = certificate_error(where, cause, words)
    if refused is not None:
        return refused
    if isinstance(cause, TimeoutError):
        return errors.BrokerTimeoutError(
            f"{where}: no TLS handshake within {settings.connection_timeout_s:g} s: is it a TLS port?"
        )
    remedy = "is it a TLS port?"
    (plain, with_tls) = SCHEMES[settings.protocol]
    if getattr(cause, "reason", None) in WITHOUT_TLS:
        remedy = f"this port answers without TLS: write {plain}:// in place of {with_tls}://"
    return errors.UnreachableError(f"{where}: TLS cannot be agreed on ({words or cause}): {remedy}")


#: The remedy by OpenSSL's code (x509_vfy.h): not yet valid, expired, and valid for another host name or address.
_VERIFY_REMEDIES = {
    9: "it is valid from a later time on: check the clocks of the broker and of this machine",
    10: "it has expired: renew it on the broker, or check the clock of this machine",
    62: "it is for other names: connect to one of these, or pass one with server_name_indication",
    64: "it is for other addresses: connect to a name that it has, or pass one with server_name_indication",
}
_UNTRUSTED = "pass its CA with cacertfile, or its name with server_name_indication"


def certificate_error(
    where: str, cause: BaseException, words: str | None = None
) -> errors.UnreachableError | None:
    """Return the error if one side refuses the certificate of the other, or its absence; otherwise None."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        return errors.UnreachableError(
            f"{where}: the broker's certificate is not accepted ({cause.verify_message}): "
            f"{_VERIFY_REMEDIES.get(getattr(cause, 'verify_code', 0), _UNTRUSTED)}"
        )
    alert = _OUR_CERTIFICATE.search(words or str(cause))
    return None if alert is None else errors.UnreachableError(_our_certificate(where, alert))


def _our_certificate(where: str, alert: re.Match[str]) -> str:
    return (
        f"{where}: the broker does not accept our certificate, or that there is none ({alert[0]}): "
        f"{'renew it' if 'expired' in alert[0] else 'pass one of an authority that it trusts with certfile and keyfile'}"
    )


def handshake_timeout(settings: ConnectionSettings) -> errors.BrokerTimeoutError:
    """Return the error for a handshake that took longer than the connection timeout."""
    port = "an AMQP" if settings.protocol == "amqp" else "a stream"
    return errors.BrokerTimeoutError(
        f"{settings.masked_url}: the broker did not finish the {port.split()[1]} handshake within "
        f"{settings.connection_timeout_s:g} s: is it {port} port, and is the broker overloaded?"
    )


def handshake_failure(
    settings: ConnectionSettings, cause: errors.ConnectionLostError
) -> errors.UnreachableError:
    """Return the error for a connection that ended during the handshake."""
    if isinstance(cause, RefusedCertificateError):
        return errors.UnreachableError(str(cause))
    return not_amqp(settings, str(cause).removeprefix(f"{settings.masked_url}: "))


# -- while it is open


def not_a_stream_port(settings: ConnectionSettings, protocol: str) -> errors.InputError:
    """Return the error for a port that answers with bytes of another protocol."""
    usual = "5551 with TLS" if settings.tls else "5552"
    return errors.InputError(
        f"{settings.masked_url}: this port speaks {protocol}, not the stream protocol: streams are on port {usual} (rabbitmq-plugins "
        "enable rabbitmq_stream)"
    )


def disconnect_error(where: str, cause: Exception | None = None) -> errors.ConnectionLostError:
    """Return the error for a connection that ended."""
    alert = _OUR_CERTIFICATE.search(str(cause))
    if alert is not None:
        return RefusedCertificateError(_our_certificate(where, alert))
    why = cause or "the broker's side closed it; look at its log"
    return errors.ConnectionLostError(f"{where}: the connection was lost: {why}")


def renewal_error(where: str, words: str) -> errors.ConnectionLostError:
    """Return the error for a connection that ended because the broker refuses a new token; the next login asks for another."""
    return errors.ConnectionLostError(f"{where}: the broker refuses the new token ({words}): connect again")


def heartbeat_error(where: str, silence_s: float) -> errors.ConnectionLostError:
    """Return the error for a broker that missed two heartbeats."""
    return errors.ConnectionLostError(
        f"{where}: the broker has sent nothing, not even a heartbeat, for {silence_s:.0f} s: "
        "the connection is taken as lost; look whether broker and network are up"
    )


def invalid_bytes(where: str, cause: Exception) -> errors.ConnectionLostError:
    """Return the error for bytes that violate the protocol."""
    words = _ADDRESS.sub("", str(cause))
    return errors.ConnectionLostError(f"{where}: what the broker sent cannot be understood: {words}")


def reply_timeout_error(where: str, method: str, waited_s: float) -> errors.BrokerTimeoutError:
    """Return the error for a method without a reply in time."""
    return errors.BrokerTimeoutError(
        f"{where}: no answer to {method} within {waited_s:g} s: see the broker's log"
    )


def start_thread(thread: threading.Thread, where: str) -> None:
    """Start a thread; an UnreachableError, which may pass, if the system has no thread left."""
    try:
        thread.start()
    except RuntimeError as cause:
        raise errors.UnreachableError(
            f"{where}: the system starts no further thread ({cause}): end some, or raise the limit of processes (ulimit -u, pids of a container)"
        ) from None


def call_in_thread(function: Callable[[], _T], where: str) -> Future[_T]:
    """Call a function in a thread that does not keep the process alive, unlike one of an executor; the errors are those of `start_thread`."""
    result: Future[_T] = Future()
    result.set_running_or_notify_cancel()  # the function goes on after a cancelled wait

    def call() -> None:
        try:
            result.set_result(function())
        except BaseException as error:  # noqa: BLE001  # raised where the result is awaited
            result.set_exception(error)

    start_thread(threading.Thread(target=call, name=f"rabbit_chx {where}", daemon=True), where)
    return result


def unknown_outcome(cause: errors.RabbitChxError, what: str = "the message") -> errors.UnknownOutcomeError:
    """Return the error of messages that may be in a queue from a connection that ended without an answer; a copy was refused by `cause`."""
    error = errors.UnknownOutcomeError(
        f"{what} may be in a queue: a connection ended before the broker had answered, and what was sent again was refused: {cause}",
        exchange=cause.exchange,
        queue=cause.queue,
        reply_code=cause.reply_code,
    )
    error.__cause__ = cause
    return error


# -- when it is given up


def raise_if_cancelled(error: BaseException) -> None:
    """Raise a CancelledError again if the running task was cancelled. Otherwise the code of others that it awaited has raised it."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error


def interruption(where: str, cause: BaseException) -> InterruptedLinkError:
    """Return the error for calls after an interruption such as Ctrl-C."""
    return InterruptedLinkError(f"{where}: interrupted ({type(cause).__name__}): open a new one")


def use_after_close_error(where: str) -> errors.InputError:
    """Return the error for calls after `close`."""
    return errors.InputError(f"{where}: the connection is closed: open a new one")
