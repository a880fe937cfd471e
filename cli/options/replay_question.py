"""Builds what `tailspan what-if` and `tailspan advise` predict, and shows the progress of
replays."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options.price_files import prices_of
from cli.options.question import Selection

if TYPE_CHECKING:
    from analysis.what_if import WhatIfQuestion
    from replay.edits import Edits


def replay_question(
    selection: Selection, edits: "Edits", objectives: Sequence[Path], prices: Path | None
) -> "WhatIfQuestion":
    """Build a replay's input from the options. `prices_of` describes the argument `prices`.

    Raises:
        click.UsageError: the objectives or the prices cannot be read.
    """
    from alerts.errors import AlertsError
    from alerts.openslo.reader import OBJECTIVES, load
    from analysis.access.evidence import thresholds_for
    from analysis.cost import engines_usd_per_hour
    from analysis.what_if import WhatIfQuestion

    try:
        known = load(objectives or [OBJECTIVES]).objectives
    except (AlertsError, FileNotFoundError) as error:
        raise click.UsageError(f"--objectives: {error}") from error
    usd = engines_usd_per_hour(selection.engine, selection.window, prices_of(prices))
    compared = thresholds_for(selection.engine, known)
    return WhatIfQuestion(selection.window, edits, selection.equals, compared, usd)


def print_compiling() -> None:
    """Print at a terminal that the replay is being compiled."""
    if sys.stderr.isatty():
        click.echo("Compiling the replay (only once after an upgrade): about 15 s …", err=True)


@contextmanager
def replay_progress(length: int) -> Iterator[Callable[[], None]]:
    """Yield the function that advances a progress bar on a terminal."""
    with click.progressbar(
        length=length, label="Replaying", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        yield lambda: bar.update(1)


@contextmanager
def replaying(length: int) -> Iterator[Callable[[], None]]:
    """Compile the replay, and yield the function that advances the progress bar."""
    from replay.loop import warm

    warm(print_compiling)
    with replay_progress(length) as step:
        yield step
