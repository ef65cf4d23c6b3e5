"""The fewest slots that have to change hands so that no queue has too much of the load."""
