"""The `tailspan` command.

Exit status: 0 fine, 1 a finding that should stop a pipeline, 2 wrong usage or nothing to
reach, 130 ended by Ctrl-C.
"""

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from signal import SIGINT
from typing import Any, Final

import click

from cli.errors import Unreachable
from store.errors import StoreError

COMMANDS: Final = {
    "up": "Run the collector, the exporter and the explorer as one, until Ctrl-C.",
    "collect": "Run the collector and the exporter, until Ctrl-C.",
    "ui": "Run the explorer alone, until Ctrl-C.",
    "requests": "Print requests: what each waited for, and how it ended.",
    "stats": "Count requests and print their percentiles, in groups.",
    "explain": "Explain why a latency grew.",
    "cost": "Print what serving cost: requests, recomputation, idle time and loading.",
    "slo": "Check objectives, make their rules, show where they stand, notify.",
    "config": "Show each engine's configuration, or what two differ in.",
    "gpus": "Show what each GPU does now, or send its samples to a collector.",
    "dashboards": "Write Grafana dashboards as files, or push them to a Grafana.",
    "settings": "Show the settings of tailspan up, and where each comes from.",
    "doctor": "Check each connection and the local GPUs, and say how to repair what fails.",
    "simulate": "Simulate a vLLM fleet and send its telemetry to a collector.",
}
"""Each command, in the module of its name, and its line in `tailspan --help`. A command is
imported when it is used: all of them take a second."""

INTERRUPTED: Final = 128 + SIGINT
"""The exit status of a command that Ctrl-C ended, as of a shell: 1 would be a finding."""


class Commands(click.Group):
    """A group that imports a command when it is used, ends quietly when the reader of its output
    is gone, and reports in a sentence what failed."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None where there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"cli.commands.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # `| head` has read enough. What is still in the buffer is discarded.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)
        except StoreError as error:
            raise Unreachable(str(error)) from error
        return result


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tailspan", prog_name="tailspan")
def tailspan() -> None:
    """Why did the tail grow? Latency and SLOs of vLLM servers, request by request."""


def main() -> None:
    """Run the command; the entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Unicode
    tailspan.main(prog_name="tailspan")
