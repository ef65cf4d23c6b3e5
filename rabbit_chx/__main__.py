"""``python -m rabbit_chx`` is ``rabbit-chx``."""

from __future__ import annotations

import sys

from rabbit_chx.cli import main

if __name__ == "__main__":
    sys.exit(main())
