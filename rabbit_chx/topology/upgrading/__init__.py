"""What an upgrade of the broker does to the hash exchanges of a topology: which keys move, why, and what repairs it."""
