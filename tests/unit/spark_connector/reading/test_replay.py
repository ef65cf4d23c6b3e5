"""What cannot be replayed. tests/spark/test_stream_batches.py replays."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing
from spark_connector import replay

NOW = "2026-01-31T12:00:00Z"
RING = HashRing.from_buckets(["q"])


@pytest.mark.parametrize(
    ("options", "key", "since", "ring", "says"),
    [
        ({"stream": "s"}, "k", NOW, None, "pass superStream, or exchange with its ring"),
        (
            {"superStream": "x", "SuperStream": "y"},
            "k",
            NOW,
            None,
            "'superStream' and 'SuperStream' are both",
        ),
        ({"exchange": "x"}, "k", NOW, None, "pass ring=, or the option ringVia"),
        ({"superStream": "x"}, "k", NOW, RING, "a super stream has no ring"),
        ({"exchange": "x"}, [], NOW, None, "there is no key"),
        ({"exchange": "x"}, "k", "yesterday", None, "pass a time with its zone"),
        ({"exchange": "x"}, "k", NOW, HashRing.from_buckets([ExchangeRef("e")]), "which is not a stream"),
        ({"exchange": "x"}, "k", NOW, HashRing.from_buckets(["a,b"]), "use rabbit_chx.replay"),
        ({"exchange": "x"}, "k", NOW, HashRing.from_buckets(["a "]), "use rabbit_chx.replay"),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    options: dict[str, str], key: Any, since: str, ring: HashRing | None, says: str
) -> None:
    no_spark: Any = None
    with pytest.raises(InputError, match=says):
        replay(no_spark, {"url": "rabbitmq-stream://nowhere", **options}, key, since, ring=ring)
