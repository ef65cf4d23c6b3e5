"""Exchanges with slots: the plain exchanges, queues and bindings that they are made of, and back."""
