"""`tailspan what-if`."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from cli.options.prediction_storage import try_store_answer
from cli.options.question import open_selection, question_options
from cli.options.replay_question import replay_question, replaying
from cli.options.shared import block_size_option, objectives_option, prices_option

REFUSED: Final = 1
"""Exit status if there is no prediction."""


@click.command(
    "what-if",
    epilog="""\b
Examples:
  tailspan what-if --set max_num_seqs=64
  tailspan what-if --last 1h --set enable_prefix_caching=false --format json
  tailspan what-if --replicas 3 --router least_outstanding --rate 2x
  tailspan what-if --rate tenant=acme:0.5x --where tenant=umbrella
  tailspan what-if --sweep max_num_seqs=16..512
  tailspan what-if --find replicas --slo chat --rate 2x
  tailspan what-if --trace trace.jsonl --replicas 3
""",
)
@question_options
@click.option(
    "--set",
    "arguments",
    multiple=True,
    metavar="ARG=VALUE",
    help="Change an engine argument: max_num_seqs, max_num_batched_tokens, num_gpu_blocks,"
    " enable_prefix_caching, scheduling_policy, long_prefill_token_threshold,"
    " num_speculative_tokens, max_model_len, data_parallel_size, device, quantization (fp8, int8,"
    " int4). May be repeated.",
)
@click.option("--replicas", type=int, metavar="N", help="Serve the traffic with N equal replicas.")
@click.option(
    "--router",
    type=click.Choice(["round_robin", "least_outstanding", "prefix_aware"]),
    help="How requests are distributed over the replicas.  [default: as recorded; round_robin"
    " with --replicas]",
)
@click.option(
    "--rate",
    "rates",
    multiple=True,
    metavar="FACTOR",
    help=(
        "Multiply the request rate, as in 1.5x, or that of one tenant, as in tenant=acme:0.5x. May"
        " be repeated."
    ),
)
@click.option("--prompt", metavar="FACTOR", help="Multiply the prompt lengths, as in 2x.")
@click.option("--output", metavar="FACTOR", help="Multiply the answer lengths, as in 0.5x.")
@click.option(
    "--sweep",
    "swept",
    metavar="NAME=LOW..HIGH",
    help=(
        "Predict for several values of one argument: max_num_seqs, max_num_batched_tokens,"
        " num_gpu_blocks, long_prefill_token_threshold, num_speculative_tokens, max_model_len,"
        " replicas, rate, prompt, output. NAME=A,B,C lists the values."
    ),
)
@click.option(
    "--find",
    "wanted",
    type=click.Choice(["replicas", "rate"]),
    help="Find the fewest replicas or the highest rate that meets the objective in --slo.",
)
@click.option("--slo", metavar="NAME", help="The objective for --find.")
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Replay this file on the engines of the range: JSON lines of tailspan trace export, or"
    " a CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens.",
)
@block_size_option
@objectives_option
@prices_option
def what_if(
    form: str,
    arguments: Sequence[str],
    replicas: int | None,
    router: Any,
    rates: Sequence[str],
    prompt: str | None,
    output: str | None,
    swept: str | None,
    wanted: Any,
    slo: str | None,
    trace_file: Path | None,
    block_tokens: int,
    objectives: tuple[Path, ...],
    prices: Path | None,
    **options: Any,
) -> None:
    """Predict what a change would do to the recorded traffic.

    The command fits a model to each engine, and replays the requests of the range on it, without
    the change and with it. If the replay without the change differs too much from the measured
    latencies, there is no prediction. --where selects the requests to report; all are replayed.
    TTFT is that of streamed responses. The cost is that of all requests, with idle time.

    If the arguments of an engine changed in the range, the command uses only requests received at
    least 60 s after the change. The output states their number and the length of the remaining
    range.

    Each prediction has a 95 % interval. If the servers cannot keep up with the load, the queue
    grows until the range ends. The output then contains a warning, because the latencies depend on
    the length of the range.

    A prediction of engine arguments or replicas is stored, except with --where. After the deploy,
    tailspan compare compares it with the measured change. Later predictions state how many earlier
    intervals contained the measured change.

    A trace (--trace) has no measured latencies. If it has longer requests or a higher rate than the
    range, the output lists this.

    Exit status 1: the range cannot be replayed, the replay does not reproduce it, or --find finds
    no value.
    """
    from analysis.recorded_traffic import MAX_REQUESTS, NotReplayableError
    from analysis.trace_prediction import predict_trace
    from analysis.track_record import track_record
    from analysis.what_if import RESAMPLED, predict, read_for
    from analysis.what_if_search import find, sweep, sweep_of
    from cli.render import what_if as render
    from cli.render.what_if_trace import trace_json, trace_lines
    from replay.edits import EditError, edits_of
    from replay.trace_csv import TraceError
    from replay.trace_file import read_trace

    try:
        edits = edits_of(
            [
                *arguments,
                *([] if replicas is None else [f"replicas={replicas}"]),
                *([] if router is None else [f"router={router}"]),
                *(f"rate={each}" for each in rates),
                *([] if prompt is None else [f"prompt={prompt}"]),
                *([] if output is None else [f"output={output}"]),
            ]
        )
        over = None if swept is None else sweep_of(swept)
    except EditError as error:
        raise click.UsageError(str(error)) from error
    if over is not None and wanted is not None:
        raise click.UsageError("--sweep and --find exclude each other: use one of them")
    if (wanted is None) != (slo is None):
        raise click.UsageError("--find and --slo: set both, as in --find replicas --slo chat")
    if trace_file is not None and (over or wanted or options["where"]):
        raise click.UsageError("--trace excludes --sweep, --find and --where")
    if trace_file is not None and (named := [each for each in edits.rates if each.tenant]):
        raise click.UsageError(
            f"--rate tenant={named[0].tenant}: a trace has no tenants; allowed: --rate 2x"
        )
    if not (edits.listed() or over or wanted or trace_file):
        raise click.UsageError(
            "no change is set; allowed: --set, --replicas, --router, --rate, --prompt, --output,"
            " --sweep, --find, --trace"
        )
    try:
        trace = None if trace_file is None else read_trace(trace_file, block_tokens, MAX_REQUESTS)
    except TraceError as error:
        raise click.UsageError(f"--trace: {error}") from error
    selection = open_selection(**options)
    question = replay_question(selection, edits, objectives, prices)
    try:
        swept_name = None if over is None else over.name
        moves_requests = edits.pools or "replicas" in (wanted, swept_name) or trace is not None
        recorded = read_for(selection.engine, question, moves_requests)
        with replaying(RESAMPLED) as step:
            if trace is not None and trace_file is not None:
                about = predict_trace(recorded, question, trace, progress=step)
                refused = about.of_window.refused
                found = trace_json(about), trace_lines(about, trace_file.name)
            elif over is not None:
                points = sweep(recorded, question, over, progress=step)
                refused = points[0].answer.refused
                found = render.sweep_json(over.name, points), render.sweep_lines(over.name, points)
            elif wanted is not None and slo is not None:
                result = find(recorded, question, wanted, slo, step)
                refused = None if result.value else "not met"
                found = render.found_json(result), render.found_lines(result)
            else:
                answer = predict(recorded, question, progress=step)
                refused = answer.refused
                try_store_answer(selection, answer)
                record = track_record(selection.engine, time.time_ns())
                found = (
                    {**render.as_json(answer), "track_record": record and asdict(record)},
                    [*render.lines(answer), *([] if record is None else ["", record.sentence])],
                )
    except EditError as error:
        raise click.UsageError(str(error)) from error
    except NotReplayableError as error:
        if form == "json":
            click.echo(json.dumps({"refused": str(error), "edits": edits.listed()}))
        else:
            click.echo(f"No prediction: {error}")
        click.get_current_context().exit(REFUSED)
    if form == "json":
        click.echo(json.dumps(found[0], allow_nan=False))
    else:
        click.echo("\n".join(found[1]))
    if refused is not None:
        click.get_current_context().exit(REFUSED)
