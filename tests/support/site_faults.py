"""What happens to a site while rows are written to it, each as a context manager: the fault lasts as long as the block and longer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import broker_faults
from broker_alarms import memory_alarm
from canary import make_canary_user
from fire_site import Site
from row_reader import rows_waiting

from rabbit_chx.routing import Release

_DOWN_S = 2.0
_PAUSE_S = 20.0
_ALARM_S = 8.0
_HOLE_S = 8.0
_BETWEEN_CUTS_S = 1.0
_CUTS = 3
_ROOM = 3_000
_FULL = "full"
#: The queue that is deleted or full.
_LOSER = "n2"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFault:
    """A fault, and what is promised under it.

    Attributes:
        name: for the test.
        words: what happens, for users.
        happen: begins it, and ends it after the block.
        options: the options of the connector under it.
        by_proxy: whether the rows go through the site's proxy.
        leaves: the count of a batch write's report that the fault always leaves a trace in; None for none.
        restarts: whether the broker is started again, which changes the ring on releases that keep it in Mnesia.
        loses: the queue that is gone with what it held; None where none is. A row may find its queue gone before its binding is, so
            a write may have to repeat tasks, though it succeeds.
        rebinds: whether bindings are removed.
        fails_with: what the write that it breaks says; None where it breaks none.
        mend: puts things right after a write that failed; None where nothing is to do.
    """

    name: str
    words: str
    happen: Callable[[Site], AbstractContextManager[None]]
    options: Mapping[str, str] = field(default_factory=dict)
    by_proxy: bool = False
    leaves: str | None = None
    restarts: bool = False
    loses: str | None = None
    rebinds: bool = False
    fails_with: str | None = None
    mend: Callable[[Site], None] | None = None

    def check_outcome(self, error: str | None) -> None:
        """The write has failed as it says under this fault, or has not failed."""
        if self.fails_with is None:
            assert error is None
        else:
            assert re.search(self.fails_with, error or "it has not failed")

    def keeps_the_ring(self, release: str) -> bool:
        """Whether the ring is the same before, during and after the fault."""
        if self.loses or self.rebinds:
            return False
        return not self.restarts or Release(release).store == "khepri"


@contextmanager
def killed(site: Site) -> Iterator[None]:
    broker_faults.faults_of(site.broker).kill()
    yield
    time.sleep(_DOWN_S)
    broker_faults.faults_of(site.broker).start()


@contextmanager
def paused(site: Site) -> Iterator[None]:
    with broker_faults.paused(site.broker):
        yield
        time.sleep(_PAUSE_S)


@contextmanager
def alarmed(site: Site) -> Iterator[None]:
    with memory_alarm(site.broker):
        yield
        time.sleep(_ALARM_S)


def at_once(do: Callable[[Site], object]) -> Callable[[Site], AbstractContextManager[None]]:
    """Return a fault that is over as soon as it has begun."""

    @contextmanager
    def happen(site: Site) -> Iterator[None]:
        do(site)
        yield

    return happen


def fill_queue(site: Site) -> None:
    # A limit below what the queue holds would make 3.10 drop rows, before it hears that it is to refuse them.
    length = rows_waiting(site.broker.url, [_LOSER]) + _ROOM
    full = {"max-length": length, "overflow": "reject-publish"}
    body = {"pattern": f"^{_LOSER}$", "apply-to": "queues", "definition": full}
    site.management.request("PUT", "policies", site.vhost, _FULL, body=body)


def limit_lifted(site: Site) -> None:
    site.management.request("DELETE", "policies", site.vhost, _FULL)


@contextmanager
def line_reset(site: Site) -> Iterator[None]:
    yield
    for _ in range(_CUTS):
        site.proxy.cut()
        time.sleep(_BETWEEN_CUTS_S)


@contextmanager
def black_hole(site: Site) -> Iterator[None]:
    site.proxy.freeze()
    yield
    time.sleep(_HOLE_S)
    site.proxy.to_broker.held = site.proxy.to_client.held = False


FAULTS = (
    SiteFault(
        name="killed",
        words="broker killed (SIGKILL) and started again after 2 s",
        happen=killed,
        leaves="reconnects",
        restarts=True,
    ),
    SiteFault(
        name="paused",
        words="broker frozen (SIGSTOP) for 20 s, heartbeat 5 s",
        happen=paused,
        leaves="reconnects",
        options={"heartbeat": "5s"},
    ),
    SiteFault(name="memory_alarm", words="memory alarm for 8 s", happen=alarmed, leaves="blocked_seconds"),
    SiteFault(
        name="connections_closed",
        words="every connection closed by the management API",
        happen=at_once(Site.close_connections),
        leaves="reconnects",
    ),
    SiteFault(
        name="line_reset",
        words="every line reset (RST) three times",
        happen=line_reset,
        by_proxy=True,
    ),
    SiteFault(
        name="black_hole",
        words="a line that swallows all for 8 s, confirmTimeout 5 s",
        happen=black_hole,
        options={"confirmTimeout": "5s", "connectTimeout": "3s"},
        by_proxy=True,
    ),
    SiteFault(
        name="queue_deleted",
        words="one queue deleted, with what is in it",
        happen=at_once(lambda site: site.delete_queue(_LOSER)),
        loses=_LOSER,
    ),
    SiteFault(
        name="exchange_deleted",
        words="the exchange deleted",
        happen=at_once(Site.delete_exchange),
        fails_with="NOT_FOUND - no exchange 'fire'",
        mend=Site.declare,
    ),
    SiteFault(
        name="user_deleted",
        words="the user deleted",
        happen=at_once(Site.delete_user),
        fails_with="refused",
        mend=lambda site: make_canary_user(site.management, site.vhost, site.user),
    ),
    SiteFault(
        name="queue_full",
        words="one queue full, which refuses (reject-publish)",
        happen=at_once(fill_queue),
        fails_with="a queue is full",
        mend=limit_lifted,
    ),
    SiteFault(
        name="unbound",
        words="all bindings removed",
        happen=at_once(Site.unbind),
        rebinds=True,
        fails_with="no queue took",
        mend=Site.declare,
    ),
)
