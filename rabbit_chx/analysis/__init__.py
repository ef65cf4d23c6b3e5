"""Exact shares and movement of keys, keys for a queue, and samples. No I/O.

NumPy is loaded when something is counted.
"""

from rabbit_chx.analysis.findings import Finding, ring_findings
from rabbit_chx.analysis.key_routing import KeySketch, SlotLoad, keys_for
from rabbit_chx.analysis.simulation import movement, simulate

__all__ = [
    "Finding",
    "KeySketch",
    "SlotLoad",
    "keys_for",
    "movement",
    "ring_findings",
    "simulate",
]
