"""``rabbit-chx record``: store the order of rings on the broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from rabbit_chx.broker.recording import why_unrecordable
from rabbit_chx.checking.check import certain_ring
from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import (
    EXCHANGE,
    ExitCode,
    Outcome,
    Rules,
    argument,
    command,
    has_terminal,
    option,
    options,
    say,
)
from rabbit_chx.cli.evidence import EvidenceOptions, with_observed_ring
from rabbit_chx.cli.inputs import read_ring_record
from rabbit_chx.cli.lost_reader import go_on_without_reader
from rabbit_chx.cli.printed import names_file
from rabbit_chx.command_texts import EXCHANGE_PREFIX, command_text, exchange_argument
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.records.evidence import Means, evidence_of
from rabbit_chx.records.live_rings import find_live_ring, live_hash_exchange, none_lasts
from rabbit_chx.records.ring_records import RingRecord
from rabbit_chx.rendering.document import Data, Document, Table
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.result_fields import Shown
from rabbit_chx.topology.objects.objects import HASH_EXCHANGE

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker
    from rabbit_chx.topology import LiveTopology, RingMember

_RECORDED = {
    "exchange": Shown("exchange"),
    "origin": Shown("order"),
    "members": Shown("bindings", number=True),
    "written": Shown("written"),
    "writer": Shown("writer"),
    "is_new": Shown("new", lambda new: "new" if new else ""),
}


@command(
    example="rabbit-chx record --all --ring-via 'docker exec rabbitmq'",
    rules=Rules(
        needs={"--waited": "--observed"},
        excludes=[
            ("--all", "EXCHANGE"),
            ("--from", "--observed"),
            *(("--trace", name) for name in ("--all", "--from")),
            ("--all", "--from"),
        ],
        of_one=("--from", "--observed", "--trace"),
    ),
)
def record(
    *,
    exchanges: tuple[str, ...] = argument(nargs=-1, type=EXCHANGE, metavar="[EXCHANGE]..."),
    every: bool = option("--all", help="Record every x-consistent-hash exchange of the vhost."),
    source: str | None = option(
        "--from",
        metavar="FILE",
        help="The output of `show -o json` for EXCHANGE, instead of --ring-via.",
    ),
    evidence: EvidenceOptions = options(
        EvidenceOptions, yes="Replace records that differ, and switch tracing on, without asking."
    ),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
) -> Outcome:
    """Read the ring of each EXCHANGE, and store its order on the broker, in an exchange rabbit-chx.ring.NAME.

    The ring is read by --ring-via, comes from --from, or follows from --observed: N buckets
    need about N ln N different keys with their queues; at least 20 more, or N if that is more, must confirm the result. --trace
    sees such keys in live traffic, and keeps them for a further run with both if they are not enough. Afterwards every command knows the ring over the management
    API. A record is exact as long as this program binds and unbinds; others may unbind members, or bind one more.

    A record that differs from the ring is named before it is replaced. The command asks on a terminal: the exit code
    is 4 if the answer is no. Without a terminal it needs --yes: the exit code is 1 without it.
    """
    go_on_without_reader()
    if not exchanges and not every:
        raise InputError("pass an EXCHANGE, or --all for every x-consistent-hash exchange")
    at = broker.live()
    if source is not None:
        at = replace(at, ring_source=read_ring_record(source))
    with at.open(yes=evidence.yes) as opened, sign_of_life("reading the broker"):
        live = opened.topology()
        names = exchanges or tuple(name.name for name in live.exchanges if name.type == HASH_EXCHANGE)
        if not names:
            raise InputError(f"vhost {at.settings.vhost} has no x-consistent-hash exchange: check the vhost")
        hashing = [live_hash_exchange(live, name).name for name in names]
        if evidence.is_given:
            name = hashing[0]
            pairs = evidence.pairs(opened, live, name, is_compared=False)
            try:
                live = with_observed_ring(live, name, pairs)
            except NotDeterminedError as error:
                raise evidence.to_continue(error, name, pairs) from None
        bound = {name: find_live_ring(live, live.exchange(name), name).bound for name in hashing}
        _refuse_passing(opened, live, bound)
        means = evidence_of(live).means
        remedy = f"{none_lasts(means)}: change that first" if means.voids else None
        rings = {name: certain_ring(live, name, remedy) for name in names}
        known = evidence_of(live)
        stored = known.records
        new = {name: ring for name, ring in rings.items() if not known.proves(name, ring, bound[name])}
        for name in new.keys() & stored.keys():
            if stored[name].ring.buckets != rings[name].buckets:
                refused = _refuse(name, stored[name], yes=evidence.yes)
                if refused is not None:
                    return Outcome(None, code=refused)
        written = opened.record(new)
    if policies := known.mark.policies:
        say(none_lasts(Means(voids=policies)))
    records = {**{name: stored[name] for name in rings if name not in new}, **written}
    rows = [
        (name, kept.origin, len(kept.members), kept.written, kept.writer, name in new)
        for name, kept in sorted(records.items())
    ]
    table = Table.of(_RECORDED, rows, key="recorded")
    return Outcome(Document("records", [Data({"vhost": at.settings.vhost}), table]))


def _refuse_passing(opened: Broker, live: LiveTopology, bound: Mapping[str, tuple[RingMember, ...]]) -> None:
    """Refuse rings of which no record lasts, after what is stored of them is deleted."""
    if names := [name for name, members in bound.items() if why_unrecordable(name, members, live)]:
        opened.record({name: live.rings[name] for name in names})


def _refuse(name: str, stored: RingRecord, *, yes: bool) -> ExitCode | None:
    """Say that a record differs, and ask whether to replace it; return the exit code if it stays."""
    about = f"the record of {name}, of {stored.about}, has another order than the ring"
    if yes:
        say(f"{about}: it is replaced")
        return None
    if not has_terminal():
        as_exchange = f"{EXCHANGE_PREFIX}{name}" if names_file(name) else exchange_argument(name)
        check = command_text("check", as_exchange)
        say(f"{about}, and nothing was changed: {check} compares them; replace it with --yes")
        return ExitCode.DIFFERENCE
    return None if click.confirm(f"{about}. Replace it?", err=True) else ExitCode.REFUSED
