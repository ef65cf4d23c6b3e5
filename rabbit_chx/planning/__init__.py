"""A plan: the comparison of two topologies, the steps of each ring, what they move, and the reasons to refuse it. No I/O."""
