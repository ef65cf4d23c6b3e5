"""How rings are written."""

from __future__ import annotations

from collections.abc import Callable

from command_line import BIND


def test_text_tells_the_release_and_where_the_ring_is_from(shown: Callable[..., str]) -> None:
    for command in (("route", *BIND, "k"), ("simulate", *BIND), ("compare", *BIND, "--to-release", "4.0.5")):
        text = shown(*command, *(() if "compare" in command else ("--release", "4.2.0", "--store", "mnesia")))
        assert "replayed from the bindings" in text
        assert ("4.2.0 (mnesia)" in text) or ("4.0.5 (mnesia?)" in text)
