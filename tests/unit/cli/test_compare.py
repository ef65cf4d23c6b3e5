"""Two rings, or two releases. What a comparison prints is in the transcripts."""

from __future__ import annotations

from pathlib import Path

from command_line import BIND, RING, Answer

from rabbit_chx.routing import HashRing

FILE = Path(__file__).resolve().parent / "transcripts" / "files" / "upgrade.toml"


def test_a_sample_that_stays_hides_no_keys_that_move(answer: Answer, tmp_path: Path) -> None:
    other = HashRing.from_bindings([("q1", 1), ("q2", 11)])
    stays = next(
        key for key in map(str, range(100)) if RING.destination_for(key) == other.destination_for(key)
    )
    path = tmp_path / "keys"
    path.write_text(stays)
    arguments = ("compare", *BIND, "--to-bind", "q1=1", "--to-bind", "q2=11", "--keys", str(path))
    document = answer(*arguments, code=1)
    assert document["sample"]["moved"] == 0
    assert document["exact"]["moved"] == RING.share_moved(other) > 0


def test_the_share_of_a_file_is_that_of_one_exchange_of_it(answer: Answer) -> None:
    releases = ("--topology", str(FILE), "--release", "4.0.9", "--to-release", "4.3.6")
    for name in ("orders", "images"):
        (whole,) = (
            found for found in answer("compare", *releases, code=1)["exchanges"] if found["exchange"] == name
        )
        code = 1 if whole["moved"] else 0
        assert answer("compare", *releases, "--exchange", name, code=code)["exact"] == whole["exact"]
