"""`tailspan explain`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from click.core import ParameterSource

from alerts.openslo.reader import OBJECTIVES
from analysis.counterfactual.replay_process import replayed
from analysis.counterfactual.shares import replays
from analysis.explain import ExplainAnswer, explain_window
from analysis.joined.explain import explain_joined, joined_explanation_json, with_pools
from analysis.requests import count_requests
from cli.commands import explain_incident, explain_request
from cli.commands.explain_incident import incident_explained, objectives_at, verdict_lines
from cli.options import time_range
from cli.options.question import Selection, nothing_found, open_selection, question_options, silence
from cli.options.replay_question import print_compiling, replay_progress
from cli.options.shared import objectives_option
from cli.render import text
from cli.render.explanation import compared_with, of_answer
from cli.render.joined import explanation_lines
from diagnosis.explanation import Explanation, ExplanationVerdict
from diagnosis.explanation_json import as_json
from diagnosis.question import Metric, Span
from telemetry.window import Window

FOUND = 1
"""Exit status if the latency has grown."""

_OF_A_WINDOW = {
    "last": "--last",
    "start": "--from",
    "end": "--to",
    "request_id": "--request",
}


@click.command(
    epilog="""\b
Examples:
  tailspan explain
  tailspan explain --last 1h --metric tpot --where model=llama-3-8b
  tailspan explain --last 6h --fast
  tailspan explain --last 1h --baseline 7d
  tailspan explain --from 2026-11-20T10:00Z --to 2026-11-20T10:30Z \\
      --baseline 2026-11-20T09:00Z/2026-11-20T10:00Z --format json
  tailspan explain --incident chat
  tailspan explain --incident chat@2026-11-20T10:05Z --metric tpot
  tailspan explain --incident chat --baseline 7d --where tenant=globex
  tailspan explain --request chatcmpl-8f14e45f
"""
)
@question_options
@click.option(
    "--metric",
    type=click.Choice([metric.value for metric in Metric]),
    default=Metric.TTFT.value,
    show_default=True,
    help=(
        "The latency to explain. Default for an incident: the latency with the most requests that"
        " missed the SLO."
    ),
)
@click.option(
    "--baseline",
    metavar="FROM/TO|AGO",
    help="The range to compare with: FROM/TO, or a duration. 24h is the same time on the day"
    " before; 7d is the same time a week before.  [default: the previous range of the same length,"
    " or the range before an open incident]",
)
@click.option(
    "--incident",
    metavar="SLO[@TIME]",
    help="Explain the newest incident of an objective, or the incident at TIME.",
)
@objectives_option
@click.option(
    "--by-size",
    is_flag=True,
    help="Ignore the objectives: detect an incident by how much the latency grew.",
)
@click.option(
    "--fast",
    is_flag=True,
    help="Do not replay the window. The shares are then estimates.",
)
@click.option(
    "--request",
    "request_id",
    metavar="ID",
    help=(
        "Explain one request of the whole database: the parts of its latency, and the requests that"
        " delayed it. ID is a request id, a trace id, or TRACE/SPAN."
    ),
)
def explain(
    form: str,
    metric: str,
    baseline: str | None,
    incident: str | None,
    objectives: tuple[Path, ...],
    by_size: bool,
    fast: bool,
    request_id: str | None,
    **options: Any,
) -> None:
    """Explain why a latency grew.

    A latency has grown if significantly more requests miss an objective than before. Without
    an objective for this latency, it has grown when the slowest requests became significantly
    slower.

    The slowest 1 % of the window (more if there are few requests) are compared with the slowest of
    the baseline, and the added time is divided among causes. Each cause has a share, the evidence
    in numbers, and an action.

    The shares come from replays of the window on a model of each engine, with and without each
    cause. If a replay does not reproduce the growth, shares are estimates from the plugin's record
    of engine steps, printed as "probably most" or "a part".

    If prefill and decode are on different servers, the output begins with the phases of the joined
    requests and the causes in each pool, whose shares are estimates.

    --incident prints the explanation that Tailspan stored for the incident. With --fast, --baseline
    or --where, the command computes a new one. With TAILSPAN_EXPLORER_URL, --request also prints a
    link.

    Exit status 1: the latency has grown. Exit status 0: it has not grown, or there are too few
    requests.
    """
    _refuse_together(incident)
    if by_size and (incident is not None or _is_on_command_line("objectives")):
        raise click.UsageError("--by-size ignores the objectives; omit --incident and --objectives")
    selection = open_selection(**options)
    if incident is not None:
        chosen = Metric(metric) if _is_on_command_line("metric") else None
        why = incident_explained(
            selection.engine,
            incident,
            objectives or (OBJECTIVES,),
            chosen,
            selection.equals,
            lambda window: _baseline(baseline, window),
            stored=not fast,
        )
        if not fast:
            why = why.with_shares(lambda explanation: _replayed(explanation, selection))
        about = {
            "incident": explain_incident.as_json(why.incident),
            "verdict_sentence": why.verdict.sentence,
            "stored": explain_incident.stored_as_json(why.stored),
        }
        lines = [explain_incident.incident_line(why.incident), *verdict_lines(why)]
        stored = why.stored is not None and why.stored.explained(why.explanation.question)
        _print_answer(
            ExplainAnswer(why.explanation), form, selection, lines, about, with_joined=not stored
        )
    elif request_id is not None:
        click.echo(explain_request.request_text(selection.engine, request_id, form))
    else:
        window = Span(selection.window.from_unix_ns, selection.window.to_unix_ns)
        answer = explain_window(
            selection.engine,
            Metric(metric),
            window,
            selection.equals,
            () if by_size else objectives_at(objectives or (OBJECTIVES,)),
            _baseline(baseline, window),
        )
        if not fast:
            answer = replace(answer, explanation=_replayed(answer.explanation, selection))
        _print_answer(answer, form, selection)


def _print_answer(
    answer: ExplainAnswer,
    form: str,
    selection: Selection,
    lines: Sequence[str] = (),
    about: Mapping[str, Any] = MappingProxyType({}),
    *,
    with_joined: bool = True,
) -> None:
    explained = answer.explanation.question
    joined = explain_joined(selection.engine, explained) if with_joined else None
    if joined is not None:
        answer = replace(answer, explanation=with_pools(answer.explanation, joined.pools))
    explanation = answer.explanation
    if form == "json":
        incidents = [explain_incident.as_json(row) for row in answer.incidents]
        extra: dict[str, Any] = {}
        if not about:
            extra = {"incidents": incidents, "compared_with": compared_with(answer)}
        if joined is not None:
            extra["joined"] = joined_explanation_json(joined)
        click.echo(json.dumps({**about, **as_json(explanation), **extra}, allow_nan=False))
    else:
        if silent := silence(selection.engine, explanation.question.window.to_unix_ns):
            click.echo(silent)
        for each in lines:
            click.echo(each)
        if joined is not None:
            click.echo("\n".join(explanation_lines(joined, explanation.question.metric)))
        if explanation.requests or lines or _has_requests(selection):
            click.echo("\n".join(of_answer(answer)))
        else:
            click.echo(nothing_found(selection), err=True)
    if explanation.verdict is ExplanationVerdict.INCIDENT:
        click.get_current_context().exit(FOUND)


def _has_requests(selection: Selection) -> bool:
    return count_requests(selection.engine, selection.window, selection.equals) > 0


def _replayed(explanation: Explanation, selection: Selection) -> Explanation:
    if explanation.verdict is not ExplanationVerdict.INCIDENT:
        return explanation
    with replay_progress(replays(max(len(explanation.causes), 1))) as step:
        return replayed(selection.engine, explanation, step, print_compiling)


def _refuse_together(incident: str | None) -> None:
    for name, option in _OF_A_WINDOW.items():
        if incident is not None and _is_on_command_line(name):
            raise click.UsageError(f"--incident and {option} exclude each other: use one of them")


def _is_on_command_line(parameter: str) -> bool:
    source = click.get_current_context().get_parameter_source(parameter)
    return source is ParameterSource.COMMANDLINE


def _baseline(given: str | None, window: Span) -> Span | None:
    if given is None:
        return None
    explained = Window(window.from_unix_ns, window.to_unix_ns)
    try:
        found = time_range.baseline(given, explained)
    except ValueError as error:
        raise click.UsageError(f"--baseline {given!r}: {error}") from error
    if found.from_unix_ns < window.to_unix_ns and window.from_unix_ns < found.to_unix_ns:
        raise click.UsageError(f"--baseline {given!r} overlaps the window, {text.span(explained)}")
    return Span(found.from_unix_ns, found.to_unix_ns)
