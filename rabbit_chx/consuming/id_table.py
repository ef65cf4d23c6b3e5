"""The ids of handled messages as a table of an SQLite file, which threads and processes share."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Literal

from rabbit_chx.errors import DeduplicationError, InputError

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["IdTable"]

_NO_NUMBER = (1 << 63) - 1  # the largest of SQLite
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")


class IdTable:
    """A table of message ids, in the order in which they were handled.

    Args:
        path: the file.
        name: the name of the table.
        max_ids: how many ids are kept, or None.
        max_age_s: for how many seconds an id is kept, or None.
        timeout_s: how long to wait for another writer of the file, in seconds.

    Raises:
        InputError: the name cannot be used.
        DeduplicationError: the file cannot be opened, or is no SQLite database.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        name: str,
        *,
        max_ids: int | None,
        max_age_s: float | None,
        timeout_s: float,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise InputError(
                f"table is {name!r:.80}: give letters, digits and _, at most 60, and no digit first"
            )
        self._path, self._name, self._timeout_s = path, name, timeout_s
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

    def has(self, message_id: str) -> bool:
        """Return whether the id is kept.

        Raises:
            DeduplicationError: the file cannot be read, or not in time.
        """
        with self._held(), self._errors():
            return self._has(message_id)

    def add(self, message_id: str, write: Callable[[sqlite3.Connection], object] | None = None) -> int | None:
        """Keep the id, and what `write` does in the same transaction.

        Args:
            message_id: the id.
            write: called if the id is new, with the connection. It cannot end the transaction.

        Returns:
            How many old ids were dropped; None where the id was known, and nothing was done.

        Raises:
            InputError: `write` tried to end the transaction.
            DeduplicationError: the file cannot be written, or not in time.
            Exception: what `write` raises. Nothing is committed then.
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

    def kept(self) -> tuple[int, float | None]:
        """Return how many ids are kept, and the age of the oldest in seconds.

        Raises:
            DeduplicationError: the file cannot be read, or not in time.
        """
        with self._held(), self._errors():
            count, oldest = self._db.execute(
                f"SELECT count(*), min(handled_at) FROM {self._name} WHERE handled_at >= ?",  # noqa: S608  # checked above
                (self._cutoff(),),
            ).fetchone()
        return count, None if oldest is None else max(0.0, time.time() - oldest)

    def close(self) -> None:
        """Close the file."""
        with self._held():
            self._db.close()

    def _prepared(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._prepare()
            except sqlite3.OperationalError as cause:
                # Two processes begin a file at once: SQLite lets one of them wait for nothing but its next try.
                if cause.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _prepare(self) -> None:
        if self._db.execute("PRAGMA page_count").fetchone() == (0,):  # a new file, so nobody else's choice
            self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")  # what is acked has to survive a loss of power, too
        self._db.execute(
            f"CREATE TABLE IF NOT EXISTS {self._name} "
            "(number INTEGER PRIMARY KEY, message_id TEXT NOT NULL UNIQUE, handled_at REAL NOT NULL)"
        )

    def _has(self, message_id: str) -> bool:
        query = f"SELECT 1 FROM {self._name} WHERE message_id = ? AND handled_at >= ?"  # noqa: S608
        return self._db.execute(query, (message_id, self._cutoff())).fetchone() is not None

    def _insert(self, message_id: str) -> int:
        """Add the id behind all others, and drop what is beyond the bounds; return how many ids that are."""
        name, before = self._name, self._db.total_changes
        if self._max_age_s is not None:  # from the oldest on, so that no index is needed
            self._db.execute(
                f"DELETE FROM {name} WHERE number < coalesce("  # noqa: S608
                f"(SELECT number FROM {name} WHERE handled_at >= ? ORDER BY number LIMIT 1), {_NO_NUMBER})",
                (self._cutoff(),),
            )
        self._db.execute(
            f"INSERT OR REPLACE INTO {name} (message_id, handled_at) VALUES (?, ?)",  # noqa: S608
            (message_id, time.time()),
        )
        if self._max_ids is not None:
            self._db.execute(
                f"DELETE FROM {name} WHERE number <= (SELECT max(number) FROM {name}) - ?",  # noqa: S608
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


def _remedy(cause: sqlite3.Error) -> str:
    code = getattr(cause, "sqlite_errorcode", None)  # its lower byte is the kind
    return _REMEDIES.get(-1 if code is None else code & 0xFF, "do not ack the message, and check the file")
