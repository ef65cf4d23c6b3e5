"""What is wrong with a broker: the findings about a live topology by itself, and its differences from a file, in words. No I/O."""
