"""Make the stored plans of tests/unit/topology/plans again, for each scenario of tests/support/plan_scenarios.py.

With ``--check`` nothing is written, and what differs is an error. Read the difference before you commit it.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT / "tests" / "support"))

from plan_scenarios import SCENARIOS, stored_texts  # noqa: E402  # found by the line above

_FOLDER = _ROOT / "tests" / "unit" / "topology" / "plans"


def main(*, check: bool) -> int:
    """Write or compare the stored plans, and return the exit code."""
    texts = {
        _FOLDER / f"{name}{ending}": text for name in SCENARIOS for ending, text in stored_texts(name).items()
    }
    stale = [path for path in _FOLDER.iterdir() if path not in texts]
    differing = [
        path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in (*stale, *differing):
        print(path.relative_to(_ROOT))
    if check:
        return 1 if stale or differing else 0
    _FOLDER.mkdir(exist_ok=True)
    for path in stale:
        path.unlink()
    for path in differing:
        path.write_text(texts[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
