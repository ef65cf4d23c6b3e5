"""The prediction of an upgrade put to two brokers of our own, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rabbit_chx.analysis import Refused
from rabbit_chx.broker import Broker, DiagnosticsRing
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import ApplyError, NoBrokerError, PlanRefusedError
from rabbit_chx.testing.rehearsal.exchange_trial import places_of
from rabbit_chx.testing.rehearsal.release_brokers import release_broker, source_of
from rabbit_chx.testing.rehearsal.stand_ins import StandIn, stand_in_for
from rabbit_chx.testing.rehearsal.upgrade_proof import (
    IN_ARRAYS,
    ExchangeProof,
    Trial,
    UpgradeProof,
    exchange_proof,
)
from rabbit_chx.testing.vhosts import in_vhost
from rabbit_chx.topology import ExchangeDefinition, Topology, plan
from rabbit_chx.topology.objects import HASH_EXCHANGE
from rabbit_chx.topology.upgrade import hash_exchanges, predict_exchange
from rabbit_chx.topology.upgrade_exchange import ExchangeUpgrade, SampledMessage, same_rules

if TYPE_CHECKING:
    from rabbit_chx.routing import Release
    from rabbit_chx.testing.running_broker import RunningBroker

__all__ = ["prove_upgrade"]


def prove_upgrade(
    topology: Topology,
    samples: Mapping[str, Sequence[SampledMessage]],
    before: Release,
    after: Release,
    *,
    said: Callable[[str], None] = lambda _: None,
    seen: Callable[[int], None] = lambda _: None,
) -> UpgradeProof:
    """Start a broker of each release, publish the samples to both, and compare each message with the mirror.

    The brokers run one after the other, and are removed in any case. Each exchange is declared with what is bound to it,
    in the order of its ring, and nothing else of the topology.

    Args:
        topology: what there is.
        samples: the messages of each hash exchange, by its name.
        before: the release before.
        after: the release after.
        said: called with a line before something that takes its time.
        seen: called from time to time with the number of messages that have come.

    Raises:
        NoBrokerError: there is no broker of a release.
        RabbitChxError: a broker refuses something, or its connection ends.
    """
    run = _Run(replace(topology, rings={}), samples, said, seen)  # a fresh broker has no ghosts
    sources = [source_of(release) for release in (before, after)]  # both are sought before one is started
    releases: list[Release] = []
    origins: list[str] = []
    for asked, (where, source) in zip((before, after), sources, strict=True):
        said(f"starting RabbitMQ {asked.version}: {where}")
        with release_broker(source) as broker:
            origins.append(broker.origin)
            releases.append(_release_of(broker, asked))
            run.on(broker, releases[0], releases[-1])
    first, second = releases
    alike = same_rules(before, first) and same_rules(after, second)
    return UpgradeProof(first, second, (origins[0], origins[1]), alike, tuple(run.proofs()))


class _Run:
    """The trials of all exchanges, on one broker after the other."""

    def __init__(
        self,
        topology: Topology,
        samples: Mapping[str, Sequence[SampledMessage]],
        said: Callable[[str], None],
        seen: Callable[[int], None],
    ) -> None:
        self._topology = topology
        self._samples = samples
        self._said = said
        self._seen = seen
        self._come = 0
        self._left_out: dict[str, str] = {}
        self._upgrades: dict[str, ExchangeUpgrade] = {}
        self._trials: dict[str, list[Trial]] = {one.name: [] for one in hash_exchanges(topology)}

    def on(self, broker: RunningBroker, before: Release, release: Release) -> None:
        """Try every exchange on a broker.

        Args:
            broker: the broker.
            before: the release before.
            release: the release of the broker; for the first broker, the release before once more.
        """
        for number, exchange in enumerate(hash_exchanges(self._topology)):
            if exchange.name in self._left_out:
                continue
            messages = self._samples.get(exchange.name, ())
            upgrade = predict_exchange(self._topology, exchange, messages, before, release)
            if upgrade.sample is None:
                self._left_out[exchange.name] = "no rule says where its messages go"
                continue
            self._upgrades[exchange.name] = upgrade
            to_publish = {
                n: message
                for n, message in enumerate(messages)
                if not isinstance(upgrade.sample.after[n], Refused)
            }
            if upgrade.kept_in_array is not None and upgrade.hashed_on is not None:
                header = upgrade.hashed_on.name
                to_publish |= {n + IN_ARRAYS: one.with_array(header) for n, one in enumerate(messages)}
            self._said(
                f"RabbitMQ {release.version}: publishing {len(to_publish):,} messages to {exchange.name}"
            )
            try:
                trial = self._tried(_with_vhost(broker, f"rehearsal-{number}"), exchange, release, to_publish)
            except PlanRefusedError as refusal:
                self._left_out[exchange.name] = f"RabbitMQ {release.version} refuses it: {refusal}"
                continue
            self._trials[exchange.name].append(trial)

    def proofs(self) -> list[ExchangeProof]:
        """Return what both brokers did, by exchange."""
        return [
            ExchangeProof(name, left_out=self._left_out[name])
            if name in self._left_out
            else exchange_proof(self._upgrades[name], *trials)
            for name, trials in self._trials.items()
        ]

    def _tried(
        self,
        broker: RunningBroker,
        exchange: ExchangeDefinition,
        release: Release,
        messages: Mapping[int, SampledMessage],
    ) -> Trial:
        stand_in = stand_in_for(self._topology, exchange)
        ring = None
        with Broker(broker.url, broker.management_url, DiagnosticsRing(broker.ring_via or ())) as live:
            _declare(live, stand_in)
            if exchange.type == HASH_EXCHANGE and not stand_in.renamed:
                ring = live.ring(stand_in.exchange)
        base = self._come
        places = places_of(broker.url, stand_in, messages, lambda count: self._seen(base + count))
        self._come += len(messages)
        return Trial(release, len(messages), places, ring)


def _declare(live: Broker, stand_in: StandIn) -> None:
    wanted = plan(stand_in.topology, live.topology())
    with suppress(ApplyError):  # the ring is read afterwards, and compared with the mirror
        live.apply(wanted)


def _release_of(broker: RunningBroker, asked: Release) -> Release:
    with Broker(broker.url, broker.management_url) as live:
        release = live.release
    if release.store != asked.store:
        raise NoBrokerError(f"{broker.origin} has the store {release.store}, and {asked} was asked for")
    return release


def _with_vhost(broker: RunningBroker, vhost: str) -> RunningBroker:
    """Return the broker with a new vhost in its URL. It goes with the broker."""
    assert broker.management_url is not None  # noqa: S101  # a broker of ours has one
    Management(broker.management_url).request("PUT", "vhosts", vhost)
    return in_vhost(broker, vhost)
