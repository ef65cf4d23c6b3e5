"""Cases of a text file beside a test: what is given, and behind `->` the stored result.

A pattern of a case has two groups or more; `^` matches at each line. `test` is the `__file__` of the test.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def stored_cases(test: str, name: str, pattern: str) -> list[tuple[Any, ...]]:
    """Return the groups of each case of a file."""
    return re.findall(pattern, Path(test).with_name(name).read_text("utf-8"), re.MULTILINE)


def cases_of_sections(test: str, name: str, pattern: str) -> list[tuple[Any, ...]]:
    """Return the same, each case behind the title of its section, up to a colon."""
    return [
        (title, *case)
        for title, section in stored_cases(test, name, r"^## ([^:\n]*)(.*\n(?:(?!## ).*\n)*)")
        for case in re.findall(pattern, section, re.MULTILINE)
    ]
