"""The stream protocol: RabbitMQ's log, read and written as columns."""

from __future__ import annotations
