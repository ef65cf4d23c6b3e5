"""A file that a command writes is whole before and after, also where it cannot be replaced."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rabbit_chx.cli.inputs import write_file
from rabbit_chx.errors import InputError

OLD, NEW = "old\n", "new, and longer than before\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with permissions of its own, alone in its folder."""
    path = tmp_path / "folder" / "topology.toml"
    path.parent.mkdir()
    path.write_text(OLD)
    path.chmod(0o640)
    return path


@pytest.fixture
def mounted(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is mounted alone, as in a container; a mount takes rights that a test may not have, so the refusal is scripted."""

    def refuse(self: Path, _: Path) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(self))

    monkeypatch.setattr(Path, "replace", refuse)
    return file


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Let no file grow beyond a size, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def alone(file: Path) -> bool:
    """Return whether nothing else is in the folder of a file."""
    return list(file.parent.iterdir()) == [file]


def test_a_file_is_replaced_and_keeps_its_permissions(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    write_file(link, NEW)
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, NEW, 0o640)
    assert alone(file)


def test_a_mounted_file_is_written_in_place(mounted: Path) -> None:
    number = mounted.stat().st_ino
    write_file(mounted, NEW)
    assert (mounted.read_text(), mounted.stat().st_ino) == (NEW, number)
    write_file(mounted, OLD)
    assert mounted.read_text() == OLD
    assert alone(mounted)


def test_on_a_full_disk_the_old_file_stays_whole_and_nothing_is_left(file: Path) -> None:
    with at_most(len(OLD)), pytest.raises(InputError, match="cannot be written: File too large"):
        write_file(file, NEW)
    assert (file.read_text(), alone(file)) == (OLD, True)


def test_a_file_whose_folder_takes_no_other_file_is_written_in_place_or_stays_whole(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write into any folder, so the refusal is scripted."""

    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with at_most(len(OLD) + 5), pytest.raises(InputError, match="cannot be written: File too large"):
        write_file(file, NEW)
    assert file.read_text() == OLD
    write_file(file, NEW)
    assert (file.read_text(), alone(file)) == (NEW, True)


def test_a_new_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with at_most(5), pytest.raises(InputError, match=r"plan\.json cannot be written: File too large"):
        write_file(path, NEW)
    assert not path.exists()
    write_file(path, NEW)
    assert path.read_text() == NEW


def test_what_is_no_file_takes_the_text(tmp_path: Path) -> None:
    write_file(Path(os.devnull), NEW)
    with pytest.raises(InputError, match="Is a directory"):
        write_file(tmp_path, NEW)
