"""The state of a broker that the pages show: one reading of each vhost that has exchanges that hash."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from rabbit_chx.broker.exchange_report import ShownExchange
from rabbit_chx.broker.usage import with_settled_consumers
from rabbit_chx.checking.check import TopologyCheck, check
from rabbit_chx.cli.app import say_traceback, unexpected
from rabbit_chx.cli.command import say
from rabbit_chx.errors import NotFoundError, RabbitChxError
from rabbit_chx.topology import LiveTopology
from rabbit_chx.topology.modulus import hashes
from rabbit_chx.topology.objects import HASH_EXCHANGE, MODULUS_EXCHANGE, ExchangeDefinition

if TYPE_CHECKING:
    from rabbit_chx.cli.broker_options import BrokerAddresses


@dataclass(frozen=True, slots=True)
class VhostState:
    """A vhost.

    Attributes:
        topology: its objects and rings.
        check: what is wrong with them.
    """

    topology: LiveTopology
    check: TopologyCheck

    def shown(self, exchange: str) -> ShownExchange:
        """Return what is known about an exchange."""
        return ShownExchange.of(self.topology, exchange)

    @property
    def hashing(self) -> list[ExchangeDefinition]:
        """The exchanges that hash."""
        return [exchange for exchange in self.topology.exchanges if hashes(exchange)]


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker: its address, the vhosts that have exchanges that hash, by name, and the time of the reading in seconds since 1970."""

    address: str
    vhosts: Mapping[str, VhostState]
    time_s: float

    def vhost(self, name: str) -> VhostState:
        """Return a vhost.

        Raises:
            NotFoundError: no exchange hashes there.
        """
        if name not in self.vhosts:
            known = ", ".join(self.vhosts) or "none"
            raise NotFoundError(f"no exchange hashes in vhost {name!r:.80}; those with one: {known:.300}")
        return self.vhosts[name]


def read_state(at: BrokerAddresses) -> BrokerState:
    """Read a broker.

    Raises:
        UnreachableError: an address does not answer.
        AccessRefusedError: the user may not read it.
        RingSourceError: the rings could not be read.
    """
    api = at.management("the pages show exchanges, which AMQP alone does not list")
    columns = {"columns": "name,vhost,type"}
    listed = api.get_list("exchanges", query=columns, fields={"name": str, "vhost": str, "type": str})
    names = sorted({entry["vhost"] for entry in listed if _may_hash(entry)})
    read = {name: _read_vhost(at.in_vhost(name)) for name in names}
    return BrokerState(at.address, {name: seen for name, seen in read.items() if seen.hashing}, time.time())


def _may_hash(entry: Mapping[str, object]) -> bool:
    if entry["type"] == "direct":  # a super stream is one
        return entry["name"] not in ("", "amq.direct")
    return entry["type"] in (HASH_EXCHANGE, MODULUS_EXCHANGE)


def _read_vhost(at: BrokerAddresses) -> VhostState:
    with at.broker() as broker:
        topology = with_settled_consumers(broker.topology(), at.management(""))
    return VhostState(topology, check(topology))


# -- A reading of the broker that all viewers share: at most one at a time, none while nobody looks


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Seen(Generic[_T]):
    """What the last readings found.

    Attributes:
        value: the last value; None if there was none.
        read_at: when it was read, on the monotonic clock.
        error: why the last reading failed, or that it has not ended in time; empty if the value is of now.
        took_s: how long its reading took, in seconds.
    """

    value: _T | None = None
    read_at: float = 0.0
    error: str = ""
    took_s: float = 0.0

    def age_s(self) -> float:
        """Return the age of the value in seconds."""
        return time.monotonic() - self.read_at


class SharedValue(Generic[_T]):
    """The last value of a function, which is called again if somebody looks and the value is old.

    Args:
        read: returns the value; blocks.
        every_s: the least time in seconds between the beginnings of two calls.
        first_s: how long a viewer waits for the first value, in seconds.
        next_s: how long a viewer waits for a newer one, before the last one is shown. One that is older than two readings has an error.
    """

    def __init__(
        self, read: Callable[[], _T], every_s: float, first_s: float = 20.0, next_s: float = 1.0
    ) -> None:
        self._read = read
        self._every_s = every_s
        self._first_s = first_s
        self._next_s = next_s
        self._lock = threading.Lock()
        self._seen: Seen[_T] = Seen()
        self._began = -every_s
        self._ended: threading.Event | None = None

    def look(self) -> Seen[_T]:
        """Return the value, or the last one and the error."""
        with self._lock:
            now = time.monotonic()
            is_first = self._ended is None and (self._seen.value is None or self._is_old())
            if self._ended is None and now - self._began >= self._every_s:
                self._began = now
                self._ended = threading.Event()
                # A daemon: a broker that does not answer does not keep the program from ending.
                run = copy_context().run  # for --debug
                threading.Thread(target=run, args=(self._run, self._ended), daemon=True).start()
            ended = self._ended
            wait_s = self._first_s if is_first or self._seen.value is None else self._next_s
        if ended is not None and not ended.wait(wait_s) and self._is_old():
            age_s = wait_s if self._seen.value is None else round(self._seen.age_s())
            return replace(self._seen, error=f"the broker has not answered for {age_s:g} s")
        return self._seen

    def _is_old(self) -> bool:
        seen = self._seen
        return seen.value is None or seen.age_s() > 2 * (self._every_s + seen.took_s) + self._next_s

    def _run(self, ended: threading.Event) -> None:
        try:
            value = self._read()
            self._seen = Seen(value, time.monotonic(), took_s=time.monotonic() - self._began)
        except RabbitChxError as error:
            self._seen = replace(self._seen, error=str(error))
        except Exception as error:  # noqa: BLE001  # its text may have a password
            self._seen = replace(self._seen, error=tell_crash(error))
        finally:
            with self._lock:
                self._ended = None
            ended.set()


def tell_crash(error: Exception) -> str:
    """Write an error that is none of ours to stderr as the commands do, and return the sentence for the page."""
    say_traceback(error)
    text = unexpected(error)
    say(text)
    return text
