"""`tailspan trace`."""

import json
from pathlib import Path
from typing import Any, Final, Literal

import click

from cli.options.question import nothing_found, open_selection, where_option
from cli.options.settings import config_option
from cli.options.shared import block_size_option, database_option, format_option, time_options
from cli.render import text
from cli.render.whole_file import whole_file

NOTHING: Final = 1
"""Exit status if there is no request. No file is written then."""
_WITHOUT_PREFIXES: Final = {
    "unshared": "hash_ids: no two prompts share a block, because shared prefixes are not recorded",
    None: "no hash_ids: shared prefixes are not recorded. For clients that require hash_ids, add"
    " --hash-ids unshared.",
}
"""Maps the state of shared prefixes to a note. The note for None is printed if the trace has no
`hash_ids`."""


@click.group(
    epilog="""\b
Examples:
  tailspan trace export --last 1h --output trace.jsonl
  tailspan what-if --trace trace.jsonl
"""
)
def trace() -> None:
    """Write recorded requests as a trace, for benchmark clients and other simulators.

    `tailspan what-if --trace FILE` reads a trace.
    """


@trace.command(
    epilog="""\b
Examples:
  tailspan trace export --last 1h --output trace.jsonl
  tailspan trace export --where tenant=acme --hash-ids unshared > acme.jsonl
  tailspan trace export --from 2026-11-20T10:00:00Z --to 2026-11-20T10:15:00Z --block-size 16
"""
)
@config_option
@database_option
@where_option
@time_options
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default="-",
    metavar="FILE",
    help="The file to write, or - for standard output.  [default: -]",
)
@block_size_option
@click.option(
    "--hash-ids",
    type=click.Choice(["recorded", "unshared"]),
    default="recorded",
    show_default=True,
    help="What to write for a prompt whose shared prefixes were not recorded: no hash_ids"
    " (recorded), or numbers that no other prompt has (unshared). vLLM's timed_trace, guidellm's"
    " mooncake and Dynamo's replay require hash_ids.",
)
@format_option("The notes on standard error: text, or one JSON object.")
def export(
    form: str,
    output: Path,
    block_tokens: int,
    hash_ids: Literal["recorded", "unshared"],
    **options: Any,
) -> None:
    """Write the requests of a time range as lines of JSON, in Mooncake's format.

    Each line has timestamp (milliseconds since the start of the range), input_length and
    output_length (tokens). hash_ids has one number for each block of the prompt. The trace contains
    no prompt, answer, tenant, model or request id.

    Requests without prompt or answer tokens, such as rejected ones, are left out. An incomplete
    file is never visible under this name. Notes go to standard error.

    Exit status 1: there is no request, and no file is written.
    """
    from analysis.trace_export import exported_parts
    from replay.mooncake import MooncakeWriter

    selection = open_selection(**options)
    writer = MooncakeWriter(block_tokens, unshared=hash_ids == "unshared")
    written = left_out = 0
    shared, without_ladder = False, 0
    with whole_file("--output", None if str(output) == "-" else output) as file:
        try:
            for part in exported_parts(selection.engine, selection.window, selection.equals):
                file.writelines(f"{line}\n" for line in writer.lines(part.arrivals))
                written += len(part.arrivals)
                left_out += part.left_out
                without_ladder += part.without_ladder
                shared = shared or part.arrivals.prefixes is not None
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        if not written:
            note = _left_out(left_out) if left_out else nothing_found(selection)
            click.echo(_json(0, left_out, None) if form == "json" else note, err=True)
            click.get_current_context().exit(NOTHING)
    kind = "recorded" if shared else "unshared" if hash_ids == "unshared" else None
    if form == "json":
        click.echo(_json(written, left_out, kind), err=True)
        return
    click.echo(f"{written:,} requests received {text.span(selection.window)}", err=True)
    if left_out:
        click.echo(_left_out(left_out), err=True)
    if kind == "recorded" and without_ladder:
        click.echo(
            f"hash_ids: {without_ladder:,} prompts without recorded prefixes share no block",
            err=True,
        )
    elif kind != "recorded":
        click.echo(_WITHOUT_PREFIXES[kind], err=True)


def _left_out(number: int) -> str:
    return f"{number:,} requests left out: without prompt or answer tokens"


def _json(written: int, left_out: int, hash_ids: str | None) -> str:
    return json.dumps({"requests": written, "left_out": left_out, "hash_ids": hash_ids})
