"""Install packages with pip, and show the large ones, the present step every ten seconds and the time: python tools/install.py ARGUMENT..."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time

_LINE_EVERY_S = 10.0
_LARGE = re.compile(
    r"\s*Downloading (?P<name>[^\s/]+/)*(?P<file>[\w.+-]+?)-\d\S* \((?P<size>\d{2,}\.\d MB)\)"
)
_SMALL = re.compile(r"\s*(?P<step>Collecting|Downloading) (?:[^\s/]+/)*(?P<name>\w[\w.-]*)")
_STEPS = {
    "Building wheel for pyspark (pyproject.toml): started": "building PySpark's wheel",
    "Installing collected packages": "unpacking",
}


def main() -> None:
    """Run pip. Its whole output is shown only if it fails."""
    started = time.monotonic()
    step, ended = "starting pip", threading.Event()

    def show_step() -> None:
        while not ended.wait(_LINE_EVERY_S):
            print(f"  {_minutes(started)}  {step}", flush=True)

    threading.Thread(target=show_step, daemon=True).start()
    command = [sys.executable, "-m", "pip", "install", "--progress-bar", "off", *sys.argv[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        output = []
        for line in pip.stdout:
            output.append(line)
            if text := _shown(line):
                step = text
                print(f"  {_minutes(started)}  {text}", flush=True)
            elif small := _SMALL.match(line):
                step = f"{small['step'].lower()} {small['name']}"
    ended.set()
    if pip.returncode:
        sys.exit("".join(output))
    print(f"  {_minutes(started)}  installed", flush=True)


def _shown(line: str) -> str | None:
    """Return what to show for a line of pip's output; None for most lines."""
    if large := _LARGE.match(line):
        return f"downloading {large['file']} ({large['size']})"
    return next((text for beginning, text in _STEPS.items() if line.strip().startswith(beginning)), None)


def _minutes(started: float) -> str:
    seconds = int(time.monotonic() - started)
    return f"{seconds // 60}:{seconds % 60:02}"


if __name__ == "__main__":
    main()
