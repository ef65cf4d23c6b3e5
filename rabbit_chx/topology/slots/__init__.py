"""Slots of an exchange: their layout, their owners, and how they change hands."""
