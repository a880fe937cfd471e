"""`tailspan what-if`: predict the effect of a change on the recorded traffic."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cli.options.price_files import prices_of
from cli.options.question import ask, question_options
from cli.options.shared import objectives_option, prices_option
from cli.render import text

if TYPE_CHECKING:
    from analysis.what_if import Predicted, WhatIfAnswer

REFUSED: Final = 1
"""Exit status if there is no prediction, because the replay does not reproduce the window."""


@click.command(
    "what-if",
    epilog="""\b
Examples:
  tailspan what-if --set max_num_seqs=64
  tailspan what-if --last 1h --set enable_prefix_caching=false --format json
  tailspan what-if --replicas 3 --router least_outstanding --rate 2x
  tailspan what-if --rate tenant=acme:0.5x --where tenant=umbrella
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
    " num_speculative_tokens, max_model_len. May be repeated.",
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
    help="Multiply the request rate, as in 1.5x, or the request rate of one tenant, as in"
    " tenant=acme:0.5x. May be repeated.",
)
@click.option("--prompt", metavar="FACTOR", help="Multiply the prompt lengths, as in 2x.")
@click.option("--output", metavar="FACTOR", help="Multiply the answer lengths, as in 0.5x.")
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
    objectives: tuple[Path, ...],
    prices: Path | None,
    **asked: Any,
) -> None:
    """Predict what a change would do to the recorded traffic.

    The command replays the requests of the range on a model of each engine, once unchanged and once
    with the edits. Each model is fitted to the engine's own samples. The command compares the
    unchanged replay with the measured latencies, and prints the error. If the error is too large,
    there is no prediction. --where selects the requests to report. All requests are replayed.

    Each prediction has a 95 % interval. If the edited servers cannot keep up with the load, the
    output has a warning, because the latencies then depend on how long the load lasts.

    Exit status 1: the range cannot be replayed, or the replay does not reproduce it.
    """
    from alerts.errors import AlertsError
    from alerts.openslo.reader import OBJECTIVES, load
    from analysis.cost import CostQuestion, answer_cost
    from analysis.recorded_traffic import NotReplayableError
    from analysis.what_if import RESAMPLED, WhatIfQuestion, answer_what_if
    from replay.edits import EditError, Edits, factor_of, rate_of

    try:
        edits = Edits(
            arguments=_arguments(arguments),
            replicas=replicas,
            router=router,
            rates=[rate_of("--rate", each) for each in rates],
            prompt=factor_of("--prompt", prompt or "1x"),
            output=factor_of("--output", output or "1x"),
        )
    except EditError as error:
        raise click.UsageError(str(error)) from error
    if not edits.listed():
        raise click.UsageError(
            "no change is set; allowed: --set, --replicas, --router, --rate, --prompt, --output"
        )
    question = ask(**asked)
    try:
        known = load(objectives or [OBJECTIVES]).objectives
    except (AlertsError, FileNotFoundError) as error:
        raise click.UsageError(f"--objectives: {error}") from error
    bill = answer_cost(question.engine, CostQuestion(question.window, prices_of(prices))).bill
    asked_about = WhatIfQuestion(
        question.window,
        edits,
        question.equals,
        known,
        None if bill.unpriced or bill.total is None else bill.usd_per_hour,
    )
    try:
        # The first replay after an installation compiles the loop, which takes about 15 s.
        with click.progressbar(
            length=RESAMPLED, label="Replaying", file=sys.stderr, hidden=not sys.stderr.isatty()
        ) as bar:
            answer = answer_what_if(question.engine, asked_about, lambda: bar.update(1))
    except EditError as error:
        raise click.UsageError(str(error)) from error
    except NotReplayableError as error:
        if form == "json":
            click.echo(json.dumps({"refused": str(error), "edits": edits.listed()}))
        else:
            click.echo(f"No prediction: {error}")
        click.get_current_context().exit(REFUSED)
    if form == "json":
        click.echo(json.dumps(as_json(answer), allow_nan=False))
    else:
        for line in lines(answer):
            click.echo(line)
    if answer.refused is not None:
        click.get_current_context().exit(REFUSED)


def _arguments(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in given:
        name, is_, value = each.partition("=")
        if not is_ or not value:
            raise click.UsageError(f"--set {each!r}: must be ARG=VALUE, as in max_num_seqs=64")
        found[name] = value
    return found


def as_json(answer: "WhatIfAnswer") -> dict[str, Any]:
    """Return the prediction as one JSON object, with null for unknown values."""
    predicted: dict[str, Any] = {
        name: {point: each._asdict() for point, each in points.items()}
        for name, points in answer.predicted.items()
    }
    if answer.refused is None:
        predicted |= {
            "throughput_rps": answer.predicted_rps,
            "usd_per_hour": answer.predicted_usd_per_hour,
            "rejected": answer.rejected,
        }
    return {
        "window": {
            "from": answer.window.from_unix_ns / 1e9,
            "to": answer.window.to_unix_ns / 1e9,
        },
        "requests": answer.requests,
        "simulated": answer.simulated,
        "left_out": dict(answer.left_out),
        "reproduced": {
            name: {
                point: {**each._asdict(), "error_ratio": each.error_ratio}
                for point, each in points.items()
            }
            for name, points in answer.reproduced.items()
        },
        "refused": answer.refused,
        "edits": list(answer.edits),
        "now": {
            **answer.now,
            "throughput_rps": answer.throughput_rps,
            "usd_per_hour": answer.usd_per_hour,
        },
        "predicted": predicted or None,
        "objectives": [
            {
                "slo": each.slo,
                "good_ratio_now": each.good_ratio_now,
                "good_ratio": each.good_ratio.value,
                "low": each.good_ratio.low,
                "high": each.good_ratio.high,
            }
            for each in answer.objectives
        ],
        "binds": answer.binds,
        "binds_now": answer.binds_now,
        "saturated": answer.saturated,
        "extrapolated": list(answer.extrapolated),
    }


_TITLES: Final[Mapping[str, str]] = {
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "itl_max_s": "ITL max",
    "e2e_s": "E2E",
    "queue_s": "queue",
}
_BINDS: Final[Mapping[str, str]] = {
    "seats": "max_num_seqs",
    "kv": "KV blocks",
    "tokens": "max_num_batched_tokens",
}
_SHOWN: Final = ("p50", "p99")


def lines(answer: "WhatIfAnswer") -> list[str]:
    """Return the prediction as text."""
    found = [
        f"What if {', '.join(answer.edits)}?",
        f"{answer.requests:,} requests received {text.span(answer.window)}",
    ]
    if answer.simulated:
        found.append("simulated data")
    found += [f"{number:,} requests left out: {why}" for why, number in answer.left_out.items()]
    if answer.refused is not None:
        found += ["", f"No prediction: {answer.refused}."]
    elif answer.saturated:
        found += [
            "",
            "SATURATED: the engines cannot keep up with this load. The queue grows for as long as"
            " the load lasts. The predicted latencies are valid only for a range of this length.",
        ]
    header = ["latency", "", "measured", "replayed", "error"]
    if answer.refused is None:
        header += ["predicted", "95 % interval"]
    rows = []
    for name, title in _TITLES.items():
        for point in _SHOWN:
            each = answer.reproduced[name][point]
            error = each.error_ratio
            row = [
                title,
                point.upper(),
                text.seconds(each.measured),
                text.seconds(each.replayed),
                text.UNKNOWN if error is None else f"{error:+.1%}",
            ]
            if answer.refused is None:
                row += _predicted(answer.predicted[name][point])
            rows.append(row)
    found += ["", *text.table(header, rows, left=2, keep=len(header))]
    if answer.refused is not None:
        return found
    found.append("")
    found += [
        f"SLO {each.slo}: {each.good_ratio_now:.2%} good now,"
        f" {_share(each.good_ratio.value)} predicted"
        f" [{_share(each.good_ratio.low)}, {_share(each.good_ratio.high)}]"
        for each in answer.objectives
    ]
    if answer.rejected:
        found.append(
            f"{answer.rejected:,} requests would be rejected, because they are longer than"
            " max_model_len, or because the queue is full."
        )
    if answer.usd_per_hour is not None:
        now, then = answer.usd_per_hour, answer.predicted_usd_per_hour
        found.append(f"cost: {text.usd(now)}/h now, {text.usd(then)}/h predicted")
    found.append(f"requests wait for: {_binding(answer.binds)} (now: {_binding(answer.binds_now)})")
    found += [f"assumed: {each}" for each in answer.extrapolated]
    return found


def _predicted(each: "Predicted") -> list[str]:
    if each.low is None or each.high is None:
        return [text.seconds(each.value), text.UNKNOWN]
    return [text.seconds(each.value), f"{text.seconds(each.low)} to {text.seconds(each.high)}"]


def _share(value: float | None) -> str:
    return text.UNKNOWN if value is None else f"{value:.2%}"


def _binding(binds: str) -> str:
    return _BINDS.get(binds, "nothing; the queue is empty")
