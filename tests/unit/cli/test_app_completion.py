"""A TAB in a real shell completes commands, options, choices and files."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from programs import program

#: How each shell is started without the user's files, and how it loads the script.
SHELLS = {
    "bash": (["bash", "--norc", "-i"], 'eval "$(rabbit-chx completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -u -D; eval "$(rabbit-chx completion zsh)"'),
    "fish": (["fish", "--no-config", "-i"], "rabbit-chx completion fish | source"),
}

COMPLETED = ["rabbit-chx", "plan", "--output", "json", "some-ring.json"]


def typed(command: list[str], *inputs: str, folder: Path) -> str:
    """Type each input into a shell when it is silent, and return what its terminal showed."""
    leader, follower = pty.openpty()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TERM": "xterm",
        "HOME": str(folder),
    }
    shown = b""
    in_terminal = ["setsid", "--ctty", "--wait", *command]
    with subprocess.Popen(
        in_terminal, stdin=follower, stdout=follower, stderr=follower, cwd=folder, env=environment
    ) as shell:
        os.close(follower)
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            for text in [*inputs, "exit\r"]:
                deadline = time.monotonic() + 30
                while select.select([leader], [], [], 1.0)[0] and time.monotonic() < deadline:
                    shown += os.read(leader, 65_536)
                os.write(leader, text.encode())
        try:
            shell.wait(30)
        finally:
            shell.kill()
    os.close(leader)
    return shown.decode(errors="replace")


@pytest.mark.extended
@pytest.mark.parametrize("name", SHELLS)
def test_a_tab_completes_commands_options_choices_and_files(name: str, tmp_path: Path) -> None:
    program(name)
    command, load = SHELLS[name]
    (tmp_path / "some-ring.json").write_text("")
    line = "rabbit-chx pla\t--outp\tjs\tsome-r\t"
    to_file = "\x01echo \x05> line\r"  # Ctrl-A and Ctrl-E go to the ends of the line
    shown = typed(command, f"{load}\r", line, to_file, folder=tmp_path)
    assert (tmp_path / "line").exists(), shown
    assert (tmp_path / "line").read_text().split() == COMPLETED
