"""What became of the messages of a drill, from what was published and what came."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.testing.drill_verdict import SentBatch, drill_verdict

KEYS = ["a", "b"]


def sent(*batches: tuple[int, int], returned: int = 0) -> list[SentBatch]:
    """Return batches of this many messages, in these seconds. Of the last some are returned."""
    made: list[SentBatch] = []
    first = 0
    for second, rows in batches:
        made.append(SentBatch(second, range(first, first + rows), rows, 0))
        first += rows
    last = made[-1]
    made[-1] = last._replace(confirmed=last.confirmed - returned, returned=returned)
    return made


def came(text: str) -> list[tuple[int, str]]:
    """Return the messages of a text such as ``0q 1r``."""
    return [(int(word[:-1]), word[-1]) for word in text.split()]


def test_all_came_in_order() -> None:
    verdict = drill_verdict(sent((0, 4)), came("0q 1r 2q 3r"), KEYS, 2)
    assert verdict.total == Counter(published=4, confirmed=4)
    assert (verdict.keys, verdict.moved_at_end, verdict.examples) == (2, 0, [])


def test_each_message_counts_in_the_second_in_which_it_was_published() -> None:
    verdict = drill_verdict(sent((0, 2), (3, 2), (4, 2), returned=1), came("0q 3r 1r"), KEYS, 2)
    assert verdict.by_second[0] == Counter(published=2, confirmed=2, out_of_order=1)
    assert verdict.by_second[3] == Counter(published=2, confirmed=2, lost=1)
    assert [*verdict.by_second] == [0, 1, 2, 3, 4]
    assert verdict.by_second[4] == Counter(published=2, confirmed=1, unroutable=1, lost=1)
    assert verdict.examples == [
        "lost: message 2 of key 'a' came to no consumer",
        "out of order: message 1 of key 'b' came from r after 3",
    ]


def test_messages_of_other_keys_may_come_in_any_order() -> None:
    assert not drill_verdict(sent((0, 4)), came("1r 0q 3r 2q"), KEYS, 0).total["out_of_order"]


def test_what_comes_again_is_doubled_and_not_out_of_order() -> None:
    total = drill_verdict(sent((0, 4)), came("0q 1r 2q 3r 0q 0q"), KEYS, 4).total
    assert total == Counter(published=4, confirmed=4, doubled=1)


def test_copies_that_the_topology_makes_are_not_doubled() -> None:
    verdict = drill_verdict(sent((0, 6)), came("0q 0x 1r 1x 2q 2x 3r 3x 4q 4x 4x 5r 5x"), KEYS, 2)
    assert verdict.total == Counter(published=6, confirmed=6, doubled=1)


def test_a_key_that_moves_and_comes_back() -> None:
    verdict = drill_verdict(sent((0, 2), (1, 2), (2, 2)), came("0q 1r 2x 3r 4q 5x"), KEYS, 2)
    assert [verdict.by_second[second]["moved"] for second in range(3)] == [0, 1, 2]
    assert (verdict.movers, verdict.moved_at_end) == ({"a", "b"}, 1)


def test_refused_messages_are_not_lost() -> None:
    batches = [SentBatch(0, range(4), 1, 0)]
    assert drill_verdict(batches, came("0q"), KEYS, 0).total == Counter(published=4, confirmed=1, refused=3)
    assert (
        drill_verdict(batches, came("0q 1r"), KEYS, 0).total["lost"] == 0
    )  # one had no answer, and is there


def test_what_is_left_in_queues_is_not_lost() -> None:
    verdict = drill_verdict(sent((0, 2), (1, 2), (2, 2)), came("1q"), KEYS, 0, 3)
    assert [verdict.by_second[second]["lost"] for second in range(3)] == [1, 1, 0]
    assert verdict.examples == ["lost: message 0 of key 'a' came to no consumer"]
    assert drill_verdict(sent((0, 2)), came("1q"), KEYS, 0, 9).total["lost"] == 0


def test_what_nobody_published_does_not_count() -> None:
    assert drill_verdict(sent((0, 1)), came("0q 7q"), KEYS, 0).total == Counter(published=1, confirmed=1)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from("qr")), max_size=40),
    st.integers(1, 4),
)
def test_the_counts_are_those_of_their_definitions(
    sizes: list[int], arrivals: list[tuple[int, str]], keys: int
) -> None:
    batches = sent(*enumerate(sizes))
    total = drill_verdict(batches, arrivals, [f"k{n}" for n in range(keys)], 0).total
    published = range(sum(sizes))
    first = {number: n for n, (number, _) in reversed([*enumerate(arrivals)])}
    assert total["lost"] == sum(number not in first for number in published)
    assert total["doubled"] == sum([number for number, _ in arrivals].count(n) > 1 for n in published)
    assert total["out_of_order"] == sum(
        any(first.get(newer, first[n]) < first[n] for newer in published[n + keys :: keys])
        for n in published
        if n in first
    )
