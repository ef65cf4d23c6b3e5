"""Repeated messages are recognized by their ids, which are kept in an SQLite file that threads and processes share."""

from __future__ import annotations

import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from threading import Lock
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

from rabbit_chx.consuming.deduplication import DeduplicatorBase, checked_id, refuse_awaitable
from rabbit_chx.errors import DeduplicationError, InputError

_log = logging.getLogger(__name__)
_NO_NUMBER = (1 << 63) - 1  # the largest of SQLite
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
_ENDED = (
    "the effect tried to commit or roll back, which would part it from the id of its message; nothing was committed: "
    "leave commit, rollback, executescript and `with db:` out of it"
)
_REMEDIES = {
    sqlite3.SQLITE_BUSY: "another process writes it for longer than timeout_s; raise that, or shorten the effects",
    sqlite3.SQLITE_CANTOPEN: "check the path; the folder has to exist, and this user has to be allowed to write there",
    sqlite3.SQLITE_FULL: "the disk is full, so the message is not to be acked",
    sqlite3.SQLITE_NOTADB: "give the path of an SQLite database, or of a new file",
    sqlite3.SQLITE_READONLY: "this user has to be allowed to write it",
}


class SqliteDeduplicator(DeduplicatorBase):
    """A de-duplicator whose ids survive the process, and that several processes on one machine may share.

    `run_in_transaction` is for effects in the same database: effect and id are committed together, so that a crash leaves
    both or neither. `run_if_new` is for all other effects: a crash between the effect and the id repeats the effect.

    An SQLite file has one writer at a time, and is not for network drives. A new file gets a write-ahead log; the journal
    mode of a file that exists stays as it is. If effects of several kinds share a file, give each kind a `table` of its own,
    since an id is known once for the whole table.

    Args:
        path: the file. It is created if it is missing; its folder is not.
        max_ids: how many ids are kept. When one more comes, the oldest is forgotten. None for no such bound.
        max_age_s: for how many seconds after its effect an id is kept, by the clock of the machine; None for no such bound.
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
        super().__init__(max_ids, max_age_s, timeout_s)
        if max_ids is None and max_age_s is None:
            raise InputError("neither max_ids nor max_age_s is given: say when an id may be forgotten")
        # SQLite takes "" and ":memory:" for a database that goes with the process.
        if not isinstance(path, (str, PathLike)) or str(path) in ("", ":memory:"):
            raise InputError(
                f"the path {path!r:.60} names no file: give one; for ids in memory use Deduplicator"
            )
        if not _NAME.fullmatch(table):
            raise InputError(
                f"table is {table!r:.80}: give letters, digits and _, at most 60, and no digit first"
            )
        self._path, self._table, self._timeout_s = path, table, timeout_s
        self._max_ids, self._max_age_s = max_ids, max_age_s
        self._turn = Lock()  # of the threads of this process
        with self._errors():
            # Autocommit: a transaction begins and ends where this module says so.
            self._db = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
        try:
            with self._errors():
                self._prepared()
        except BaseException:
            self._db.close()
            raise

    def run_in_transaction(self, message_id: str | None, effect: Callable[..., object], *args: Any) -> bool:  # noqa: ANN401
        """Run an effect in this database, unless a message with this id was handled before; commit effect and id together.

        Other writers of the file wait while the effect runs. On asyncio call it in a thread:
        ``await asyncio.to_thread(seen.run_in_transaction, message.message_id, book, message.body)``.

        Args:
            message_id: what is the same in every copy of the message, and in no other message.
            effect: what the message does, a plain function. It is called with the `sqlite3.Connection` of this file before
                `args`, and must do its writes with it. It cannot commit or roll back; savepoints are allowed.
            args: what the effect is called with, after the connection.

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
        with self._failing(checked):
            dropped = self._add(checked, lambda db: refuse_awaitable(effect(db, *args)))
        if dropped is None:
            return self._ended(checked, "repeats")
        self._count("forgotten", dropped)
        return self._ended(checked, "effects")

    def close(self) -> None:
        """Close the file. An effect that runs in a transaction is waited for."""
        with self._held():
            self._db.close()

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
        with self._held(), self._errors():
            return self._has(message_id)

    def _keep(self, message_id: str) -> None:
        dropped = self._add(message_id)
        if dropped is None:
            _log.warning(
                "message %r was handled by another process at the same time, so it had two effects",
                message_id,
            )
        else:
            self._count("forgotten", dropped)

    def _kept(self) -> tuple[int, float | None]:
        with self._held(), self._errors():
            count, oldest = self._db.execute(
                f"SELECT count(*), min(handled_at) FROM {self._table} WHERE handled_at >= ?",  # noqa: S608  # checked above
                (self._cutoff(),),
            ).fetchone()
        return count, None if oldest is None else max(0.0, time.time() - oldest)

    # -- the table of ids, in the order in which they were handled

    def _add(
        self, message_id: str, write: Callable[[sqlite3.Connection], object] | None = None
    ) -> int | None:
        """Keep the id, and what `write` does in the same transaction. It is called with the connection, if the id is new.

        Return how many old ids were dropped; None where the id was known, and nothing was done.
        """
        with self._held():
            with self._errors():
                self._db.execute("BEGIN IMMEDIATE")  # no other writer until the end
            try:
                with self._errors():
                    known = self._has(message_id)
                if known:
                    dropped = None
                else:
                    if write is not None:
                        self._guarded(write)
                    with self._errors():
                        dropped = self._insert(message_id)
                with self._errors():
                    self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # some errors of SQLite end it
                    self._db.execute("ROLLBACK")
                raise
            return dropped

    def _prepared(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._prepare()
            except sqlite3.OperationalError as cause:
                # Of two processes that create the file at once, SQLite refuses one without a wait. It has to try again.
                if cause.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _prepare(self) -> None:
        if self._db.execute("PRAGMA page_count").fetchone() == (0,):  # a new file, so nobody else's choice
            self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")  # what is acked has to survive a loss of power, too
        self._db.execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} "
            "(number INTEGER PRIMARY KEY, message_id TEXT NOT NULL UNIQUE, handled_at REAL NOT NULL)"
        )

    def _has(self, message_id: str) -> bool:
        query = f"SELECT 1 FROM {self._table} WHERE message_id = ? AND handled_at >= ?"  # noqa: S608
        return self._db.execute(query, (message_id, self._cutoff())).fetchone() is not None

    def _insert(self, message_id: str) -> int:
        """Add the id behind all others, and drop what is beyond the bounds; return how many ids that are."""
        table, before = self._table, self._db.total_changes
        if self._max_age_s is not None:  # from the oldest on, so that no index is needed
            self._db.execute(
                f"DELETE FROM {table} WHERE number < coalesce("  # noqa: S608
                f"(SELECT number FROM {table} WHERE handled_at >= ? ORDER BY number LIMIT 1), {_NO_NUMBER})",
                (self._cutoff(),),
            )
        self._db.execute(
            f"INSERT OR REPLACE INTO {table} (message_id, handled_at) VALUES (?, ?)",  # noqa: S608
            (message_id, time.time()),
        )
        if self._max_ids is not None:
            self._db.execute(
                f"DELETE FROM {table} WHERE number <= (SELECT max(number) FROM {table}) - ?",  # noqa: S608
                (self._max_ids,),
            )
        return self._db.total_changes - before - 1

    def _cutoff(self) -> float:
        return 0.0 if self._max_age_s is None else time.time() - self._max_age_s

    def _guarded(self, write: Callable[[sqlite3.Connection], object]) -> None:
        """Call `write` with a connection that commits and rolls back nothing."""
        tried = False

        def allowed(action: int, *_: str | None) -> Literal[0, 1]:
            nonlocal tried
            tried |= action == sqlite3.SQLITE_TRANSACTION
            return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK

        self._db.set_authorizer(allowed)
        try:
            write(self._db)
        except sqlite3.DatabaseError as cause:
            if not tried:
                raise
            raise InputError(_ENDED) from cause
        finally:
            self._db.set_authorizer(None)
        if tried:
            raise InputError(_ENDED)

    @contextmanager
    def _held(self) -> Iterator[None]:
        if not self._turn.acquire(timeout=self._timeout_s):
            raise DeduplicationError(
                f"{self._path}: another thread writes it since more than {self._timeout_s:g} s: do not ack the message, "
                "and look for an effect that hangs, or raise timeout_s"
            )
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as cause:
            raise DeduplicationError(f"{self._path}: {cause}: {_remedy(cause)}") from cause


def _remedy(cause: sqlite3.Error) -> str:
    code = getattr(cause, "sqlite_errorcode", None)  # its lower byte is the kind
    return _REMEDIES.get(-1 if code is None else code & 0xFF, "do not ack the message, and check the file")
