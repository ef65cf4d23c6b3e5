"""What of TLS is verified, and which files are read.

Whether a real broker's certificate is refused or accepted is tested with the broker.
"""

from __future__ import annotations

import os
import pty
import ssl
import sys
from pathlib import Path

import pytest
import trustme
from command_line import ended
from cryptography.hazmat.primitives import serialization
from descriptors import no_descriptor_left

from rabbit_chx.amqp import TlsSettings
from rabbit_chx.connection.tokens import aio_pika_arguments, server_name, tls_context
from rabbit_chx.errors import InputError, UnreachableError


@pytest.mark.parametrize(
    ("tls", "chain", "name"),
    [
        (TlsSettings(), ssl.CERT_REQUIRED, "broker.example"),
        (TlsSettings(server_name="other.example"), ssl.CERT_REQUIRED, "other.example"),
        (TlsSettings(check_server_name=False), ssl.CERT_REQUIRED, None),
        (TlsSettings(server_name="other.example", check_server_name=False), ssl.CERT_REQUIRED, None),
        (TlsSettings(verify=False), ssl.CERT_NONE, None),
        (TlsSettings(verify=False, check_server_name=False), ssl.CERT_NONE, None),
    ],
)
def test_only_verify_switches_the_verification_of_the_chain_off(
    tls: TlsSettings, chain: ssl.VerifyMode, name: str | None
) -> None:
    context = tls_context(tls)
    assert (context.verify_mode, context.check_hostname) == (chain, name is not None)
    if tls.verify:
        assert server_name("broker.example", tls) == name


def test_the_given_authority_is_the_only_one(tmp_path: Path) -> None:
    """If a file cannot be opened now, it may be later."""
    authority, file = trustme.CA(), str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(file)
    found = tls_context(TlsSettings(ca_file=file)).get_ca_certs(binary_form=True)
    assert found == [ssl.PEM_cert_to_DER_cert(authority.cert_pem.bytes().decode())]
    for tls in (TlsSettings(ca_file=file), TlsSettings(cert_file=file)):
        with no_descriptor_left(), pytest.raises(UnreachableError, match=f"'{file}' .*Too many open files"):
            tls_context(tls)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    missing, nonsense = str(tmp_path / "missing.pem"), tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    for ca_file in (missing, str(nonsense)):
        with pytest.raises(InputError, match=f"the CA certificates in '{ca_file}' cannot be used"):
            tls_context(TlsSettings(ca_file=ca_file))
    for cert_file in (missing, str(nonsense)):
        with pytest.raises(InputError, match=f"the client certificate '{cert_file}' with the key"):
            tls_context(TlsSettings(cert_file=cert_file))


_WITH_A_TERMINAL = """
import os, sys
from rabbit_chx.amqp import TlsSettings
from rabbit_chx.connection.tokens import tls_context

os.open(sys.argv[1], os.O_RDWR)  # it is the terminal of this session now
tls_context(TlsSettings(cert_file=sys.argv[2], key_file=sys.argv[3]))
"""


def test_nobody_at_the_terminal_is_asked_for_the_password_of_a_key(tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("broker.example")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    plain = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    key.write_bytes(plain.private_bytes(*form, serialization.BestAvailableEncryption(b"c4nary")))
    terminal, theirs = pty.openpty()
    try:
        os.write(terminal, b"c4nary\n")  # whoever asks has an answer at once
        in_session = ("setsid", "--wait", sys.executable, "-c", _WITH_A_TERMINAL)
        done = ended(*in_session, os.ttyname(theirs), cert, key)
    finally:
        os.close(terminal)
        os.close(theirs)
    assert f"InputError: the client certificate '{cert}' with the key '{key}' cannot be used" in done.stderr


@pytest.mark.parametrize(
    ("url", "setting"),
    [
        ("amqp://u:hush@h?channel_max=7", "channel_max"),
        ("amqp://u:hush@h?frame_max=8192", "frame_max"),
        ("amqps://u:hush@h?server_name_indication=other", "server_name_indication"),
        ("amqp://u:hush@h?auth_mechanism=external&auth_mechanism=plain", "a second auth_mechanism"),
    ],
)
def test_what_aio_pika_would_ignore_is_an_error(url: str, setting: str) -> None:
    with pytest.raises(InputError, match=f"aio-pika cannot follow {setting}: leave it out") as caught:
        aio_pika_arguments(url)
    assert "hush" not in str(caught.value)
