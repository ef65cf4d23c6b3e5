"""The publisher over TLS."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from publishing_support import Consumed, through

from rabbit_chx.errors import InputError, UnreachableError
from rabbit_chx.publishing import Publisher

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_url(vhost_url: str, proxy: Callable[..., Any], authority: trustme.CA) -> str:
    """A way to the broker over TLS, with a certificate for 127.0.0.1 of an authority of our own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "broker.test").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    return through(vhost_url, proxy(tls=context).port).replace("amqp://", "amqps://")


def test_tls(consumed: Consumed, tls_url: str, authority: trustme.CA, tmp_path: Path) -> None:
    ca, client = tmp_path / "ca.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(str(ca))
    authority.issue_cert("client.test").private_key_and_cert_chain_pem.write_to_path(str(client))
    with Publisher(f"{tls_url}?cacertfile={ca}&certfile={client}", "x") as publisher:
        assert publisher.publish_many(["k"] * 3_000, [b"b" * 1_000] * 3_000).confirmed == 3_000
        assert publisher.publish_many(["k"], [b"b" * 3_000_000]).confirmed == 1
    assert len(consumed()) == 3_001
    with Publisher(f"{tls_url}?cacertfile={ca}&server_name_indication=broker.test", "x") as publisher:
        assert publisher.publish_many(["k"], ["b"]).complete


def test_tls_to_a_plain_port_and_missing_files(vhost_url: str) -> None:
    secure = vhost_url.replace("amqp://", "amqps://")
    with pytest.raises(UnreachableError, match=r"TLS cannot be agreed on .* is it a TLS port"):
        Publisher(secure, "x")
    with pytest.raises(InputError, match=r"CA certificates in '/no/ca.pem' cannot be used"):
        Publisher(f"{secure}?cacertfile=/no/ca.pem", "x")
