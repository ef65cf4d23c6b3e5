"""The broker: reading a topology, applying a plan, handing slots over, declaring and repairing, by a small protocol."""
