"""``rabbit-chx completion``: what a shell needs to complete commands, options and file names."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from rabbit_chx.cli.app import app

_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(epilog="Example: rabbit-chx completion bash > rabbit-chx.bash")
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def completion(shell: str) -> None:
    """Write the script that lets SHELL complete the commands, options, choices and file names of rabbit-chx.

    In ~/.bashrc, for bash 4.4 or newer: eval "$(rabbit-chx completion bash)"

    In ~/.zshrc, behind compinit: eval "$(rabbit-chx completion zsh)"

    Once for fish: rabbit-chx completion fish > ~/.config/fish/completions/rabbit-chx.fish
    """
    click.echo(_SHELLS[shell](app, {}, "rabbit-chx", "_RABBIT_CHX_COMPLETE").source(), nl=False)
