"""Build the release of the tag at HEAD into dist/, and check it as a user installs it: `make release`.

``--check`` only checks that HEAD can be released. Without it, dist/ must already contain the bill of materials of `make audit`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from rabbit_chx import __version__

_ROOT = Path(__file__).resolve().parents[1]
_DIST = _ROOT / "dist"
_BILL_OF_MATERIALS = "rabbit-chx.cdx.json"
_CHECKSUMS = "SHA256SUMS"
_NOTES = "release-notes.md"

_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INSTALLED = re.compile(r"'(?:\.|rabbit-chx)(\[[\w,]+\])'")


class ReleaseError(Exception):
    """The release cannot be made; the message contains the remedy."""


def check_source(version: str, tags: Iterable[str], changes: Iterable[str]) -> None:
    """Check that HEAD has the tag of the version, and that no file differs from HEAD.

    Args:
        version: of rabbit_chx/version.py.
        tags: the tags of HEAD.
        changes: the lines of ``git status --porcelain``.

    Raises:
        ReleaseError: The tag is missing, or a file differs.
    """
    if f"v{version}" not in (found := sorted(tags)):
        raise ReleaseError(
            f"HEAD has no tag v{version}, the version of rabbit_chx/version.py; it has {', '.join(found) or 'none'}:"
            f" git tag --annotate v{version}"
        )
    if changed := list(changes):
        raise ReleaseError(
            f"files differ from the tag v{version}: {'; '.join(changed)}: commit or remove them"
        )


def release_notes(changelog: str, version: str) -> str:
    """Return the section of a version in the changelog. A relative link becomes its text: the release page has no such files.

    Raises:
        ReleaseError: The version has no section with a date, or there are unreleased changes.
    """
    _, *parts = re.split(r"^## (.*)\n", changelog, flags=re.MULTILINE)
    sections = {title: text.strip() for title, text in zip(parts[::2], parts[1::2], strict=True)}
    if sections.get("Unreleased"):
        raise ReleaseError(f"CHANGELOG.md has unreleased changes: move them to the section of {version}")
    dated = re.compile(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d")
    found = [text for title, text in sections.items() if dated.fullmatch(title)]
    if not found or not found[0]:
        raise ReleaseError(f"CHANGELOG.md needs a section '## {version} - YYYY-MM-DD'")
    return re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", found[0]) + "\n"


def first_example(readme: str, wheel: Path) -> tuple[str, str]:
    """Return the first console block of the README that prints something, as a script that installs the wheel before, and what it prints.

    Raises:
        ReleaseError: No block installs this package.
    """
    blocks = [block.splitlines(keepends=True) for block in _CONSOLE.findall(readme)]
    lines: list[str] = next(
        (block for block in blocks if any(not line.startswith("$ ") for line in block)), []
    )
    installing = next((line for block in blocks for line in block if _INSTALLED.search(line)), "")
    if not installing:
        raise ReleaseError("no console block of README.md installs '.[...]' or 'rabbit-chx[...]'")
    commands = [installing, *(line for line in lines if line.startswith("$ ") and line != installing)]
    script = _INSTALLED.sub(rf"'{wheel}\1'", "".join(line.removeprefix("$ ") for line in commands))
    script = script.replace("python3 -m venv", f"{shlex.quote(sys.executable)} -m venv")
    return script, "".join(line for line in lines if not line.startswith("$ "))


def pack(folder: Path, name: str) -> bytes:
    """Return the files of a folder as the folder `name` of a tar.gz: the same bytes for the same files."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for path in sorted(folder.iterdir()):
            entry = tarfile.TarInfo(f"{name}/{path.name}")
            content = path.read_bytes()
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def checksums(files: Iterable[Path]) -> str:
    """Return the SHA-256 of each file, as ``sha256sum --check`` reads them."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(files)
    )


def _git(*arguments: str) -> list[str]:
    return subprocess.run(
        ["git", *arguments], cwd=_ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def _run(*command: str) -> None:
    """Run a module of this Python in the repository."""
    print("+", *command, flush=True)
    subprocess.run([sys.executable, "-m", *command], cwd=_ROOT, check=True)


def _try_example(readme: str, wheel: Path) -> None:
    """Run the first example of the README in an empty folder, with a new environment."""
    script, expected = first_example(readme, wheel)
    print("+", script, end="", flush=True)
    environment = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}
    }
    with tempfile.TemporaryDirectory() as folder:
        printed = subprocess.run(
            [
                "bash",
                "-eu",
                "-c",
                script,
            ],  # as a shell is by default, without pipefail: `compare` answers 1 if keys move
            cwd=folder,
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
    if printed != expected:
        raise ReleaseError(f"the first example of README.md printed {printed!r}, not {expected!r}")


def _check_bill_of_materials(path: Path, version: str) -> None:
    if not path.is_file():
        raise ReleaseError(f"{path} does not exist: make audit")
    bill = json.loads(path.read_text(encoding="utf-8"))
    found = bill.get("metadata", {}).get("component", {}).get("version")
    if (bill.get("bomFormat"), found) != ("CycloneDX", version):
        raise ReleaseError(f"{path} describes version {found}, not {version}: make audit")


def make_release(*, only_check: bool) -> None:
    """Make the release, or only check that HEAD can be released.

    Raises:
        ReleaseError: HEAD cannot be released, or a check of the packages failed.
        CalledProcessError: A tool failed.
    """
    version = __version__
    check_source(version, _git("tag", "--points-at", "HEAD"), _git("status", "--porcelain"))
    notes = release_notes((_ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if only_check:
        return
    bill = _DIST / _BILL_OF_MATERIALS
    _check_bill_of_materials(bill, version)
    wheel = _DIST / f"rabbit_chx-{version}-py3-none-any.whl"
    source = _DIST / f"rabbit_chx-{version}.tar.gz"
    _run("build", "--no-isolation", "--outdir", str(_DIST))
    _run("twine", "check", "--strict", str(wheel), str(source))
    _run("check_wheel_contents", str(wheel))
    _try_example((_ROOT / "README.md").read_text(encoding="utf-8"), wheel)
    (_DIST / _NOTES).write_text(notes, encoding="utf-8")
    vectors = _DIST / f"rabbit-chx-vectors-{version}.tar.gz"
    vectors.write_bytes(pack(_ROOT / "tests" / "vectors", vectors.name.removesuffix(".tar.gz")))
    (_DIST / _CHECKSUMS).write_text(checksums([wheel, source, vectors, bill]), encoding="utf-8")
    print((_DIST / _CHECKSUMS).read_text(encoding="utf-8"), end="")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only check that HEAD can be released")
    try:
        make_release(only_check=parser.parse_args().check)
    except (ReleaseError, subprocess.CalledProcessError) as error:
        sys.exit(f"no release: {error}")


if __name__ == "__main__":
    main()
