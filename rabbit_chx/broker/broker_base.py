"""What the blocking and the asyncio broker share: the settings, and the sequences that both carry out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.management_url import ManagementUrl
from rabbit_chx.amqp.secret import read_secretly
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.message_carrier import MessageCarrier
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.ring_source import DiagnosticsRing, RingSource, rings_by
from rabbit_chx.errors import InputError, ManagementNeededError, MismatchError
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import Plan, steps
from rabbit_chx.topology.applying import Applied, Permission, plan_applied
from rabbit_chx.topology.hand_over import HAND_OVER_LEVELS
from rabbit_chx.topology.operations import ApiRequest
from rabbit_chx.topology.reading import OVERVIEW, release_read, ring_read
from rabbit_chx.topology.steps import Access, CarrierStep, RingRequest

if TYPE_CHECKING:
    from rabbit_chx.broker.aio_pika_connection import AioPikaConnection

_Class = TypeVar("_Class", bound=type)


class BrokerBase:
    """The settings of a broker, and what is asked of it without AMQP. Arguments and errors as in `Broker`."""

    _HOW_TO_OPEN: ClassVar[str]
    _connection: PikaConnection | AioPikaConnection | None

    def __init__(
        self,
        url: str,
        management_url: str | ManagementUrl | None = None,
        ring_source: RingSource | str | Sequence[str] | None = None,
    ) -> None:
        try:
            self._settings = read_secretly(ConnectionSettings.from_uri, url)
            management = read_secretly(_managed, management_url)
        finally:
            del url, management_url
        self._management = None if management is None else Management(management)
        self._ring_source = _as_ring_source(ring_source)
        self._carrier = MessageCarrier(self._settings)
        self._access = Access(
            self._settings.masked_url,
            self._settings.vhost,
            self._management is not None,
            self._ring_source is not None,
        )

    def __repr__(self) -> str:
        if not hasattr(self, "_access"):  # an argument was refused
            return f"<{type(self).__name__}: no URL>"
        management = f", management_url={self._management.masked_url!r}" if self._management else ""
        return f"{type(self).__name__}({self._settings.masked_url!r}{management})"

    def _answer(self, step: ApiRequest | RingRequest | CarrierStep) -> Any:  # noqa: ANN401  # as the step says
        """Answer a step that is not for the connection. This blocks."""
        if isinstance(step, CarrierStep):
            return self._carrier.answer(step)
        if isinstance(step, ApiRequest):
            if self._management is None:
                raise ManagementNeededError(
                    f"{self._access.where}: AMQP does not tell bindings, arguments and policies: give "
                    "management_url='http://user:password@host:15672', on the command line --management-url"
                )
            answer = self._management.answer(step)
            if step == OVERVIEW:
                self._check_cluster(answer)
            return answer
        assert self._ring_source is not None  # noqa: S101  # a sequence asks for rings only if there is a source
        return rings_by(self._ring_source, self._settings.vhost, step.exchanges)

    def _check_cluster(self, overview: Mapping[str, Any]) -> None:
        """Refuse a management API of another broker: its answers say nothing about this one."""
        connection = self._connection
        if connection is None or self._management is None:
            return
        connected, managed = connection.cluster_name, overview.get("cluster_name")
        # Nodes of one cluster may have several versions, so its name goes before them.
        if connected is None or not isinstance(managed, str):
            connected, managed = (
                f"RabbitMQ {connection.server_version}",
                f"RabbitMQ {overview['rabbitmq_version']}",
            )
        if connected != managed:
            raise MismatchError(
                f"{self._access.where} is {connected}, and {self._management.masked_url} is {managed}: give the URLs of one broker "
                "(or connect again, if its cluster was renamed)"
            )

    def _release_sequence(self, version: str) -> steps.Sequence[Release]:
        if self._management is None:
            return Release(version)
        return (yield from release_read())

    def _ring_sequence(self, exchange: str, release: Release) -> steps.Sequence[HashRing]:
        if not self._access.has_source and not self._access.has_management:
            raise ManagementNeededError(
                f"the ring of {exchange!r} cannot be read over AMQP: give a ring_source, such as 'docker exec NAME', "
                "'kubectl exec POD --', or '' for a broker on this machine; or give a management_url to assume it from "
                "the bindings",
                exchange=exchange,
            )
        return (yield from ring_read(self._access, exchange, release))

    def _apply_sequence(
        self, plan: Plan, permission: Permission, progress: Callable[[int, int], None]
    ) -> steps.Sequence[Applied]:
        if permission.moved is not None and not 0 <= permission.moved <= 1:
            raise InputError(f"allow_moved is {permission.moved!r}: give a share from 0 to 1")
        if permission.hand_over not in HAND_OVER_LEVELS:
            raise InputError(
                f"hand_over is {permission.hand_over!r:.40}: give {' or '.join(HAND_OVER_LEVELS)}"
            )
        return (yield from plan_applied(plan, self._access, permission, progress))

    def _not_open(self) -> InputError:
        return InputError(f"the {type(self).__name__} is not connected: {self._HOW_TO_OPEN}")


def documented_as(model: type) -> Callable[[_Class], _Class]:
    """Give the public methods of a class that have no docstring those of the same names in another class."""

    def document(documented: _Class) -> _Class:
        for name, method in vars(documented).items():
            if not name.startswith("_") and method.__doc__ is None:
                method.__doc__ = getattr(model, name).__doc__
        return documented

    return document


def ignore_progress(_done: int, _total: int) -> None:
    """Take the progress of `apply` and do nothing."""


def _managed(url: str | ManagementUrl | None) -> ManagementUrl | None:
    return ManagementUrl.of(url) if isinstance(url, str) else url


def _as_ring_source(source: Any) -> RingSource | None:  # noqa: ANN401 - it is looked at here
    if isinstance(source, str | list | tuple):
        return DiagnosticsRing(source)
    if source is None or hasattr(source, "read"):
        return cast("RingSource | None", source)
    raise InputError(
        f"ring_source is of type {type(source).__name__}: give a command prefix, such as 'docker exec NAME', "
        "or an object with a method read(vhost, exchange)"
    )
