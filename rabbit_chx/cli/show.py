"""``rabbit-chx show``: hash exchanges, a line each; or some of them with members, shares, slots and record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis import ring_findings
from rabbit_chx.broker.exchange_report import (
    ShownExchange,
    list_moduli,
    list_report,
    list_rings,
    show_report,
)
from rabbit_chx.broker.usage import with_settled_consumers
from rabbit_chx.checking.check import TopologyCheck, check
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import TEXT, ExitCode, Outcome, Rules, argument, command, option, options, say
from rabbit_chx.cli.printed import exchange_named
from rabbit_chx.cli.read_rings import say_doubts
from rabbit_chx.cli.samples import KeySource, keys_option, read_load
from rabbit_chx.cli.stream_options import GroupOptions
from rabbit_chx.command_texts import command_text, in_vhost
from rabbit_chx.errors import InputError
from rabbit_chx.planning.refusals import check_certain
from rabbit_chx.records.evidence import evidence_of
from rabbit_chx.records.live_rings import how_to_record, read_without_record
from rabbit_chx.rendering.document import Document
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.topology.objects.objects import HASH_EXCHANGE
from rabbit_chx.topology.rules.plugin_objects import ShardName
from rabbit_chx.topology.rules.policies import SHARDS_PER_NODE

if TYPE_CHECKING:
    from rabbit_chx.broker.live_exchange import LiveExchange
    from rabbit_chx.topology.rules.shards import ShardedExchange

#: How a RING begins or ends that is no exchange of the broker.
_OF_FILES = (".toml", ".json")
_OF_TYPES = ("modulus:", "super-stream:")


@command(
    example="rabbit-chx show orders --management-url http://localhost:15672 --ring-via 'docker exec rabbitmq'",
    has_metrics=True,
    has_pictures=True,
    rules=Rules(
        needs=dict.fromkeys(("--journal", "--stream-group", "--output prometheus"), "--consumers")
        | {"--address": "--stream-group"},
        excludes=[
            ("--all-vhosts", "EXCHANGE"),
            ("--journal", "--stream-group"),
            *((name, "--consumers") for name in ("--all-vhosts", "--keys")),
        ],
        of_one=("--keys",),
    ),
)
def show(
    *,
    exchanges: tuple[str, ...] = argument(nargs=-1, type=TEXT, metavar="[EXCHANGE]..."),
    all_vhosts: bool = option(help="List the exchanges of every vhost that the user may access."),
    group: GroupOptions = options(GroupOptions),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    keys: KeySource | None = keys_option("A sample of keys: show the load of each member"),
) -> Outcome:
    """List the hash exchanges; or show the members of each EXCHANGE, the exact shares, slots, shards, the record.

    --ring-via reads the true ring. Without it the ring is that of the record on the broker, if there is one that fits; else its order is not
    known, and only what holds in every order is shown. The list has the findings of `check`. RabbitMQ does not count the messages of a slot: a
    sample of keys adds the load of each member and the heaviest keys.

    --consumers shows the queues of EXCHANGE, or of its slots, and who consumes them. The consumer tags that
    ConsumerGroup sets identify the members of a group; its journal has the time of the last switch. Values of the
    management API are up to 5 s old; if a queue has consumers but none is active, the command retries for 6 s.

    Nothing is changed. The exit code is 3 if the order of a ring is not known, or the user does not see all consumers. If no exchange hashes, it
    is 2, and stderr says whether the plugin, the vhost or a permission is missing.
    """
    _refuse_rings(exchanges)
    exchanges = tuple(map(exchange_named, exchanges))
    if group.consumers:
        from rabbit_chx.cli.show_consumers import consumers_report

        return _outcome(
            consumers_report(broker.live(streams=group.stream_group is not None), exchanges, group)
        )
    at = broker.live()
    if not exchanges:
        return _list_exchanges(at, all_vhosts=all_vhosts)
    report = show_report({name: _read(at, name, keys) for name in exchanges})
    return _outcome(replace(report, about=f"{at.address}, vhost {at.settings.vhost}"))


def _outcome(report: Document) -> Outcome:
    return Outcome(report, ExitCode.DONE if report.is_determined else ExitCode.PARTLY)


def _refuse_rings(names: Sequence[str]) -> None:
    """Refuse what is a RING of other commands, and no exchange of a broker."""
    for name in names:
        path = name.partition("#")[0]
        if name != exchange_named(name):
            continue
        if path.endswith(_OF_FILES):
            what = "is a file"
            instead = f"check it with {command_text('check', path, '--offline')}"
        elif "=" in name or name.startswith(_OF_TYPES):
            what = "are bindings"
            instead = f"for their shares use {command_text('compare', name)}"
        else:
            continue
        other = f"; an exchange with this name is exchange:{name:.80}"
        raise InputError(f"{name!r} {what}, and show reads exchanges of the broker: {instead}{other}")


# -- some exchanges


def _read(at: BrokerAddresses, name: str, keys: KeySource | None) -> ShownExchange:
    """Read an exchange, and write its defects to stderr."""
    findings = []
    if at.ring_source is not None and at.management_url is None:
        with at.open() as opened, sign_of_life("reading the ring"):
            ring = opened.ring(name)
            cluster = opened.cluster
        findings = ring_findings(ring)
        shown = ShownExchange(name, at.settings.vhost, ring, cluster=cluster)
    else:
        with sign_of_life("reading the exchange"):
            live = at.exchange(name, "AMQP alone does not show bindings")
            shown = ShownExchange.of(live, _read_shards(at, live))
            faults = live.slots.faults | live.dead_ends if live.type == HASH_EXCHANGE else {}
            refused = live.why_not_routed
        if live.type == HASH_EXCHANGE:
            findings = ring_findings(live.ring, live.bindings, live.alternate)
        if refused:
            say(refused)
        for fault in faults.values():
            say(fault)
    say_doubts({} if shown.map is None else {name: shown.map})
    for finding in findings:
        say(f"exchange {name!r}: {finding.message}")
    return shown if keys is None else _with_load(shown, keys)


def _with_load(shown: ShownExchange, keys: KeySource) -> ShownExchange:
    """Return the exchange with the load of a sample."""
    if shown.arguments is None:
        raise InputError(
            "a sample has the values that the exchange hashes, which AMQP alone does not show: pass --management-url"
        )
    if shown.map is None:
        raise InputError(f"exchange {shown.name!r} does not hash: leave the sample out")
    if not shown.map.is_sole:
        check_certain(shown.name, shown.map, shown.means)
    return replace(shown, sample=read_load(keys, shown.arguments, shown.map))


def _read_shards(at: BrokerAddresses, live: LiveExchange) -> ShardedExchange | None:
    """Return the shards of an exchange; None if no policy shards it, and none is bound to it."""
    names = [ShardName.parse(place) for place, _ in live.bindings if isinstance(place, str)]
    is_sharded = any(name is not None and name.exchange == live.name for name in names)
    if SHARDS_PER_NODE not in live.policy_definition and not is_sharded:
        return None
    with at.open() as opened:
        return opened.sharding(live.name)


def _list_exchanges(live: BrokerAddresses, *, all_vhosts: bool) -> Outcome:
    vhosts = live.vhosts() if all_vhosts else [live.settings.vhost]
    rings: list[Sequence[object]] = []
    moduli: list[Any] = []
    checks: list[TopologyCheck] = []
    unrecorded: list[str] = []
    for vhost in vhosts:
        with live.in_vhost(vhost).open() as opened, sign_of_life("reading the broker"):
            topology = with_settled_consumers(opened.topology(), live.management(""))
        checks.append(check(topology))
        rings += list_rings(vhost, topology, checks[-1])
        say_doubts(topology.rings)
        if names := read_without_record(topology):
            advice = how_to_record(names, evidence_of(topology).means)
            unrecorded.append(in_vhost(advice, vhost) if all_vhosts else advice)
        moduli += list_moduli(vhost, topology, checks[-1])
    if not rings and not moduli:
        raise InputError(f"nothing to list: {live.why_nothing_hashes(vhosts)}")
    return _outcome(
        list_report(vhosts, rings, moduli, checks=checks, unrecorded=unrecorded, all_vhosts=all_vhosts)
    )
