"""The words of texts that people read."""

from __future__ import annotations

import re

#: Words that people of RabbitMQ and Spark do not use, or that they use for something else, as a mirrored queue.
UNUSUAL = re.compile(
    r"\b(?:mirror|elsewhere|for ever|changes? hands|in any case|at the worst moment|[Gg]ive|fast lane)\b|\d %"
)
