"""`tailspan requests`."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import click
import pyarrow as pa

from analysis.requests import COLUMNS, RequestsQuestion, answer_requests, count_requests
from analysis.stored_data import is_simulated
from cli.commands import joined_requests
from cli.options.numbers import WholeRange
from cli.options.question import Selection, nothing_found, open_selection, question_options, silence
from cli.render import text
from telemetry import time_text

STARTED_AT = "started_at"
NETWORK = "network_s"
KEYS = (
    *(STARTED_AT if name == "received_unix_ns" else name for name in COLUMNS),
    NETWORK,
)
"""The keys of the JSON. They are every field of a request, and computed values. Users depend on
them."""

SORTABLE = tuple(key for key in KEYS if key != NETWORK)
"""The keys by which rows can be sorted. `network_s` is not included, because it is computed only
for the printed rows."""

TEXT_LIMIT = 20

_LABELS = ("request_id", "model", "lora", "route", "tenant", "region", "replica", "outcome")
_DURATIONS = {
    "queue_s": "queue",
    "prefill_s": "prefill",
    "decode_s": "decode",
    "ttft_s": "TTFT",
    "first_content_s": "content",
    "tpot_s": "TPOT",
    "e2e_s": "E2E",
}
_COUNTS = {"prompt_tokens": "prompt", "output_tokens": "output"}


@click.command(
    epilog="""\b
Examples:
  tailspan requests
  tailspan requests --last 1h --sort -e2e_s --limit 10
  tailspan requests --where tenant=acme --where outcome=abort
  tailspan requests --where tenant=tailspan-probe --format json
  tailspan requests --joined --sort -ttft_s
  tailspan requests --from 2026-11-20T10:00:00Z --to 2026-11-20T10:05:00Z --format json
"""
)
@question_options
@click.option(
    "--limit",
    type=WholeRange(1, 2**31 - 1),
    metavar="N",
    help=f"At most N requests.  [default: {TEXT_LIMIT} as text, all as JSON]",
)
@click.option(
    "--sort",
    default=f"-{STARTED_AT}",
    show_default=True,
    metavar="KEY",
    help="Any key of the JSON except network_s. A - before the key sorts in descending order."
    " Unknown values come last.",
)
@click.option(
    "--joined",
    is_flag=True,
    help="Join the rows of prefill and decode engines, and print each user request once, with its"
    " phases from the router or client to the last byte.",
)
def requests(form: str, limit: int | None, sort: str, joined: bool, **options: Any) -> None:
    """Print requests, with their phases and outcomes.

    The JSON has one object per line. started_at is in unix seconds, and unknown values are null.
    network_s is the client's duration minus the server's, if a client's span or a probe reports the
    same request. If several sources report a request, only the most detailed report is printed: the
    plugin's (instrumentation), else vLLM's span (native), else the client's. Requests of `tailspan
    probe` need --where tenant=tailspan-probe.

    With --joined, --where selects a request if the row of at least one of its engines matches.
    """
    order_by = joined_requests.order_of(sort) if joined else _order_by(sort)
    selection = open_selection(**options)
    if limit is None and form == "text":
        limit = TEXT_LIMIT
    if joined:
        joined_requests.print_joined(selection, form, limit, order_by)
        return
    try:
        answer = answer_requests(
            selection.engine,
            RequestsQuestion(
                selection.window, selection.equals, order_by, limit, network=form == "json"
            ),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not answer.rows.num_rows:
        click.echo(nothing_found(selection), err=True)
    elif form == "json":
        _print_json(answer.rows, answer.network_s)
    else:
        _print_text(answer.rows, selection, sort)


def _order_by(sort: str) -> str:
    key = sort.removeprefix("-")
    if key not in SORTABLE:
        raise click.UsageError(
            f"--sort {sort!r}: unknown key {key!r}; allowed: {', '.join(SORTABLE)}"
        )
    return sort.replace(STARTED_AT, "received_unix_ns")


def _print_json(found: pa.Table, network_s: Sequence[float | None]) -> None:
    through = iter(network_s)
    for batch in found.to_batches(max_chunksize=1_000):
        lines = []
        for row in batch.to_pylist():
            row |= {STARTED_AT: row["received_unix_ns"] / 1e9, NETWORK: next(through)}
            lines.append(json.dumps({key: row[key] for key in KEYS}, allow_nan=False))
        sys.stdout.write("\n".join(lines) + "\n")


def _print_text(found: pa.Table, selection: Selection, sort: str) -> None:
    total = count_requests(selection.engine, selection.window, selection.equals)
    order = "newest first" if sort == f"-{STARTED_AT}" else f"sorted by {sort}"
    if silent := silence(selection.engine, selection.window.to_unix_ns):
        click.echo(silent)
    click.echo(f"Requests received {text.span(selection.window)}")
    click.echo(f"{found.num_rows:,} of {total:,}, {order}")
    if is_simulated(selection.engine, selection.window):
        click.echo("simulated data")
    click.echo()
    rows = [
        [
            time_text.moment(row["received_unix_ns"]),
            *(text.label(row[key]) for key in _LABELS),
            *(text.seconds(row[key]) for key in _DURATIONS),
            *(text.count(row[key]) for key in _COUNTS),
            text.usd(row["cost_usd"]),
        ]
        for row in found.to_pylist()
    ]
    header = ["received (UTC)", *_LABELS, *_DURATIONS.values(), *_COUNTS.values(), "cost"]
    for line in text.table(header, rows, left=1 + len(_LABELS)):
        click.echo(line)
