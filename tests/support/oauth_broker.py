"""A broker in a container that takes OAuth 2 tokens, signed with a key that is made here."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from token_issuer import Issuer

from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.containers import (
    SERVE,
    container_server,
    official_image,
    require_docker,
    require_image,
)

_CONFIGURATION = """
auth_backends.1 = internal
auth_backends.2 = rabbit_auth_backend_oauth2
auth_oauth2.resource_server_id = rabbitmq
auth_oauth2.default_key = ours
auth_oauth2.signing_keys.ours = /etc/rabbitmq/ours.pem
auth_oauth2.algorithms.1 = RS256
"""
_SERVE = SERVE.replace("for plugin in ", "for plugin in rabbitmq_auth_backend_oauth2 ")


@contextmanager
def oauth_broker(series: str = "4.3") -> Iterator[tuple[RunningBroker, Issuer]]:
    """Start the broker for a block. The user guest still has a password."""
    require_docker()
    image = official_image(series)
    require_image(image)
    issuer = Issuer(rsa.generate_private_key(65537, 2048))
    public = issuer.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    files = {"conf.d/20-oauth.conf": _CONFIGURATION.encode(), "ours.pem": public}
    written = "".join(
        f"echo {base64.b64encode(content).decode()} | base64 -d >/etc/rabbitmq/{name}\n"
        for name, content in files.items()
    )
    container = container_server(f"rabbit-chx-{secrets.token_hex(6)}")
    try:
        container.create(image, f"mkdir -p /etc/rabbitmq/conf.d\n{written}{_SERVE}")
        yield container.broker(image), issuer
    finally:
        container.remove()
