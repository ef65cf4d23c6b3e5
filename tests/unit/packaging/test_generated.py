"""What is made from the code is as the code says: tables, the list of packages."""

from __future__ import annotations

import update


def test_everything_generated_is_as_the_code_says() -> None:
    assert update.differences() == [], "run: make generated"
