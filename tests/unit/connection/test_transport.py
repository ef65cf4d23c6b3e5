"""Sockets: what of TLS is verified, how long a name may take, and what the peer has not taken yet.

That a real broker's certificate is refused or taken is tested with the broker.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from rabbit_chx.amqp import ConnectionSettings, TlsSettings
from rabbit_chx.connection.transport import Transport, bytes_not_taken, server_name, tls_context
from rabbit_chx.errors import InputError, UnreachableError

if TYPE_CHECKING:
    from pathlib import Path

HOST = ConnectionSettings(host="broker.example")


@pytest.mark.parametrize(
    ("tls", "chain", "name"),
    [
        (TlsSettings(), ssl.CERT_REQUIRED, True),
        (TlsSettings(server_name="other.example"), ssl.CERT_REQUIRED, True),
        (TlsSettings(check_server_name=False), ssl.CERT_REQUIRED, False),
        (TlsSettings(verify=False), ssl.CERT_NONE, False),
        (TlsSettings(verify=False, check_server_name=False), ssl.CERT_NONE, False),
    ],
    ids=["default", "another name", "no name", "nothing verified", "nothing verified and no name"],
)
def test_only_verify_switches_the_verification_of_the_chain_off(
    tls: TlsSettings,
    chain: ssl.VerifyMode,
    name: bool,  # noqa: FBT001
) -> None:
    context = tls_context(tls)
    assert (context.verify_mode, context.check_hostname) == (chain, name)


@pytest.mark.parametrize(
    ("tls", "name"),
    [
        (TlsSettings(), "broker.example"),
        (TlsSettings(server_name="other.example"), "other.example"),
        (TlsSettings(check_server_name=False), None),
        (TlsSettings(server_name="other.example", check_server_name=False), None),
    ],
)
def test_the_name_that_is_asked_for(tls: TlsSettings, name: str | None) -> None:
    assert server_name(HOST, tls) == name


def test_the_given_authority_is_the_only_one(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    found = tls_context(TlsSettings(ca_file=str(tmp_path / "ca.pem"))).get_ca_certs(binary_form=True)
    assert found == [ssl.PEM_cert_to_DER_cert(authority.cert_pem.bytes().decode())]


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    missing, nonsense = str(tmp_path / "missing.pem"), tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    for ca_file in (missing, str(nonsense)):
        with pytest.raises(InputError, match=f"the CA certificates in '{ca_file}' cannot be used"):
            tls_context(TlsSettings(ca_file=ca_file))
    for cert_file in (missing, str(nonsense)):
        with pytest.raises(InputError, match=f"the client certificate '{cert_file}' with the key"):
            tls_context(TlsSettings(cert_file=cert_file))


def test_a_resolver_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted: a resolver that hangs cannot be had on loopback."""
    over = threading.Event()

    def hang(*_: object, **__: object) -> list[Any]:
        over.wait(10)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    started = time.monotonic()
    with pytest.raises(
        UnreachableError, match=r"cannot be resolved \(the resolver has not answered in time\)"
    ):
        Transport(ConnectionSettings(host="slow.example"), time.monotonic() + 0.1)
    assert time.monotonic() - started < 5
    over.set()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_what_the_peer_has_not_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        settings = ConnectionSettings(host="127.0.0.1", port=listener.getsockname()[1])
        with contextlib.closing(Transport(settings, time.monotonic() + 5)) as transport:
            peer, _ = listener.accept()
            with peer:
                sent = transport.send(memoryview(bytes(1 << 20)))
                held = transport.bytes_not_taken
                assert 0 < held <= sent
                taken = 0
                while taken < sent:
                    taken += len(peer.recv(65_536))
                deadline = time.monotonic() + 5
                while transport.bytes_not_taken and time.monotonic() < deadline:
                    time.sleep(0.01)  # the kernels' own talk
                assert transport.bytes_not_taken == 0
        assert transport.bytes_not_taken == 0, "a closed socket holds nothing"


def test_a_socket_that_cannot_tell_holds_nothing() -> None:
    closed = socket.socket()
    closed.close()
    assert bytes_not_taken(closed) == 0
