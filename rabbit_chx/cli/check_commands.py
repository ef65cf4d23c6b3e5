"""``rabbit-chx topology check`` and ``rabbit-chx ring check``: what is on a broker against itself and against a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

import click

from rabbit_chx.cli.check_report import CheckedBroker, CheckReport, FailedCheckReport
from rabbit_chx.cli.live_options import LiveBroker, live_options
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.cli.topology_input import read_topology
from rabbit_chx.errors import InputError, RabbitChxError
from rabbit_chx.topology import Topology, TopologyCheck
from rabbit_chx.topology import check as checked

__all__ = ["check_ring", "check_topology", "need_rings"]

_PROMETHEUS = "prometheus"

_output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", _PROMETHEUS]),
    default="table",
    show_default=True,
    help="The form of the result; prometheus is for the textfile collector of a node exporter.",
)


@click.command(
    "check",
    epilog="Example: rabbit-chx topology check topology.toml --management-url http://localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    short_help="Is what is there as the file says, and sound?",
)
@click.argument("file")
@live_options
@_output_option
def check_topology(*, file: str, broker: LiveBroker, output: str) -> Outcome:
    """Compare bindings, rings and FILE with each other: the order of each ring, what is missing, what is lost.

    Each finding says what it does to messages, with the exact share of the keys, and its cure. Nothing is changed.

    The order of a ring is in its buckets, which --ring-via reads. Without --ring-via the command refuses a file with
    hash exchanges, since it would prove nothing. The exit code is 0 where all is sound, and 1 where it is not.
    """

    def made() -> TopologyCheck:
        wanted = read_topology(file, broker.settings.vhost).topology
        if any(one.type == "x-consistent-hash" for one in wanted.exchanges):
            need_rings(broker)
        return checked(_live(broker), wanted, file=file)

    return _outcome(broker, output, made, None, file)


@click.command(
    "check",
    epilog="Example: rabbit-chx ring check orders --management-url http://localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    short_help="Does each key of an exchange come to a queue?",
)
@click.argument("exchange")
@live_options
@_output_option
def check_ring(*, exchange: str, broker: LiveBroker, output: str) -> Outcome:
    """Compare the ring of EXCHANGE with its bindings and its queues.

    It finds holes, ghost buckets, bindings without buckets, second bindings, queues that go by themselves, and the exact
    share of keys that end in no queue. Each finding has its cure. Nothing is changed. The order of the ring is compared
    with nothing: that is what `topology check` does.

    The exit code is 0 where the ring is sound, and 1 where it is not.
    """

    def made() -> TopologyCheck:
        need_rings(broker)
        return checked(_live(broker), exchange=exchange)

    return _outcome(broker, output, made, exchange, None)


def need_rings(broker: LiveBroker) -> None:
    """Raise an error unless rings can be read.

    Args:
        broker: the broker.

    Raises:
        InputError: there is no ring source.
    """
    if broker.ring_source is None:
        raise InputError(
            "only the buckets of a ring tell its order, and what is lost: give --ring-via PREFIX, such as "
            "'docker exec NAME' or 'kubectl exec POD --', to read them"
        )


def _live(broker: LiveBroker) -> Topology:
    with broker.broker() as live:
        return live.topology()


def _outcome(
    broker: LiveBroker, output: str, made: Callable[[], TopologyCheck], exchange: str | None, file: str | None
) -> Outcome:
    def about() -> CheckedBroker:
        settings = broker.settings
        return CheckedBroker(f"{settings.host}:{settings.port}", settings.vhost, exchange, time.time())

    try:
        found = made()
    except RabbitChxError as error:
        if output != _PROMETHEUS:
            raise
        failure = error  # Python unbinds `error` at the end of this block

        def fail() -> NoReturn:
            raise failure

        return Outcome(output, FailedCheckReport(about()), finish=fail)
    report = CheckReport(about(), found, file)
    return Outcome(output, report, code=report.code)
