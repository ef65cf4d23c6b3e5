"""The broker by a small protocol: reading a topology, applying a plan, recording rings, handing slots over, declaring an exchange."""
