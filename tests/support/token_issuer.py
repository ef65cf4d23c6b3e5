"""An issuer of OAuth 2 tokens."""

from __future__ import annotations

import base64
import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bounded import repeated
from canary import CANARY
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

_SCOPES = ("configure:*/*", "write:*/*", "read:*/*", "tag:administrator")


@dataclass
class Issuer:
    """Makes tokens that contain the canary in a claim.

    Attributes:
        lifetime_s: the time until a token expires, in whole seconds.
        issued: the tokens, in their order.
    """

    key: rsa.RSAPrivateKey
    lifetime_s: int = 3
    issued: list[str] = field(default_factory=list)

    def token(self, key: rsa.RSAPrivateKey | None = None) -> tuple[str, float]:
        """Return a token and its expiry, in seconds since 1970; signed with another key if one is given."""
        expiry = int(time.time()) + self.lifetime_s
        scopes = [f"rabbitmq.{scope}" for scope in _SCOPES]
        claims = {"jti": CANARY, "aud": "rabbitmq", "sub": "robin", "scope": scopes, "exp": expiry}
        signed = f"{_coded({'alg': 'RS256', 'typ': 'JWT', 'kid': 'ours'})}.{_coded(claims)}"
        signature = (key or self.key).sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        self.issued.append(f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}")
        return self.issued[-1], expiry

    @contextmanager
    def written(self, file: Path) -> Iterator[str]:
        """Keep a new token in a file, for a block, and yield the command that prints it."""

        def write() -> None:
            file.with_suffix(".new").write_text(self.token()[0])
            file.with_suffix(".new").replace(file)

        write()
        with repeated(write, 0.5):
            yield shlex.join(["cat", str(file)])


def _coded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
