"""The reports of plans, checks and exchanges as documents, which the commands print. No I/O."""
