"""The words and tables that commands share."""

from __future__ import annotations

from rabbit_chx import HashRing, Release
from rabbit_chx.analysis.matrix import MovementMatrix, movement
from rabbit_chx.cli.report import bucket_ranges, exchange_facts, matrix_table, moved_keys
from rabbit_chx.rendering import Line, Table
from rabbit_chx.routing.bindings import Place

_RELEASE = Release("4.3.6")


def test_separate_runs_of_buckets_are_distinguished() -> None:
    places = enumerate(["a", "a", "b", None, "a", "a", "a"])

    assert bucket_ranges(places) == {"a": "0-1, 4-6", "b": "2", None: "3"}


def test_an_assumed_ring_reports_how_it_can_be_read() -> None:
    read, assumed = (
        HashRing.from_buckets(["a"], _RELEASE), HashRing.from_bindings([("a", 1)], _RELEASE, "assumed")
    )  # fmt: skip

    assert [name for name, _ in exchange_facts("orders", "/", {}, read)] == [
        "exchange",
        "vhost",
        "hashes",
        "ring",
    ]
    assert "--ring-via" in exchange_facts("orders", "/", {}, assumed)[-1][1]


def _matrix(before: list[Place], after: list[Place]) -> MovementMatrix:
    return movement(HashRing.from_buckets(before, _RELEASE), HashRing.from_buckets(after, _RELEASE))


def test_a_matrix_that_is_too_wide_is_a_list_of_its_moves() -> None:
    names: list[Place] = [f"q{number}" for number in range(13)]
    wide, narrow = _matrix(names[:2], names), _matrix(names[:2], names[:12])

    assert [column.heading for column in matrix_table(wide, str).columns] == ["from", "to", "moves"]
    assert len(matrix_table(narrow, str).columns) == 14


def test_moves_beyond_the_most_are_one_row() -> None:
    names: list[Place] = [f"q{number}" for number in range(13)]
    matrix = _matrix(names[:2], names)
    moves = matrix.moves()

    table = matrix_table(matrix, float, most_moves=20)
    assert len(table.rows) == 21
    assert table.rows[-1] == (f"{len(moves) - 20} more", "", sum(amount for _, _, amount in moves[20:]))
    assert len(matrix_table(matrix, float, most_moves=len(moves)).rows) == len(moves)


def test_keys_that_move_are_named_up_to_a_number_and_the_others_counted() -> None:
    moves: list[tuple[str, Place, Place]] = [(f"k{number}", "a", "b") for number in range(3)]

    table, line = moved_keys(moves, 2)
    assert isinstance(table, Table)
    assert isinstance(line, Line)
    assert [row[0] for row in table.rows] == ["k0", "k1"]
    assert "1 more key" in str(line)
    assert len(list(moved_keys(moves, 3))) == 1
    assert len(list(moved_keys(moves, 0))) == 1
