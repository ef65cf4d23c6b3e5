"""What an installation shows. Its pip is a program of a few lines."""

from __future__ import annotations

import re
from pathlib import Path

import install
import pytest

PIP = """
import pathlib, time
print("Collecting pyspark>=3.5 (from rabbit-chx==0.2.0)", flush=True)
for _ in range(400):
    if pathlib.Path("shown").exists():
        break
    time.sleep(0.05)
print("  Downloading numpy-2.1.0-cp311-manylinux.whl (16.3 MB)", flush=True)
raise SystemExit(CODE)
"""


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The printed lines; pip ends after one of them has named its step."""
    lines: list[str] = []

    def note(line: str, **_: object) -> None:
        lines.append(line)
        if "pyspark" in line:
            Path("shown").touch()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("builtins.print", note)
    monkeypatch.setattr(install, "_LINE_EVERY_S", 0.1)
    return lines


def test_the_step_is_shown_now_and_then_and_large_packages_at_once(shown: list[str]) -> None:
    Path("pip.py").write_text(PIP.replace("CODE", "0"))
    install.main()
    assert any(re.fullmatch(r"  0:\d\d  collecting pyspark", line) for line in shown)
    assert any(re.fullmatch(r"  0:\d\d  downloading numpy \(16.3 MB\)", line) for line in shown)
    assert re.fullmatch(r"  0:\d\d  installed", shown[-1])


def test_the_output_of_pip_is_the_error(shown: list[str]) -> None:
    Path("pip.py").write_text(PIP.replace("CODE", "1"))
    with pytest.raises(SystemExit, match="Collecting pyspark"):
        install.main()
    assert "installed" not in shown[-1]
