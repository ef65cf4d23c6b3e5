"""AMQP 0-9-1 without I/O, and the values of AMQP 1.0.

Names that only a connection needs are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.amqp.amqp10_values import Amqp10Value
from rabbit_chx.amqp.fields import AmqpField
from rabbit_chx.lazy_names import lazy

if TYPE_CHECKING:
    from rabbit_chx.amqp.settings import ConnectionSettings, Secret, TlsSettings

__all__ = [
    "Amqp10Value",
    "AmqpField",
    "ConnectionSettings",
    "Secret",
    "TlsSettings",
]

__getattr__, __dir__ = lazy(
    __name__,
    {"rabbit_chx.amqp.settings": ["ConnectionSettings", "Secret", "TlsSettings"]},
)
