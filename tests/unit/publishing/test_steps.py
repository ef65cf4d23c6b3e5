"""The loop over the steps of a sequence: `deliveries.txt` shows the errors of ours that a sequence gets."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from unittest.mock import Mock

import pytest

from rabbit_chx.publishing.delivery import drive


@pytest.mark.parametrize("foreign", [KeyboardInterrupt, ZeroDivisionError])
def test_anything_else_closes_the_sequence_and_is_not_thrown_in(foreign: type[BaseException]) -> None:
    ends: list[type[BaseException]] = []

    def sequence() -> Generator[Any, Any, None]:
        try:
            yield 1
        except BaseException as end:
            ends.append(type(end))
            raise

    with pytest.raises(foreign):
        drive(sequence(), Mock(side_effect=foreign))
    assert ends == [GeneratorExit]
