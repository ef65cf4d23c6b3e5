"""Exchange types as pika's stubs take them: they know only the types of the specification."""

from __future__ import annotations

from typing import Any

CHX: Any = "x-consistent-hash"
FANOUT: Any = "fanout"
DIRECT: Any = "direct"
MODULUS: Any = "x-modulus-hash"
