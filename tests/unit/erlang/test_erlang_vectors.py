"""Every row that a real Erlang VM answered."""

from __future__ import annotations

import json
import struct
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rabbit_chx.erlang import Atom, ErlangMap, phash2
from rabbit_chx.erlang.hashing import Term, exs1024_outputs, exs1024_uniform
from rabbit_chx.routing import jump_consistent_hash
from rabbit_chx.routing.arrays.keys import hashes
from rabbit_chx.routing.arrays.seeds import buckets_of_seeds
from rabbit_chx.routing.jump import seed_of

VECTORS = Path(__file__).parents[2] / "vectors"
SEED_BITS = (1 << 21) - 1


def read(name: str) -> dict[str, Any]:
    vectors: dict[str, Any] = json.loads((VECTORS / name).read_text())
    return vectors


def term_of(row: dict[str, Any]) -> Term:  # noqa: PLR0911 - one for each kind of term
    match row:
        case {"t": "bin", "hex": digits}:
            return bytes.fromhex(digits)
        case {"t": "int", "v": digits}:
            return int(digits)
        case {"t": "float", "bits": bits}:
            value: float = struct.unpack(">d", bytes.fromhex(bits))[0]
            return value
        case {"t": "atom", "utf8": digits}:
            return Atom(bytes.fromhex(digits).decode())
        case {"t": "list", "v": items}:
            return [term_of(item) for item in items]
        case {"t": "tuple", "v": items}:
            return tuple(term_of(item) for item in items)
        case {"t": "map", "v": pairs}:
            return ErlangMap((term_of(key), term_of(value)) for key, value in pairs)
    raise AssertionError(row)


PHASH2 = read("phash2.json")
JUMP = read("jump.json")


def test_the_files_are_whole() -> None:
    assert (len(PHASH2["terms"]), len(read("exs1024.json")["seeds"]), len(JUMP["keys"])) == (1412, 73, 254)


def test_phash2_of_every_term_and_range() -> None:
    for row in PHASH2["terms"]:
        term = term_of(row["term"])
        assert phash2(term) == row["h27"], row
        assert phash2(term, 2**32) == row["h32"], row
        assert [phash2(term, range_) for range_ in PHASH2["ranges"]] == row["r"], row


def test_arrays_hash_every_binary() -> None:
    rows = [row for row in PHASH2["terms"] if row["term"]["t"] == "bin"]
    hashed = hashes([bytes.fromhex(row["term"]["hex"]) for row in rows])
    assert hashed.tolist() == [row["h32"] for row in rows]


def test_exs1024_raw_and_uniform() -> None:
    for row in read("exs1024.json")["seeds"]:
        a, b, c = map(int, row["seed"])
        assert [str(raw) for raw in islice(exs1024_outputs((a, b, c)), 20)] == row["raw"], row
        floats = islice(exs1024_uniform((a, b, c)), 20)
        assert [struct.pack(">d", value).hex() for value in floats] == row["uniform"], row


def test_jump_for_every_bucket_count() -> None:
    for row in JUMP["keys"]:
        key = term_of(row["key"])
        assert seed_of(key) == int(row["seed"]) & SEED_BITS, row
        assert [jump_consistent_hash(key, buckets) for buckets in JUMP["ns"]] == row["b"], row


def test_jump_moves_at_each_link_of_the_chain_and_nowhere_else() -> None:
    for row in JUMP["keys"]:
        seed = int(row["seed"])
        for link, following in pairwise([*row["chain"], 10_000]):
            assert jump_consistent_hash(seed, link + 1) == link, row
            assert jump_consistent_hash(seed, following) == link, row


@pytest.mark.parametrize("buckets", [n for n in JUMP["ns"] if n <= 100_000])
def test_arrays_walk_every_seed(buckets: int) -> None:
    column = JUMP["ns"].index(buckets)
    seeds = np.array([int(row["seed"]) & SEED_BITS for row in JUMP["keys"]], np.uint32)
    walked = buckets_of_seeds(seeds, buckets)
    assert walked.tolist() == [row["b"][column] for row in JUMP["keys"]]
