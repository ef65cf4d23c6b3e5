"""What can be known before the first message.

That is what the broker answers, and whether Spark would show the password.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError, UnreachableError
from rabbit_chx.publishing import look_at_hash_exchange

if TYPE_CHECKING:
    from spark_connector.options.write_options import WriteOptions
    from spark_connector.writing.preflight_answer import PreflightAnswer

__all__ = ["check_broker", "check_secret_name"]

_log = logging.getLogger(__name__)

# What Spark masks in its event log and UI: the default of spark.redaction.regex
# (internal/config/package.scala).
_MASKED_BY_SPARK = re.compile(r"(?i)secret|password|token|access[.]?key")


def check_broker(
    options: WriteOptions, *, patient: bool = False, answer: PreflightAnswer | None = None
) -> tuple[str, ...]:
    """Check that the broker accepts the user, and that the exchange exists and hashes consistently.

    The broker is not asked if ``preflight`` is false, if only a column names exchanges, or if only the
    executors know the password; a note tells of the last one.

    Args:
        options: how to write.
        patient: whether a broker that does not answer is only a note, since tasks try for longer.
        answer: the remembered answer of a streaming query; the broker is not asked again if there is one.

    Returns:
        Notes for the report.

    Raises:
        BrokerRefusedError: the broker refuses the user, or the exchange has another type.
        UnreachableError: no address answers, and `patient` is false.
    """
    if not options.preflight or not options.exchange:
        return ()
    if answer is not None and answer.notes is not None:
        return answer.notes
    try:
        addresses = options.brokers.resolve()
    except InputError as cause:
        _log.info("the broker was not checked before the write: %s", cause)
        return ("the broker was not checked before the write: only the executors know the password",)
    problem: UnreachableError | None = None
    for address in addresses:
        try:
            facts = look_at_hash_exchange(address, options.exchange)
        except UnreachableError as cause:
            _log.warning("%s", cause)
            problem = cause
        else:
            notes = _notes(options, alternate_exchange=facts.alternate_exchange)
            if answer is not None:
                answer.keep(notes)
            return notes
    if problem is None or patient:
        return ("the broker was not checked before the write: no address answered",)
    raise problem


def _notes(options: WriteOptions, *, alternate_exchange: bool) -> tuple[str, ...]:
    if not alternate_exchange:
        return ()
    if options.client_routing:
        return (
            f"exchange {options.exchange!r} has an alternate exchange, and routing=client goes past both",
        )
    return (
        f"exchange {options.exchange!r} has an alternate exchange: what no queue takes goes there, and counts as confirmed",
    )


def check_secret_name(options: WriteOptions) -> tuple[str, ...]:
    """Return a note if Spark would show ``passwordEnv`` in clear when it is set by Spark's configuration."""
    source = options.brokers.password
    if source is None or source.option != "passwordEnv" or _MASKED_BY_SPARK.search(source.name):
        return ()
    note = (
        f"option 'passwordEnv' is {source.name!r}: if it is set as spark.executorEnv.{source.name}, Spark shows the "
        "password in its event log and UI, as it masks only names with secret, password, token or accesskey: "
        "rename it, or set it outside of Spark's configuration"
    )
    return (note,)
