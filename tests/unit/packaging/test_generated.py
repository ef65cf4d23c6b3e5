"""What is made from the code is as the code says: tables, the list of packages."""

from __future__ import annotations

import pytest
import update


def test_everything_generated_is_as_the_code_says() -> None:
    assert update.differences() == [], "run: make generated"


def test_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(update._PARTS["docs/how-it-routes.md"], "rules", lambda: "| no rules |")
    assert update.differences() == ["docs/how-it-routes.md"]


def test_a_document_without_its_marks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(update._PARTS, "LICENSE", {"rules": lambda: ""})
    with pytest.raises(SystemExit, match="LICENSE has not one part between <!-- rules"):
        update.differences()
