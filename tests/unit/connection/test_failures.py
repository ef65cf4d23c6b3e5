"""The sentence of each failure of a connection: it names the broker and the remedy, and hides the password."""

from __future__ import annotations

import errno
import socket
import ssl
from pathlib import Path

import pytest

import rabbit_chx
from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection import failures

SETTINGS = ConnectionSettings.from_uri("amqps://user:c4nary@broker.example?connection_timeout=1500")
WHERE = SETTINGS.masked_url
REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "refused")


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (failures.unreachable(SETTINGS, REFUSED), errors.UnreachableError, "no server answers there .*refused.*: check host"),
        (failures.unreachable(SETTINGS, REFUSED, "as told"), errors.UnreachableError, r"no server answers there \(as told\)"),
        (failures.unreachable(SETTINGS, OSError(errno.EMFILE, "Too many")), errors.UnreachableError, "no file descriptor left .*Too many"),
        (failures.unreachable(SETTINGS, OSError(errno.ENFILE, "All in use")), errors.UnreachableError, "no file descriptor left .*All in"),
        (failures.unreachable(SETTINGS, socket.gaierror("unknown")), errors.UnreachableError, "cannot be resolved .unknown"),
        (failures.unreachable(SETTINGS, TimeoutError()), errors.BrokerTimeoutError, "no answer within 1.5 s"),
        (failures.unreachable(SETTINGS, ssl.SSLError("version")), errors.UnreachableError, "TLS cannot be agreed on .*version"),
        (failures.tls_error(SETTINGS, ConnectionResetError("reset")), errors.UnreachableError, "TLS cannot be agreed on .reset"),
        (failures.tls_error(SETTINGS, TimeoutError()), errors.BrokerTimeoutError, "no TLS handshake within 1.5 s"),
        (failures.handshake_timeout(SETTINGS), errors.BrokerTimeoutError, "did not finish the AMQP handshake within 1.5 s"),
        (failures.disconnect_error(WHERE), errors.ConnectionLostError, "the broker's side closed it; look at its log"),
        (failures.disconnect_error(WHERE, OSError("reset")), errors.ConnectionLostError, "was lost: reset"),
        (failures.heartbeat_error(WHERE, 61), errors.ConnectionLostError, "not even a heartbeat, for 61 s"),
        (failures.invalid_bytes(WHERE, ValueError("no frame")), errors.ConnectionLostError, "cannot be understood: no frame"),
        (failures.invalid_bytes(WHERE, ValueError("cannot unmarshal <Connection.Close object at 0x7fa7316e3f50>")), errors.ConnectionLostError, "<Connection.Close>"),
        (failures.certificate_error(WHERE, ssl.SSLError(1, "tlsv1 alert certificate expired")), errors.UnreachableError, "renew it"),
        (failures.reply_timeout_error(WHERE, "Exchange.Declare", 60), errors.BrokerTimeoutError, "no answer to Exchange.Declare within 60"),
        (failures.interruption(WHERE, KeyboardInterrupt()), errors.ConnectionLostError, r"interrupted \(KeyboardInterrupt\)"),
        (failures.use_after_close_error(WHERE), errors.InputError, "the connection is closed: open a new one"),
    ],
)  # fmt: skip
def test_a_failure_has_its_kind_and_its_sentence(
    error: errors.RabbitChxError, kind: type[errors.RabbitChxError], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        raise error
    assert str(caught.value).startswith("amqps://user:***@broker.example")


def test_a_closed_stream_port_is_told_what_opens_it() -> None:
    streams = ConnectionSettings(host="broker.example", protocol="stream")
    ended = failures.disconnect_error(streams.masked_url)
    for error in failures.unreachable(streams, REFUSED), failures.handshake_failure(streams, ended):
        assert str(error).endswith("the plugin rabbitmq_stream (rabbitmq-plugins enable rabbitmq_stream)")
    assert "plugin" not in str(failures.unreachable(SETTINGS, REFUSED))


def test_only_a_port_without_tls_is_told_of_amqps() -> None:
    ended = failures.disconnect_error("amqp://broker.example")
    assert "needs amqps://" not in str(failures.handshake_failure(SETTINGS, ended))
    plain = ConnectionSettings(host="broker.example")
    assert "is AMQP 0-9-1 spoken there? Check the port; a port that speaks TLS needs amqps://" in str(
        failures.handshake_failure(plain, ended)
    )


@pytest.mark.parametrize("alert", ["tlsv13 alert certificate required", "tlsv1 alert unknown ca"])
def test_a_refused_certificate_has_the_same_message_before_and_after_the_handshake(alert: str) -> None:
    cause = ssl.SSLError(1, f"[SSL: ALERT] {alert} (_ssl.c:2580)")
    before = failures.tls_error(SETTINGS, cause)
    lost = failures.disconnect_error(SETTINGS.masked_url, cause)
    behind = failures.handshake_failure(SETTINGS, lost)
    assert str(before) == str(lost) == str(behind)
    assert "pass one of an authority that it trusts with certfile and keyfile" in str(behind)
    assert failures.certificate_error("", ConnectionResetError("reset")) is None


@pytest.mark.parametrize(
    ("code", "words", "remedy"),
    [
        (9, "certificate is not yet valid", "check the clocks"),
        (10, "certificate has expired", "it has expired: renew it on the broker"),
        (20, "unable to get local issuer certificate", "pass its CA with cacertfile"),
        (62, "Hostname mismatch, certificate is not valid for 'h'.", "pass one with server_name_indication"),
    ],
)
def test_the_remedy_for_a_certificate_is_that_of_its_fault(code: int, words: str, remedy: str) -> None:
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_code, cause.verify_message = code, words
    said = str(failures.certificate_error("amqps://h", cause))
    assert f"the broker's certificate is not accepted ({words}): " in said
    assert remedy in said
    assert ("cacertfile" in said) is (code == 20)


@pytest.mark.parametrize("package", ["connection", "consuming", "publishing"])
def test_each_thread_is_started_where_a_system_without_threads_is_named(package: str) -> None:
    sources = [path.read_text() for path in (Path(rabbit_chx.__file__).parent / package).rglob("*.py")]
    made = sum(source.count("threading.Thread(") for source in sources)
    started = sum(source.count("start_thread(") - source.count("def start_thread(") for source in sources)
    assert made == started > 0
    assert not any(").start()" in source for source in sources)
