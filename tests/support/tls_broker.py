"""A broker in a container that speaks TLS, AMQP, HTTP and the stream protocol, with certificates of an authority of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pika
import trustme
from configured_container import configured_container
from declared import with_login
from exchange_types import CHX

from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.testing import RunningBroker

#: The user whom the client's certificate names.
CLIENT = "client-of-the-certificate"
#: A name that the broker's certificate has beside its address.
OTHER_NAME = "broker.test"

_AMQPS, _HTTPS, _STREAMS = 5671, 15671, 5551
_CONFIGURATION = """
listeners.ssl.default = {amqps}
stream.listeners.ssl.default = {streams}
management.tcp.port = 15672
management.ssl.port = {https}
ssl_cert_login_from = common_name
auth_mechanisms.1 = EXTERNAL
auth_mechanisms.2 = PLAIN
""" + "".join(
    f"""
{prefix}.cacertfile = /etc/rabbitmq/ca.pem
{prefix}.certfile = /etc/rabbitmq/server.pem
{prefix}.keyfile = /etc/rabbitmq/server.key
{prefix}.verify = verify_peer
{prefix}.fail_if_no_peer_cert = {{mutual}}
"""
    for prefix in ("ssl_options", "management.ssl")
)


@dataclass(frozen=True)
class TlsBroker:
    """The broker, and the certificates on the client's side.

    Attributes:
        broker: the same broker, without TLS.
        amqps_port: the port of AMQP over TLS.
        https_port: the port of the HTTP API over TLS.
        streams_port: the port of the stream protocol over TLS.
        folder: has `ca.pem`, `client.pem` and `client.key`, and those that the broker does not know: `other-ca.pem`,
            `stranger.pem` and `stranger.key`.
    """

    broker: RunningBroker
    amqps_port: int
    https_port: int
    streams_port: int
    folder: Path

    def file(self, name: str) -> str:
        """Return the path of a certificate or a key."""
        return str(self.folder / name)

    @property
    def trusted(self) -> dict[str, str]:
        """The parameters of a client that trusts the authority and shows no certificate."""
        return {"cacertfile": self.file("ca.pem")}

    @property
    def certified(self) -> dict[str, str]:
        """The parameters of a client that trusts the authority and shows its certificate."""
        return self.trusted | {"certfile": self.file("client.pem"), "keyfile": self.file("client.key")}

    @property
    def strange(self) -> dict[str, str]:
        """The parameters of a client that shows a certificate of another authority."""
        return self.trusted | {"certfile": self.file("stranger.pem"), "keyfile": self.file("stranger.key")}

    def amqps(self, parameters: dict[str, str], host: str = "127.0.0.1") -> str:
        """Return the AMQP URI with these parameters, and the login of the broker."""
        return self._url("amqps", host, self.amqps_port, "/%2F", parameters)

    def https(self, parameters: dict[str, str], host: str = "127.0.0.1") -> str:
        """Return the URL of the HTTP API with these parameters, and the login of the broker."""
        return self._url("https", host, self.https_port, "", parameters)

    def streams(self, parameters: dict[str, str], host: str = "127.0.0.1") -> str:
        """Return the URL of the stream protocol with these parameters, and the login of the broker."""
        return self._url("rabbitmq-stream+tls", host, self.streams_port, "/%2F", parameters)

    def _url(self, scheme: str, host: str, port: int, path: str, parameters: dict[str, str]) -> str:
        address = with_login(f"{scheme}://{host}:{port}{path}", "guest", "guest")
        return f"{address}?{urlencode(parameters)}" if parameters else address


@contextmanager
def tls_broker(folder: Path, *, mutual: bool) -> Iterator[TlsBroker]:
    """Start the broker in a container, for a block. It has the exchange `x`, the queue `q` in its ring, and the stream `s` with a row.

    Args:
        folder: where to write the certificates of the client.
        mutual: whether the broker refuses clients without a certificate of the authority.
    """
    authority = _written_authority(folder)
    server = authority.issue_cert("127.0.0.1", OTHER_NAME)
    configuration = _CONFIGURATION.format(
        amqps=_AMQPS, https=_HTTPS, streams=_STREAMS, mutual=str(mutual).lower()
    )
    files = {
        "ca.pem": authority.cert_pem.bytes(),
        "server.pem": server.cert_chain_pems[0].bytes(),
        "server.key": server.private_key_pem.bytes(),
        "conf.d/20-tls.conf": configuration.encode(),
    }
    own = (_AMQPS, _HTTPS, _STREAMS)
    with configured_container("rabbitmq_auth_mechanism_ssl", files, own) as (broker, ports):
        _prepare(broker)
        yield TlsBroker(broker, ports[_AMQPS], ports[_HTTPS], ports[_STREAMS], folder)


def _prepare(broker: RunningBroker) -> None:
    """Make the user of the client's certificate, and the exchange `x` with the queue `q`, as a group wants it, and a stream."""
    management = Management(str(broker.management_url))
    management.request("PUT", "users", CLIENT, body={"password_hash": "", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    management.request("PUT", "permissions", "/", CLIENT, body=everything)
    with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
        channel = connection.channel()
        arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.exchange_declare("x", CHX, durable=True)
        channel.queue_bind("q", "x", "1")
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        channel.basic_publish("", "s", b"row")


def _written_authority(folder: Path) -> trustme.CA:
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    other.cert_pem.write_to_path(folder / "other-ca.pem")
    for name, issuer in (("client", authority), ("stranger", other)):
        pair = issuer.issue_cert("client.test", common_name=CLIENT)
        pair.private_key_pem.write_to_path(folder / f"{name}.key")
        pair.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    return authority
