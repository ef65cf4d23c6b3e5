"""Options as Python values become the texts that Spark would pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError
from spark_connector.placing.prediction import as_ring

if TYPE_CHECKING:
    from rabbit_chx.routing import KeyMap

__all__ = ["Texts", "texts"]


class Texts(dict[str, str]):
    """Options by name.

    The values are not shown: one may be a password, and tracebacks may show local variables.
    """

    def __repr__(self) -> str:
        return f"<options {', '.join(self)}>"


def texts(options: Mapping[str, object], ring: KeyMap | str | None) -> Texts:
    """Return every option as text.

    Args:
        options: texts, numbers and booleans by name; None stands for an option that is not given.
        ring: the value of the option `ring`; None if it is not given here.

    Raises:
        InputError: the argument is not a ring, the ring is given twice, or a value is of another type.
    """
    given = Texts()
    for name, value in options.items():
        if isinstance(value, bool):
            given[name] = str(value).lower()
        elif isinstance(value, (str, int, float)):
            given[name] = str(value)
        elif value is not None:
            # The value is not shown: it may hold a password.
            raise InputError(
                f"option {name!r} is a {type(value).__name__}: give a text, a number or a boolean"
            )
    if ring is not None:
        if any(name.lower() == "ring" for name in given):
            raise InputError("the ring is given twice, as an argument and as an option: give it once")
        given["ring"] = as_ring(ring).to_json()
    return given
