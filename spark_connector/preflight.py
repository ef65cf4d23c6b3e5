"""A look at the broker before the first task starts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError, UnreachableError
from rabbit_chx.publishing import look_at_hash_exchange

if TYPE_CHECKING:
    from spark_connector.options import WriteOptions

__all__ = ["check_broker", "check_speculation"]

_log = logging.getLogger(__name__)


def check_broker(options: WriteOptions, *, patient: bool = False) -> tuple[str, ...]:
    """Look whether the broker takes the user, and the exchange is there and hashes consistently.

    Nothing is looked at where ``preflight`` is false, where a column names every exchange, or where only the
    executors know the password; the notes then say so.

    Args:
        options: how to write.
        patient: whether a broker that nobody can reach is no error, as tasks try for longer.

    Returns:
        Notes for the report.

    Raises:
        BrokerRefusedError: the broker refuses the user, or the exchange is not what it should be.
        UnreachableError: nobody answers at any address.
    """
    if not options.preflight or not options.exchange:
        return ()
    try:
        addresses = options.brokers.resolve()
    except InputError as cause:
        _log.info("the broker was not looked at before: %s", cause)
        return ("the broker was not looked at before: only the executors know the password",)
    problem: UnreachableError | None = None
    for address in addresses:
        try:
            facts = look_at_hash_exchange(address, options.exchange)
        except UnreachableError as cause:
            _log.warning("%s", cause)
            problem = cause
        else:
            return _notes(options.exchange, alternate_exchange=facts.alternate_exchange)
    if problem is None or patient:
        return ("the broker was not looked at before: nobody answered",)
    raise problem


def _notes(exchange: str, *, alternate_exchange: bool) -> tuple[str, ...]:
    if not alternate_exchange:
        return ()
    note = f"exchange {exchange!r} has an alternate exchange: what no queue takes goes there, and counts as confirmed"
    _log.warning("%s", note)
    return (note,)


def check_speculation(options: WriteOptions, *, speculation: bool) -> tuple[str, ...]:
    """Say what speculative execution does to a write.

    Args:
        options: how to write.
        speculation: whether ``spark.speculation`` is on.

    Returns:
        Notes for the report.

    Raises:
        InputError: it is on, and ``onSpeculation`` is fail.
    """
    if not speculation or options.on_speculation == "ignore":
        return ()
    note = "spark.speculation is on: copies of a task publish its rows again, and do not count here"
    if options.on_speculation == "fail":
        raise InputError(f"{note}; set spark.speculation to false, or onSpeculation to warn or ignore")
    _log.warning("%s", note)
    return (note,)
