"""Operations on a live broker except publishing: declaring, reading rings, the management API."""

from __future__ import annotations

from rabbit_chx.broker.facade import Broker
from rabbit_chx.broker.pika_connection import pika_parameters
from rabbit_chx.broker.ring_source import DiagnosticsRing, RingSource, SavedRing
from rabbit_chx.connection.tokens import aio_pika_arguments

__all__ = [
    "Broker",
    "DiagnosticsRing",
    "RingSource",
    "SavedRing",
    "aio_pika_arguments",
    "pika_parameters",
]
