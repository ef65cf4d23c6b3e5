"""An issuer of OAuth 2 tokens. As a program it prints one: token_issuer.py KEY_FILE LIFETIME_S."""

from __future__ import annotations

import base64
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from canary import CANARY
from cryptography.hazmat.primitives import hashes, serialization
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

    @classmethod
    def of(cls, file: Path, lifetime_s: int) -> Issuer:
        """Return the issuer whose key is in a PEM file."""
        key = serialization.load_pem_private_key(file.read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return cls(key, lifetime_s)

    def token(self) -> tuple[str, float]:
        """Return a token and its expiry, in seconds since 1970."""
        expiry = int(time.time()) + self.lifetime_s
        scopes = [f"rabbitmq.{scope}" for scope in _SCOPES]
        claims = {"jti": CANARY, "aud": "rabbitmq", "sub": "robin", "scope": scopes, "exp": expiry}
        signed = f"{_coded({'alg': 'RS256', 'typ': 'JWT', 'kid': 'ours'})}.{_coded(claims)}"
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        self.issued.append(f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}")
        return self.issued[-1], expiry

    def write_key(self, file: Path) -> None:
        """Write the private key as PEM, for a process that makes tokens."""
        coding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        file.write_bytes(self.key.private_bytes(*coding, serialization.NoEncryption()))


def _coded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


if __name__ == "__main__":
    sys.stdout.write(Issuer.of(Path(sys.argv[1]), int(sys.argv[2])).token()[0])
