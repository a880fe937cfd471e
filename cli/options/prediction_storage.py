"""Store a prediction of `tailspan what-if`."""

import time
from typing import TYPE_CHECKING, Final

import click

from cli.options.question import Selection
from telemetry.store_errors import StoreError

if TYPE_CHECKING:
    from analysis.what_if import WhatIfAnswer

READS_ONLY: Final = "reads only"
"""The value of click's `Context.obj` with which the API and MCP forbid the command to write."""


def try_store_answer(selection: Selection, answer: "WhatIfAnswer") -> None:
    """Store a prediction, unless the command must not write. If storing fails, print the reason."""
    from analysis.stored_predictions import store_answer

    if click.get_current_context().obj == READS_ONLY:
        return
    try:
        store_answer(selection.engine, answer, selection.equals, time.time_ns())
    except StoreError as error:
        click.echo(f"The prediction was not stored: {error}", err=True)
