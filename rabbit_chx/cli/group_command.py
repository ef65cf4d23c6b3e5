"""``rabbit-chx group``: who consumes the queues of a hash exchange, and how far behind they are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from rabbit_chx.broker.live_exchange import read_exchange, read_slots
from rabbit_chx.cli.group_journal import read_roster
from rabbit_chx.cli.group_report import GroupReport
from rabbit_chx.cli.live_options import LiveBroker, live_options
from rabbit_chx.cli.option_groups import TEXT, output_option, show_help
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.cli.stderr import say
from rabbit_chx.consuming import JOURNAL, GroupStatus, Roster, group_findings
from rabbit_chx.errors import EmptyRingError, RabbitChxError

if TYPE_CHECKING:
    from rabbit_chx.broker.management import Management

__all__ = ["group"]

#: What the management API knows is up to 5 s old.
_STALE_S = 6.0
_LOOK_S = 1.0
#: Counts without the cost of statistics, from 3.10 on; older releases ignore the first two.
_QUEUES = {
    "disable_stats": "true",
    "enable_queue_totals": "true",
    "columns": "name,type,arguments,messages_ready,messages_unacknowledged",
}


@click.group(
    epilog="Example: rabbit-chx group show orders --management-url http://localhost:15672",
    short_help="Who consumes the queues of an exchange.",
    invoke_without_command=True,
)
@click.pass_context
def group(context: click.Context) -> None:
    """See the consumers of a group: who is active, who waits, what is left to do."""
    if context.invoked_subcommand is None:
        show_help(context)


@group.command(
    epilog="Example: rabbit-chx group show orders --management-url http://localhost:15672",
    short_help="Lag, active member and last switch of each queue.",
)
@click.argument("exchange")
@click.option(
    "--journal",
    default=JOURNAL,
    show_default=True,
    type=TEXT,
    metavar="NAME",
    help="The stream in which the members of the group tell of each other.",
)
@live_options
@output_option
def show(*, exchange: str, journal: str, broker: LiveBroker, output: str) -> Outcome:
    """Show the queues of EXCHANGE and who consumes them: messages that wait, messages in hand, the active member.

    The queues are those that are bound to EXCHANGE, and those behind its slots. A consumer belongs to a group by its
    consumer tag, as ConsumerGroup sets it.

    It warns of queues with consumers of whom none is active, without consumers, or without a single active consumer; of
    consumers that belong to no group; of priorities that the broker ignores; and of queues that are shared unevenly. Nothing is
    changed. The exit code is 0.

    When a queue last got another active member, and the weights of the members, is what the members write into their journal. Without
    a journal it is not known.

    What the management API knows is up to 5 s old. Where it shows consumers of whom none is active, the command
    looks again for 6 s before it says so.
    """
    management = broker.management("AMQP alone shows neither bindings nor consumers")
    vhost = broker.settings.vhost
    live = read_exchange(management, vhost, exchange)
    slots = read_slots(management, live, live.assumed_ring)
    names = list(
        dict.fromkeys(
            [
                *(one for one in live.assumed_ring.destinations if isinstance(one, str)),
                *(queue for queues in slots.queues.values() for queue in queues),
            ]
        )
    )
    if not names:
        raise EmptyRingError(
            f"no queue is bound to exchange {exchange!r}, so there is nothing to consume", exchange=exchange
        )
    queues, status = _read(management, vhost, names)
    deadline = time.monotonic() + _STALE_S
    if status.nobody_active:
        say(
            "there are queues with consumers of whom none is active; what the API knows may be 5 s old: looking again"
        )
    while status.nobody_active and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        queues, status = _read(management, vhost, names)
    parked = next((one.get("messages_ready") for one in queues if one["name"] == f"{exchange}.park"), None)
    roster = _roster(broker, journal, queues)
    switches = {queue: claim.at for queue, claim in roster.claims.items() if queue in names}
    weights = {name: member.weight for name, member in roster.members.items()}
    findings = group_findings(status, live.release, weights)
    return Outcome(output, GroupReport(exchange, vhost, live.release, status, findings, switches, parked))


def _roster(broker: LiveBroker, journal: str, queues: Sequence[Mapping[str, Any]]) -> Roster:
    """Return what the journal says; nothing where there is none, or where it cannot be read."""
    if all((one["name"], one.get("type")) != (journal, "stream") for one in queues):
        return Roster()
    try:
        return read_roster(broker.settings, journal)
    except RabbitChxError as error:
        say(f"the journal {journal!r} cannot be read, so the last switch is not known: {error}")
        return Roster()


def _read(
    management: Management, vhost: str, names: Sequence[str]
) -> tuple[list[dict[str, Any]], GroupStatus]:
    """Read the queues of the vhost, and the group that has some of them."""
    queues = management.request("GET", "queues", vhost, query=_QUEUES)
    consumers = management.request("GET", "consumers", vhost)
    connections = management.request(
        "GET", "vhosts", vhost, "connections", query={"columns": "name,connected_at"}
    )
    return queues, GroupStatus.of(names, queues, consumers, connections)
