"""What is checked before the first message.

The broker is asked about the exchange. Spark may start copies of slow tasks, and each copy publishes its rows. It may
also show the password.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import InputError, UnreachableError
from rabbit_chx.publishing import look_at_hash_exchange
from spark_connector.writing.task import scratch_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_connector.options.write_options import WriteOptions

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


def speculation_of(spark: SparkSession) -> bool:
    """Return whether ``spark.speculation`` is on, as the user's session knows it, classic or Connect."""
    conf: Any = spark.conf
    return bool(conf.get("spark.speculation", "false").lower() == "true")


def check_speculation(options: WriteOptions, *, speculation: bool | None) -> tuple[str, ...]:
    """Return notes for the report on what speculative execution does to a write.

    Args:
        options: how to write.
        speculation: whether ``spark.speculation`` is on; None if Spark does not say.

    Raises:
        InputError: it is on, or may be, and ``onSpeculation`` is fail or ``ordering`` is per-key.
    """
    if options.exactly_once:  # a copy of a task gives the same rows the same ids
        return ()
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


class PreflightAnswer:
    """The notes that asking the broker has led to, remembered: Spark plans a stream again for every micro-batch.

    Args:
        path: file that keeps them for other processes of the application; None to keep them in this object
            alone.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._notes: tuple[str, ...] | None = None

    @classmethod
    def of_query(cls, options: WriteOptions, texts: Mapping[str, str]) -> PreflightAnswer:
        """Return the answer for a streaming query of this application, which may be empty.

        Checkpoint, broker and exchange identify the query. The answer is kept in a file, since Spark ends
        Python processes that are idle for a minute.

        Args:
            options: the parsed options of the query.
            texts: the options as texts, of which `checkpointLocation` is needed.
        """
        folder = scratch_folder()
        if folder is None:
            return cls()
        checkpoint = next((text for name, text in texts.items() if name.lower() == "checkpointlocation"), "")
        query = json.dumps([options.brokers.masked_url, options.exchange, checkpoint])
        name = hashlib.sha256(query.encode()).hexdigest()[:32]
        return cls(folder / f"looked-{name}.json")

    @property
    def notes(self) -> tuple[str, ...] | None:
        """The notes; None if the broker was not asked yet, or the file cannot be read."""
        if self._notes is None and self._path is not None:
            with suppress(OSError, ValueError):
                self._notes = tuple(json.loads(self._path.read_text(encoding="utf-8")))
        return self._notes

    def keep(self, notes: tuple[str, ...]) -> None:
        """Remember the notes. If the file cannot be written, the next process asks the broker again."""
        self._notes = notes
        if self._path is not None:
            with suppress(OSError):
                self._path.parent.mkdir(exist_ok=True)
                part = self._path.with_suffix(f".{os.getpid()}")
                part.write_text(json.dumps(notes), encoding="utf-8")
                part.replace(self._path)
