"""``rabbit-chx slots``: who has which slot of a live exchange, and who should."""

from __future__ import annotations

from collections.abc import Mapping

import click

from rabbit_chx.cli.check_commands import need_rings
from rabbit_chx.cli.live_options import LiveBroker, live_options
from rabbit_chx.cli.option_groups import TEXT, output_option, show_help
from rabbit_chx.cli.outcome import DIFFERENCE, DONE, Outcome
from rabbit_chx.cli.slot_sample import AskedLoad, live_table, load_options
from rabbit_chx.cli.slots_report import BalanceReport, SlotsReport
from rabbit_chx.errors import InputError
from rabbit_chx.topology import LoadTarget
from rabbit_chx.topology import balance as balanced
from rabbit_chx.topology.objects import SlotNames, order_of_name

__all__ = ["slots"]

_DEFAULT_TARGET = "1.2"
_SHOWN = 10


@click.group(
    epilog="Example: rabbit-chx slots show events --ring-via 'docker exec rabbitmq'",
    short_help="The slots of a live exchange.",
    invoke_without_command=True,
)
@click.pass_context
def slots(context: click.Context) -> None:
    """Read who has which slot of an exchange, and propose who should."""
    if context.invoked_subcommand is None:
        show_help(context)


@slots.command(
    epilog="Example: rabbit-chx slots show events --management-url http://localhost:15672 --ring-via 'docker exec rabbitmq'",
    short_help="The queue and the load of each slot.",
)
@click.argument("exchange")
@live_options
@load_options
@output_option
def show(
    *,
    exchange: str,
    broker: LiveBroker,
    load: AskedLoad,
    output: str,
) -> Outcome:
    """Show who has which slot of EXCHANGE, with the exact share of all keys.

    RabbitMQ counts messages for the exchange that they are published to, and for queues, but not for slots. The load of each
    slot comes from a sample: --keys FILE is one of yours, and --passive traces real traffic. With either the ring must be read,
    by --ring-via. The exit code is 0.
    """
    if load.given:
        need_rings(broker)
    table = live_table(broker, exchange)
    return Outcome(output, SlotsReport(table, load.read(broker, table) if load.given else None))


@slots.command(
    epilog="Example: rabbit-chx slots balance events --passive --management-url http://localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    short_help="Slots to move so that no queue has too much.",
)
@click.argument("exchange")
@click.option(
    "--target",
    type=TEXT,
    default=_DEFAULT_TARGET,
    show_default=True,
    metavar="TARGET",
    help="How much a queue may have: 1.2 is 1.2 times the part that is due to it by its weight, 30% is that share of the load.",
)
@click.option(
    "--weight",
    "weights",
    type=TEXT,
    multiple=True,
    metavar="QUEUE=WEIGHT",
    help="The weight of a queue that has slots, or is to have some.  [default: 1 for each that has some; 0 takes all away]",
)
@live_options
@load_options
@output_option
def balance(
    *,
    exchange: str,
    target: str,
    weights: tuple[str, ...],
    broker: LiveBroker,
    load: AskedLoad,
    output: str,
) -> Outcome:
    """Propose the fewest slots of EXCHANGE that change hands so that no queue has too much of the load.

    The load comes from a sample: --keys FILE, or --passive, which traces real traffic. Of proposals with as few slots it is one
    that moves the least load. Nothing is changed: the result has the members for the topology file, and topology plan and
    apply take them.

    A key that has more than a queue may have is named, since nothing can split it.

    The exit code is 0 if no queue has too much, and 1 if there is a proposal, or the target cannot be reached.
    """
    wanted = LoadTarget.from_text(target)
    given = dict(map(_parsed_weight, weights))
    if not load.given:
        raise InputError(
            "RabbitMQ does not count the messages of slots: give --keys FILE with a sample of keys, or --passive to trace real "
            "traffic"
        )
    need_rings(broker)
    table = live_table(broker, exchange)
    sample = load.read(broker, table)
    there = {queue: 1 for queue in table.slots.destinations if isinstance(queue, str)}
    _check_queues(exchange, given, there)
    queues = there | given
    made = balanced(
        table.slots,
        sample.load,
        {queue: weight for queue, weight in queues.items() if weight},
        target=wanted,
    )
    code = DONE if made.state == "balanced" else DIFFERENCE
    return Outcome(output, BalanceReport(table, sample, made), code=code)


def _check_queues(exchange: str, given: Mapping[str, int], there: Mapping[str, int]) -> None:
    """Raise an error for a weight of a queue that can have no slots, or that takes none away.

    Raises:
        InputError: there is such a weight.
    """
    park = SlotNames(exchange, 1).park
    if park in given:
        raise InputError(f"{park} is the parking queue of {exchange}, and has no slots: leave its weight out")
    for queue, weight in given.items():
        if not weight and queue not in there:
            known = ", ".join(sorted(there, key=order_of_name)[:_SHOWN])
            raise InputError(
                f"{queue} has no slot of {exchange} that the weight 0 could take away: give one of {known}"
            )


def _parsed_weight(text: str) -> tuple[str, int]:
    queue, equals, weight = text.rpartition("=")
    if not equals or not queue or not weight.isascii() or not weight.isdigit():
        raise InputError(f"the weight {text!r:.80} is none: write QUEUE=WEIGHT, as in events.1=2")
    return queue, int(weight)
