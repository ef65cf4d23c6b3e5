"""Exact shares and movement over all seeds, keys for a queue, releases compared. No I/O.

NumPy is loaded when something is counted.
"""

from rabbit_chx.analysis.comparison import Comparison, Moved, compare_releases, compare_rings
from rabbit_chx.analysis.findings import Finding, ring_findings
from rabbit_chx.analysis.key_routing import Hashing, NoKeyFoundError, Refused, SampleBatch, keys_for
from rabbit_chx.analysis.matrix import MovementMatrix, count_movement, movement_matrix
from rabbit_chx.analysis.modulo_map import ModuloMap, movement
from rabbit_chx.analysis.simulation import Change, HeavyKey, PlaceShare, SampleCounts, Simulation, simulate
from rabbit_chx.analysis.slot_load import KeyCount, KeyLoad, KeySketch, SlotLoad
from rabbit_chx.routing import Place

__all__ = [
    "Change",
    "Comparison",
    "Finding",
    "Hashing",
    "HeavyKey",
    "KeyCount",
    "KeyLoad",
    "KeySketch",
    "ModuloMap",
    "Moved",
    "MovementMatrix",
    "NoKeyFoundError",
    "Place",
    "PlaceShare",
    "Refused",
    "SampleBatch",
    "SampleCounts",
    "Simulation",
    "SlotLoad",
    "compare_releases",
    "compare_rings",
    "count_movement",
    "keys_for",
    "movement",
    "movement_matrix",
    "ring_findings",
    "simulate",
]
