"""Sequences of operations on a broker, written once and without I/O: reading, declaring, applying a plan."""
