"""The ids in a file: what a crash leaves at each point, and several processes on one file."""

from __future__ import annotations

import asyncio
import logging
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rabbit_chx import SqliteDeduplicator
from rabbit_chx.errors import DeduplicationError, InputError

BEGINNING = """
import os, signal, sqlite3, sys
from pathlib import Path
from rabbit_chx import SqliteDeduplicator

path = Path(sys.argv[1])
sqlite3.connect(path, timeout=30).execute("CREATE TABLE IF NOT EXISTS effects (name TEXT)").connection.close()
seen = SqliteDeduplicator(path, max_ids=1_000)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def insert(db, name):
    db.execute("INSERT INTO effects VALUES (?)", (name,))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def seen(file: Path) -> Iterator[SqliteDeduplicator]:
    with SqliteDeduplicator(file, max_ids=100) as seen:
        yield seen


def insert(db: sqlite3.Connection, name: str) -> None:
    db.execute("CREATE TABLE IF NOT EXISTS effects (name TEXT)")
    db.execute("INSERT INTO effects VALUES (?)", (name,))


def effects(file: Path) -> list[str]:
    with sqlite3.connect(file) as db:
        found = [name for (name,) in db.execute("SELECT name FROM effects ORDER BY name")]
    db.close()
    return found


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    script = BEGINNING + textwrap.dedent(code)
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def killed(code: str, file: Path) -> None:
    """Run a program that is killed with -9 where it says `die`."""
    process = start(code, file)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def test_ids_survive_the_process(file: Path) -> None:
    with SqliteDeduplicator(file, max_ids=10) as seen:
        assert seen.run_if_new("a", lambda: None)
    with SqliteDeduplicator(file, max_ids=10) as seen:
        assert not seen.run_if_new("a", lambda: None)


@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("seen.run_in_transaction('a', lambda db: (insert(db, 'a'), die()))", []),
        (
            "insert_id = SqliteDeduplicator._insert; SqliteDeduplicator._insert = lambda *a: (insert_id(*a), die())",
            [],
        ),
        ("seen.run_in_transaction('a', insert, 'a'); die()", ["a"]),
    ],
    ids=["in the effect", "before the commit", "after the commit"],
)
def test_a_crash_leaves_effect_and_id_or_neither(file: Path, point: str, left: list[str]) -> None:
    killed(f"{point}\nseen.run_in_transaction('a', insert, 'a')", file)
    assert effects(file) == left
    with SqliteDeduplicator(file, max_ids=10) as seen:
        assert seen.run_in_transaction("a", insert, "a") is (not left)
    assert effects(file) == ["a"]


@pytest.mark.parametrize(
    ("point", "done", "again"),
    [
        ("seen.run_if_new('a', lambda: (die(), out.touch()))", False, True),
        ("SqliteDeduplicator._add = lambda *a: die()", True, True),
        ("seen.run_if_new('a', out.touch); die()", True, False),
    ],
    ids=["in the effect", "between effect and id", "after the id"],
)
def test_a_crash_between_an_effect_elsewhere_and_its_id_repeats_the_effect(
    file: Path, *, point: str, done: bool, again: bool
) -> None:
    """Never the other way round: there is no id without its effect."""
    killed(f"out = path.with_suffix('.out')\n{point}\nseen.run_if_new('a', out.touch)", file)
    assert file.with_suffix(".out").exists() is done
    with SqliteDeduplicator(file, max_ids=10) as seen:
        assert seen.run_if_new("a", lambda: None) is again


def test_two_processes_have_one_effect_for_each_id(file: Path) -> None:
    code = "print(sum(seen.run_in_transaction(f'm-{i}', insert, f'm-{i}') for i in range(100)))"
    processes = [start(code, file) for _ in range(2)]
    ran = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sum(ran) == 100
    assert len(effects(file)) == 100


def test_what_is_committed_survives_a_loss_of_power(seen: SqliteDeduplicator) -> None:
    found: list[tuple[int]] = []
    seen.run_in_transaction("a", lambda db: found.extend(db.execute("PRAGMA synchronous")))
    assert found == [(2,)], "FULL: each commit is synced"


def test_an_effect_in_a_transaction_that_fails_leaves_nothing(seen: SqliteDeduplicator, file: Path) -> None:
    seen.run_in_transaction("a", insert, "a")

    def fail(db: sqlite3.Connection) -> None:
        insert(db, "b")
        db.execute("INSERT INTO nowhere VALUES (1)")

    with pytest.raises(sqlite3.OperationalError, match="no such table: nowhere"):
        seen.run_in_transaction("b", fail)
    assert effects(file) == ["a"]
    assert [seen.run_in_transaction(name, insert, name) for name in "ab"] == [False, True]


@pytest.mark.parametrize("end", ["commit", "rollback", "swallowed"])
def test_an_effect_cannot_end_the_transaction(seen: SqliteDeduplicator, file: Path, end: str) -> None:
    seen.run_in_transaction("a", insert, "a")

    def effect(db: sqlite3.Connection) -> None:
        insert(db, "b")
        if end == "swallowed":
            with pytest.raises(sqlite3.DatabaseError):
                db.executescript("INSERT INTO effects VALUES ('c')")
        else:
            getattr(db, end)()

    with pytest.raises(InputError, match="the effect tried to commit or roll back"):
        seen.run_in_transaction("b", effect)
    assert effects(file) == ["a"]
    assert seen.run_in_transaction("b", insert, "b")


def test_an_async_effect_is_refused_in_a_transaction(seen: SqliteDeduplicator) -> None:
    async def effect(db: sqlite3.Connection) -> None: ...

    with pytest.raises(InputError, match="async function, and was not run"):
        seen.run_in_transaction("a", effect)
    assert seen.report.ids == 0


def test_an_effect_in_the_other_process_at_the_same_time_is_told(
    seen: SqliteDeduplicator, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`run_if_new` excludes no other process; the second of the two says so."""
    with SqliteDeduplicator(file, max_ids=100) as other, caplog.at_level(logging.WARNING):
        seen.run_if_new("a", lambda: other.run_if_new("a", lambda: None))
    assert "message 'a' was handled by another process at the same time" in caplog.text


def test_a_cancelled_consumer_keeps_the_id_of_an_effect_that_is_done(
    seen: SqliteDeduplicator, file: Path
) -> None:
    async def main() -> None:
        holder = sqlite3.connect(file)
        holder.execute("BEGIN IMMEDIATE")  # so that storing the id has to wait
        done = asyncio.Event()
        task = asyncio.create_task(seen.run_if_new_async("a", done.set))
        await done.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        holder.rollback()
        holder.close()
        assert not await seen.run_if_new_async("a", lambda: None)

    asyncio.run(main())


def test_a_consumer_that_is_cancelled_as_its_effect_ends_keeps_the_id(file: Path) -> None:
    async def main() -> None:
        loop, over = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))

        def effect() -> None:
            loop.run_in_executor(None, over.wait, 60)  # no thread is free to store the id
            task.cancel()

        with SqliteDeduplicator(file, max_ids=10, timeout_s=5) as seen:
            task = asyncio.create_task(seen.run_if_new_async("a", effect))
            with pytest.raises(asyncio.CancelledError):
                await task
            over.set()
            assert not await seen.run_if_new_async("a", lambda: None)

    asyncio.run(main())


def test_a_file_that_another_process_writes_too_long(file: Path) -> None:
    with SqliteDeduplicator(file, max_ids=10, timeout_s=0.05) as seen:
        holder = sqlite3.connect(file)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(DeduplicationError, match=r"shop\.db: database is locked: another process"):
            seen.run_in_transaction("a", insert, "a")
        holder.close()
        assert seen.run_in_transaction("a", insert, "a")


@pytest.mark.parametrize(("there", "mode"), [(False, "wal"), (True, "delete")])
def test_the_journal_mode_of_a_file_that_is_there_stays(file: Path, *, there: bool, mode: str) -> None:
    if there:
        sqlite3.connect(file).execute("CREATE TABLE bookings (id)").connection.close()
    SqliteDeduplicator(file, max_ids=1).close()
    db = sqlite3.connect(file)
    assert db.execute("PRAGMA journal_mode").fetchone() == (mode,)
    db.close()


def test_a_new_file_that_another_process_is_just_making(file: Path) -> None:
    maker = sqlite3.connect(file, check_same_thread=False)
    maker.execute("BEGIN IMMEDIATE")
    ready = threading.Timer(0.1, maker.close)
    ready.start()
    with SqliteDeduplicator(file, max_ids=1) as seen:
        assert seen.run_if_new("a", lambda: None)
    ready.join()


def test_two_tables_of_a_file_know_nothing_of_each_other(seen: SqliteDeduplicator, file: Path) -> None:
    seen.run_if_new("a", lambda: None)
    with SqliteDeduplicator(file, max_age_s=60, table="mails") as mails:
        assert mails.run_if_new("a", lambda: None)


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(DeduplicationError, match=r"unable to open database file: check the path"):
        SqliteDeduplicator(tmp_path / "no folder" / "seen.db", max_ids=1)
    text = tmp_path / "text.db"
    text.write_text("no database, " * 100)
    with pytest.raises(DeduplicationError, match="not a database: give the path of an SQLite database"):
        SqliteDeduplicator(text, max_ids=1)
    with pytest.raises(InputError, match="neither max_ids nor max_age_s is given"):
        SqliteDeduplicator(tmp_path / "seen.db")
    with pytest.raises(InputError, match="table is 'a b': give letters"):
        SqliteDeduplicator(tmp_path / "seen.db", max_ids=1, table="a b")


def test_a_closed_file(file: Path) -> None:
    seen = SqliteDeduplicator(file, max_ids=10)
    seen.close()
    seen.close()
    with pytest.raises(DeduplicationError, match="closed database"):
        seen.run_if_new("a", lambda: None)


@pytest.mark.parametrize("path", ["", ":memory:", None, 5])
def test_ids_are_not_kept_in_a_file_that_is_none(path: Any) -> None:
    """SQLite takes the first two for a database that is gone with the process."""
    with pytest.raises(InputError, match="names no file: give one; for ids in memory use Deduplicator"):
        SqliteDeduplicator(path, max_ids=1)
