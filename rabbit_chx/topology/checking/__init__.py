"""A check: the findings about a live topology, and the effects of an upgrade. No I/O."""
