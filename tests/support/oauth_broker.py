"""A broker in a container that takes OAuth 2 tokens, signed with a key that is made here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from configured_container import configured_container
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from token_issuer import Issuer

from rabbit_chx.testing import RunningBroker

_CONFIGURATION = """
auth_backends.1 = internal
auth_backends.2 = rabbit_auth_backend_oauth2
auth_oauth2.resource_server_id = rabbitmq
auth_oauth2.default_key = ours
auth_oauth2.signing_keys.ours = /etc/rabbitmq/ours.pem
auth_oauth2.algorithms.1 = RS256
"""


@contextmanager
def oauth_broker() -> Iterator[tuple[RunningBroker, Issuer]]:
    """Start the broker for a block. The user guest still has a password."""
    issuer = Issuer(rsa.generate_private_key(65537, 2048))
    public = issuer.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    files = {"conf.d/20-oauth.conf": _CONFIGURATION.encode(), "ours.pem": public}
    with configured_container("rabbitmq_auth_backend_oauth2", files) as (broker, _):
        yield broker, issuer
