"""Everything else that talks to a live broker."""

from __future__ import annotations

from rabbit_chx.broker.aio_pika_settings import aio_pika_arguments
from rabbit_chx.broker.client import Broker
from rabbit_chx.broker.declaring import Declared
from rabbit_chx.broker.pika_connection import pika_parameters
from rabbit_chx.broker.ring_source import Buckets, DiagnosticsRing, RingSource, SavedRing, eval_expression
from rabbit_chx.broker.tracing import TracedRing

__all__ = [
    "Broker",
    "Buckets",
    "Declared",
    "DiagnosticsRing",
    "RingSource",
    "SavedRing",
    "TracedRing",
    "aio_pika_arguments",
    "eval_expression",
    "pika_parameters",
]
