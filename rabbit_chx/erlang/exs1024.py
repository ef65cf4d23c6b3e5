"""Erlang's ``exs1024`` generator.

Mirrors erlang/otp ``lib/stdlib/src/rand.erl``, ``exs1024_seed/1``, ``exs1024_next/1`` and ``uniform_s/1`` (OTP 25; later releases keep the
sequences of old algorithms). Unlike ``exs1024s``, the float uses all 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator

_MASK_21 = (1 << 21) - 1
_MASK_64 = (1 << 64) - 1
PRIMES = (2097131, 2097133, 2097143)
SEED_MULTIPLIER = 2685821657736338717
OUTPUT_MULTIPLIER = 1181783497276652981
WORDS = 16


def exs1024_outputs(seed: tuple[int, int, int]) -> Iterator[int]:
    """Yield the 64-bit outputs after ``rand:seed_s(exs1024, Seed)``, without end; 21 bits of each integer of the seed count."""
    words = _seed_words(seed)
    position = 0
    while True:
        s0 = words[position]
        position = position + 1 & 15
        s1 = words[position]
        s1 ^= s1 << 31 & _MASK_64
        word = s0 ^ s0 >> 30 ^ s1 ^ s1 >> 11
        words[position] = word
        yield word * OUTPUT_MULTIPLIER & _MASK_64


def exs1024_uniform(seed: tuple[int, int, int]) -> Iterator[float]:
    """Return the endless sequence of floats from 0.0 to 1.0 of ``rand:uniform_s/1``."""
    return (output / 2.0**64 for output in exs1024_outputs(seed))


def _seed_words(seed: tuple[int, int, int]) -> list[int]:
    x, y, z = (
        ((element & _MASK_21) + 1) * prime & _MASK_21 for element, prime in zip(seed, PRIMES, strict=True)
    )
    word = x << 43 | y << 22 | z << 1 | 1
    words = []
    for _ in range(WORDS):
        word ^= word >> 12
        word ^= word << 25 & _MASK_64
        word ^= word >> 27
        words.append(word * SEED_MULTIPLIER & _MASK_64)
    words.reverse()
    return words
