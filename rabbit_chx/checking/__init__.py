"""A check: the findings about a live topology by itself, and its differences from a wanted one, in words. No I/O."""
