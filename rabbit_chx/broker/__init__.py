"""Operations on a live broker except publishing: declaring, reading rings, the management API."""

from __future__ import annotations

from rabbit_chx.broker.facade import Broker
from rabbit_chx.broker.pika_connection import pika_parameters
from rabbit_chx.broker.ring_source import Buckets, DiagnosticsRing, RingSource, SavedRing, eval_expression
from rabbit_chx.connection.client_settings import aio_pika_arguments
from rabbit_chx.topology.declaring import Declared

__all__ = [
    "Broker",
    "Buckets",
    "Declared",
    "DiagnosticsRing",
    "RingSource",
    "SavedRing",
    "aio_pika_arguments",
    "eval_expression",
    "pika_parameters",
]
