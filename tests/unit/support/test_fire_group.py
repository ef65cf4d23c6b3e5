"""The store of a group under fire, and what counts as out of order in it."""

from __future__ import annotations

import asyncio

import pytest
from effect_store import Effect, RefusedEffectError, effect_store, store_effect
from fire_group import overtaken


def test_a_lower_generation_is_refused() -> None:
    async def write() -> None:
        path = str(store.path)
        await store_effect(path, "q", 1, "a", 7)
        await store_effect(path, "q", 2, "b", 8)
        with pytest.raises(RefusedEffectError, match="a higher generation than 7"):
            await store_effect(path, "q", 2, "a", 7)
        await store_effect(path, "other", 3, "a", 7)

    with effect_store() as store:
        asyncio.run(write())
        assert [(message.queue, message.number, message.member) for message in store.taken] == [
            ("q", 1, "a"),
            ("q", 2, "b"),
            ("other", 3, "a"),
        ]
        assert [(message.number, message.member, message.generation) for message in store.refused] == [
            (2, "a", 7)
        ]


def test_a_store_that_does_not_ask_takes_all() -> None:
    with effect_store(fenced=False) as store:
        assert store.store("q", 1, "a", 8)
        assert store.store("q", 2, "a", 7)


@pytest.mark.parametrize(
    ("numbers", "late"),
    [([1, 2, 3], 0), ([1, 2, 1, 2, 3], 0), ([1, 3, 2, 4], 1), ([3, 1, 2], 2), ([], 0)],
)
def test_only_a_first_effect_behind_a_later_one_is_out_of_order(numbers: list[int], late: int) -> None:
    assert overtaken(numbers) == late


def test_an_effect_says_when_it_came() -> None:
    with effect_store() as store:
        store.store("q", 1, "a", 0)
        store.store("q", 2, "a", 0)
    first, second = store.taken
    assert isinstance(first, Effect)
    assert first.at <= second.at
