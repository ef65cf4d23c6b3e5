"""``rabbit-chx topology``: what should be on a broker, as a file, and what is there."""

from __future__ import annotations

import click

from rabbit_chx.cli.apply_command import apply
from rabbit_chx.cli.arrange_command import arrange
from rabbit_chx.cli.check_commands import check_topology
from rabbit_chx.cli.export_command import export
from rabbit_chx.cli.option_groups import show_help
from rabbit_chx.cli.plan_command import plan

__all__ = ["topology"]


@click.group(
    epilog="Example: rabbit-chx topology plan topology.toml --ring-via 'docker exec rabbitmq'",
    short_help="A topology file: export, plan, apply, check.",
    invoke_without_command=True,
)
@click.pass_context
def topology(context: click.Context) -> None:
    """Say in a file which exchanges, queues, bindings and policies there should be."""
    if context.invoked_subcommand is None:
        show_help(context)


for command in (export, plan, arrange, apply, check_topology):
    topology.add_command(command)
