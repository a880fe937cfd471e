"""The `tailspan` command.

The exit status is 0 for success, 1 for a finding that should stop a pipeline, 2 for wrong usage or
an unreachable target, 130 after Ctrl-C, and 141 if the output was closed.
"""

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from signal import SIGINT, SIGPIPE
from typing import Any, Final

import click

from cli.errors import Unreachable
from telemetry import pandas_import
from telemetry.store_errors import StoreError

COMMANDS: Final = {
    "up": "Run the collector, the exporter and the explorer until Ctrl-C.",
    "collect": "Run the collector and the exporter until Ctrl-C.",
    "ui": "Run the explorer alone until Ctrl-C.",
    "requests": "Print requests, with their phases and outcomes.",
    "stats": "Count requests and print latency percentiles, in groups.",
    "explain": "Explain why a latency grew.",
    "compare": "Compare latencies before and after a change, at the same mix and load.",
    "what-if": "Predict what a change would do to the recorded traffic.",
    "advise": "Rank changes by their predicted effect on the recorded traffic.",
    "budget": "Show in which layers the slow requests exceed a latency budget.",
    "trace": "Write recorded requests as a trace, for benchmark clients.",
    "cost": "Print the cost of serving: requests, recomputation, idle time and loading.",
    "outside": "Print the latency of endpoints in each region, measured by probes.",
    "caches": "Show which calls caches answered instead of the model, and the savings.",
    "slo": "Check objectives, generate rules, show their status, test notifications.",
    "mcp": "Let AI assistants query Tailspan, over the Model Context Protocol (MCP).",
    "config": "Show each engine's configuration, or the differences between two configurations.",
    "starts": "Show how long each engine took to start, in parts.",
    "gpus": "Show the state of each GPU, or send its samples to a collector.",
    "probe": "Measure the latency of endpoints from this machine, on a fixed schedule.",
    "dashboards": "Write Grafana dashboards as files, or push them to a Grafana.",
    "settings": "Show the settings of tailspan up, and the source of each setting.",
    "doctor": "Check each connection and the local GPUs, and print how to repair failures.",
    "simulate": "Simulate a vLLM fleet and send its telemetry to a collector.",
}
"""Maps each command to its line in `tailspan --help`. The lines are here because importing the
modules of all commands takes a second."""

INTERRUPTED: Final = 128 + SIGINT
"""The exit status after Ctrl-C, as in a shell."""
OUTPUT_CLOSED: Final = 128 + SIGPIPE
"""The exit status if the output was closed. A shell reports the same status. It must not be 0:
`tailspan doctor | head -1` may have a finding."""


class Commands(click.Group):
    """Imports a command only when it is used."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The names in the order of `--help`."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, or return None if it does not exist."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"cli.commands.{name}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest similar commands."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # the import takes time

            near = get_close_matches(args[0], COMMANDS)
            if not near:
                raise
            message = f"{error.message} Did you mean {' or '.join(near)}?"
            raise click.UsageError(message, ctx) from error

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
            # The program that reads the pipe, such as `| head`, has ended.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(OUTPUT_CLOSED)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)
        except StoreError as error:
            raise Unreachable(str(error)) from error
        return result


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tailspan", prog_name="tailspan")
def tailspan() -> None:
    """Record the latency of every vLLM request, explain slow requests, and check SLOs."""


def main() -> None:
    """The entry point."""
    pandas_import.prevent()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the terminal may lack Unicode
    tailspan.main(prog_name="tailspan")


if __name__ == "__main__":
    main()
