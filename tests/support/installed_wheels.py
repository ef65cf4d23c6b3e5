"""Wheels of what is installed, so that pip can install it elsewhere without a network."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

#: A quarter of the bytes of NumPy, pandas and Arrow: tests, headers, and the parts of Arrow that nothing here loads.
_LEFT_OUT = re.compile(r"/(tests|include)/|pyarrow/(_|libarrow_)?(flight|s3|s3fs)\b")
#: Files that pip writes when it installs a wheel.
_BY_PIP = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


def installed_wheels(folder: Path, *names: str) -> None:
    """Make a wheel of each distribution and of what it requires, without the files that a worker does not load.

    Args:
        folder: where to put them.
        names: distributions that are installed from wheels.
    """
    made: set[str] = set()
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in made:
            made.add(name)
            found = distribution(name)
            _write_wheel(folder, found)
            waiting += [each.name for each in map(Requirement, found.requires or ()) if each.marker is None]


def _write_wheel(folder: Path, found: Distribution) -> None:
    tags = re.findall(r"^Tag: (.+?)-(.+?)-(.+)$", found.read_text("WHEEL") or "", re.MULTILINE)
    tag = "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
    files = [
        file
        for file in found.files or ()
        if file.parts[0] != ".."
        and "__pycache__" not in file.parts
        and file.name not in _BY_PIP
        and not _LEFT_OUT.search(file.as_posix())
    ]
    record = io.StringIO()
    lines = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(folder / f"{found.name.replace('-', '_')}-{found.version}-{tag}.whl", "w") as wheel:
        for file in files:
            wheel.write(file.locate(), file.as_posix())
            lines.writerow((file.as_posix(), "", ""))
        (home,) = {file.parts[0] for file in files if file.parts[0].endswith(".dist-info")}
        lines.writerow((f"{home}/RECORD", "", ""))
        wheel.writestr(f"{home}/RECORD", record.getvalue())
