"""Scenarios of routing: what is done to a broker, what is published, and what the mirror makes of both."""
