"""docs/how-it-routes.md says what the library does."""

from __future__ import annotations

from blocks import run_doctest


def test_the_answers_are_those_of_the_library() -> None:
    run_doctest("docs/how-it-routes.md")
