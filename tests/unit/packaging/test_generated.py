"""What is made from the code is as the code says: tables, the list of packages."""

from __future__ import annotations

import update


def test_generated_files_are_up_to_date() -> None:
    assert update.differences() == [], "run: make generated"
