"""Values as TOML on one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_SHOWN = 60
#: str() refuses a number of 4,300 digits, which TOML may have in another base.
_MOST_BITS = 200
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def show_value(value: object) -> str:
    """Return a value as TOML for a message, shortened."""
    text = toml_value(value).encode(errors="replace").decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def toml_value(value: object) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{toml_key(name)} = {toml_value(inner)}" for name, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of {value.bit_length()} bits"  # only a message has such a number
    if value is None or isinstance(value, (str, int)):
        # JSON text is TOML text, except for U+007F, which TOML requires to be escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def toml_key(name: str) -> str:
    """Return the name of a field as TOML."""
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)
