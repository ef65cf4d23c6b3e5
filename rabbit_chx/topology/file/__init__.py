"""Topologies as text: the fields and rules of a topology file, TOML, and definitions files. No I/O."""
