"""Repeated messages are recognized by their ids, which are kept in an SQLite file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from os import PathLike
from types import TracebackType
from typing import Any, ClassVar, Self

from rabbit_chx.consuming.deduplicator_base import (
    DeduplicatorBase,
    checked_count,
    checked_id,
    checked_seconds,
    refuse_awaitable,
)
from rabbit_chx.consuming.id_table import IdTable
from rabbit_chx.errors import InputError

__all__ = ["SqliteDeduplicator"]

_log = logging.getLogger(__name__)


class SqliteDeduplicator(DeduplicatorBase):
    """A de-duplicator whose ids survive the process, and that several processes on one machine may share.

    `run_in_transaction` is for effects in the same database: effect and id are committed together, so that a crash leaves
    both or neither. `run_if_new` is for all other effects: a crash between the effect and the id repeats the effect.

    An SQLite file has one writer at a time, and is not for network drives. A new file gets a write-ahead log; the journal
    mode of a file that is there stays as it is. If effects of several kinds share a file, give
    each kind a `table` of its own, since an id is known once for the whole table.

    Args:
        path: the file. It is created if it is missing; its folder is not.
        max_ids: how many ids are kept. An id is forgotten when so many others came after it. None for no such bound.
        max_age_s: an id is forgotten so many seconds after its effect, by the clock of the machine; None for no such bound.
            One of the two is needed.
        table: the table of the ids. It is created if it is missing.
        timeout_s: how long to wait for another handler of the same id, and for another writer of the file, in seconds.

    Raises:
        InputError: the path names no file, a bound or the table's name cannot be used, or neither bound is given.
        DeduplicationError: the file cannot be opened, or is no SQLite database.

    Example::

        def book(db, order):
            db.execute("INSERT INTO bookings VALUES (?, ?)", (order["id"], order["total"]))


        with SqliteDeduplicator("shop.db", max_age_s=7 * 24 * 3600) as seen:

            def on_message(channel, method, properties, body):  # pika
                seen.run_in_transaction(properties.message_id, book, json.loads(body))
                channel.basic_ack(method.delivery_tag)
    """

    _on_disk: ClassVar[bool] = True

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        max_ids: int | None = None,
        max_age_s: float | None = None,
        table: str = "handled_messages",
        timeout_s: float = 60.0,
    ) -> None:
        super().__init__(timeout_s)
        if max_ids is None and max_age_s is None:
            raise InputError("neither max_ids nor max_age_s is given: say when an id may be forgotten")
        self._table = IdTable(
            _checked_path(path),
            table,
            max_ids=None if max_ids is None else checked_count("max_ids", max_ids),
            max_age_s=None if max_age_s is None else checked_seconds("max_age_s", max_age_s),
            timeout_s=timeout_s,
        )

    def run_in_transaction(self, message_id: str | None, effect: Callable[..., object], *args: Any) -> bool:  # noqa: ANN401
        """Run an effect in this database, unless a message with this id was handled before; commit effect and id together.

        Other writers of the file wait while the effect runs. On asyncio call it in a thread:
        ``await asyncio.to_thread(seen.run_in_transaction, message.message_id, book, message.body)``.

        Args:
            message_id: what is the same in every copy of the message, and in no other message.
            effect: what the message does, a plain function. It is called with the `sqlite3.Connection` of this file before
                `args`, and must do its writes with it. It cannot commit or roll back; savepoints are allowed.
            args: what the effect is called with, behind the connection.

        Returns:
            Whether the effect was run. Ack the message in both cases.

        Raises:
            InputError: the id is missing, or is not text; or the effect is an async function, or tried to end the
                transaction. Nothing is committed then.
            DeduplicationError: the file cannot be read or written, or not in time. Nothing is committed then.
            Exception: what the effect raises. Nothing is committed then.
        """
        checked = checked_id(message_id)
        self._claims.take(checked)
        try:
            dropped = self._table.add(checked, lambda db: refuse_awaitable(effect(db, *args)))
        except BaseException:
            self._give_up(checked)
            raise
        if dropped is None:
            return self._repeated(checked)
        self._count("forgotten", dropped)
        return self._done(checked)

    def close(self) -> None:
        """Close the file. An effect that runs in a transaction is waited for."""
        self._table.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _knows(self, message_id: str) -> bool:
        return self._table.has(message_id)

    def _keep(self, message_id: str) -> None:
        dropped = self._table.add(message_id)
        if dropped is None:
            _log.warning(
                "message %r was handled by another process at the same time, so it had two effects",
                message_id,
            )
        else:
            self._count("forgotten", dropped)

    def _kept(self) -> tuple[int, float | None]:
        return self._table.kept()


def _checked_path(path: object) -> str | PathLike[str]:
    """Return the path of a file.

    Raises:
        InputError: it names none. SQLite takes "" and ":memory:" for a database that goes with the process.
    """
    if not isinstance(path, (str, PathLike)) or str(path) in ("", ":memory:"):
        raise InputError(f"the path {path!r:.60} names no file: give one; for ids in memory use Deduplicator")
    return path
