"""Settings in pika's terms."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from pika.credentials import PlainCredentials

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import pika_parameters
from rabbit_chx.errors import InputError


def test_parameters_follow_the_settings() -> None:
    parameters = pika_parameters(
        "amqp://u:p%40@[::1]:5673/a%2Fb?heartbeat=7&connection_timeout=1500&channel_max=9&frame_max=8192"
    )
    assert (parameters.host, parameters.port, parameters.virtual_host) == ("::1", 5673, "a/b")
    assert isinstance(parameters.credentials, PlainCredentials)
    assert (parameters.credentials.username, parameters.credentials.password) == ("u", "p@")
    assert (parameters.heartbeat, parameters.channel_max, parameters.frame_max) == (7, 9, 8192)
    assert (parameters.socket_timeout, parameters.stack_timeout) == (1.5, 1.5)
    assert parameters.connection_attempts == 1
    assert parameters.ssl_options is None
    named = pika_parameters(ConnectionSettings(connection_name="nightly", frame_max=10_000_000))
    assert named.client_properties == {"connection_name": "nightly"}
    assert named.frame_max == 131_072


def test_tls_parameters_become_a_context_that_verifies(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    url = f"amqps://h?cacertfile={ca_file}&server_name_indication=mq"
    with pytest.raises(InputError, match=f"'{ca_file}'"):
        pika_parameters(url)
    trustme.CA().cert_pem.write_to_path(ca_file)
    options = pika_parameters(url).ssl_options
    assert options is not None
    assert options.context.verify_mode is ssl.CERT_REQUIRED
    assert options.context.check_hostname
    assert len(options.context.get_ca_certs()) == 1
    assert options.server_hostname == "mq"
