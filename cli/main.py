"""The `tailspan` command.

Exit status: 0 fine, 1 a finding that should stop a pipeline, 2 wrong usage or nothing to
reach.
"""

import os
import sys
from io import TextIOWrapper
from typing import Any

import click

from cli.collect import collect
from cli.config import config
from cli.cost import cost
from cli.dashboards import dashboards
from cli.doctor import doctor
from cli.explain import explain
from cli.gpus import gpus
from cli.requests import requests
from cli.simulate import simulate
from cli.slo import slo
from cli.stats import stats
from cli.ui import ui
from cli.unreachable import Unreachable
from cli.up import up
from store.errors import StoreError


class Verbs(click.Group):
    """A group whose verbs end quietly when nobody reads on, and say in a sentence what failed."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # `| head` has seen enough. What is still in the buffer goes nowhere, without a word.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except StoreError as error:
            raise Unreachable(str(error)) from error
        return result


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
def tailspan() -> None:
    """Why did the tail grow? Latency and SLOs of vLLM servers, request by request."""


for _verb in (
    up,
    collect,
    ui,
    requests,
    stats,
    explain,
    cost,
    slo,
    config,
    dashboards,
    gpus,
    doctor,
    simulate,
):
    tailspan.add_command(_verb)


def main() -> None:
    """Run the command; the entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Unicode
    tailspan.main(prog_name="tailspan")
