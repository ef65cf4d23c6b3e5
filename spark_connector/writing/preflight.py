"""What can be known to go wrong before the first message: a look at the broker, at Spark, and at the options."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError, UnreachableError
from rabbit_chx.publishing import look_at_hash_exchange

if TYPE_CHECKING:
    from spark_connector.options.write_options import WriteOptions
    from spark_connector.writing.broker_look import Look

__all__ = ["check_broker", "check_secret_name", "check_speculation"]

_log = logging.getLogger(__name__)

# What Spark masks in its event log and UI: the default of spark.redaction.regex (internal/config/package.scala).
_MASKED_BY_SPARK = re.compile(r"(?i)secret|password|token|access[.]?key")


def check_broker(
    options: WriteOptions, *, patient: bool = False, look: Look | None = None
) -> tuple[str, ...]:
    """Look whether the broker takes the user, and the exchange is there and hashes consistently.

    Nothing is looked at where ``preflight`` is false, where a column names every exchange, or where only the
    executors know the password; the notes then say so.

    Args:
        options: how to write.
        patient: whether a broker that nobody can reach is no error, as tasks try for longer.
        look: of the streaming query: where it has found something, the broker is not asked again.

    Returns:
        Notes for the report.

    Raises:
        BrokerRefusedError: the broker refuses the user, or the exchange is not what it should be.
        UnreachableError: nobody answers at any address.
    """
    if not options.preflight or not options.exchange:
        return ()
    if look is not None and look.notes is not None:
        return look.notes
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
            notes = _notes(options.exchange, alternate_exchange=facts.alternate_exchange)
            if look is not None:
                look.keep(notes)
            return notes
    if problem is None or patient:
        return ("the broker was not looked at before: nobody answered",)
    raise problem


def _notes(exchange: str, *, alternate_exchange: bool) -> tuple[str, ...]:
    if not alternate_exchange:
        return ()
    return (
        f"exchange {exchange!r} has an alternate exchange: what no queue takes goes there, and counts as confirmed",
    )


def check_speculation(options: WriteOptions, *, speculation: bool | None) -> tuple[str, ...]:
    """Say what speculative execution does to a write.

    Args:
        options: how to write.
        speculation: whether ``spark.speculation`` is on; None where nobody says.

    Returns:
        Notes for the report.

    Raises:
        InputError: it is on, or may be, and ``onSpeculation`` is fail or ``ordering`` is per-key.
    """
    must_be_off = options.keep_order or options.on_speculation == "fail"
    if speculation is False or (options.on_speculation == "ignore" and not must_be_off):
        return ()
    why = "ordering is per-key" if options.keep_order else "onSpeculation is fail"
    if speculation is None:
        if must_be_off:
            raise InputError(
                f"{why}, and this Spark does not tell whether spark.speculation is on: "
                "call spark_connector.register(spark) before the write"
            )
        return ("this Spark does not tell whether spark.speculation is on",)
    if must_be_off:
        raise InputError(
            f"spark.speculation is on, whose copies of a task publish its rows again, and {why}: set "
            "spark.speculation to false"
            + ("" if options.keep_order else ", or onSpeculation to warn or ignore")
        )
    return ("spark.speculation is on: copies of a task publish its rows again, and do not count here",)


def check_secret_name(options: WriteOptions) -> tuple[str, ...]:
    """Note a ``passwordEnv`` that Spark would show in clear, if it came there through Spark's configuration."""
    source = options.brokers.password
    if source is None or source.option != "passwordEnv" or _MASKED_BY_SPARK.search(source.name):
        return ()
    note = (
        f"option 'passwordEnv' is {source.name!r}: if it is set as spark.executorEnv.{source.name}, Spark shows the "
        "password in its event log and UI, as it masks only names with secret, password, token or accesskey: "
        "rename it, or set it outside of Spark's configuration"
    )
    return (note,)
