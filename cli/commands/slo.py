"""`tailspan slo`."""

import json
import re
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import click
import yaml

from alerts.blindness import REASONS
from alerts.burnrate import State
from alerts.errors import AlertsError, DocumentError, ExpressionError
from alerts.evaluation.counting import by_second
from alerts.evaluation.status import ObjectiveStatus
from alerts.objectives import GoodEvents
from alerts.openslo.reader import OBJECTIVES, inspect, load
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules, vllm_rules
from alerts.prometheus.selectors import read_selector
from analysis.access.visible_objectives import visible_objectives
from analysis.database import open_to_read
from analysis.slo_incidents import slo_incidents
from analysis.slo_states import objective_status
from analysis.staleness import silence_s
from analysis.stored_data import stored_data
from cli.checks import hung_engines, promtool
from cli.commands.slo_notify import notify
from cli.options import time_range
from cli.options.question import silence
from cli.options.settings import config_option
from cli.options.shared import database_option, format_option, state_url
from cli.render import text
from cli.render.notifications import as_json as notification_json
from cli.render.notifications import print_undelivered
from telemetry import durations, time_text
from telemetry.incidents import IncidentRow

INCIDENTS: Final = 5


class _Objectives(click.Argument):
    """Files and folders of objectives. The default is the setting --objectives."""

    key = "objectives"


_paths = click.argument(
    "paths",
    cls=_Objectives,
    nargs=-1,
    type=click.Path(path_type=Path),
    envvar="TAILSPAN_OBJECTIVES",
    metavar="[PATH]...",
)
_form = format_option("Text, or one JSON object per line.")


@click.group(
    epilog="""\b
Examples:
  tailspan slo check objectives/
  tailspan slo rules > tailspan-rules.yaml
  tailspan slo status
  tailspan slo notify notify.yaml --test
"""
)
def slo() -> None:
    """Check objectives, print their rules and their status, test notifications."""


@slo.command(
    epilog="""\b
Examples:
  tailspan slo check
  tailspan slo check objectives/ team/chat.yaml --format json
"""
)
@_paths
@_form
@config_option
def check(paths: Sequence[Path], form: str) -> None:
    """Check OpenSLO files and folders, by default the built-in objectives.

    If promtool is installed, it also checks the generated rules.

    Exit status 1: there is an error.
    """
    findings = _reading(inspect, paths)
    objectives = findings.spec.objectives
    wrong = (*findings.errors, *promtool.refused(objectives))
    if form == "json":
        for error in wrong:
            click.echo(json.dumps(_error_as_json(error)))
    else:
        for note in findings.spec.notes:
            click.echo(f"note: {note}", err=True)
        for error in wrong:
            click.echo(str(error))
        click.echo(
            f"{_counted(len(objectives), 'objective')}, {_counted(len(wrong), 'finding')}", err=True
        )
    if wrong:
        click.get_current_context().exit(1)


def _error_as_json(error: AlertsError) -> dict[str, Any]:
    if isinstance(error, DocumentError):
        return {
            "file": error.file,
            "line": error.line,
            "key": error.key or None,
            "problem": error.problem,
        }
    return {"file": None, "line": None, "key": None, "problem": str(error)}


@slo.command(
    epilog="""\b
Examples:
  tailspan slo rules > tailspan-rules.yaml
  tailspan slo rules objectives/ --explorer-url https://tailspan.example.org
  tailspan slo rules ttft.yaml --for vllm
  tailspan slo rules --selector 'env="prod"'
"""
)
@_paths
@click.option(
    "--for",
    "source",
    type=click.Choice(["tailspan", "vllm"]),
    default="tailspan",
    show_default=True,
    help=(
        "The target that Prometheus scrapes. For vLLM, each threshold must be a bucket bound of"
        " vLLM's histograms; Tailspan counts exactly."
    ),
)
@click.option(
    "--explorer-url",
    default=EXPLORER_URL,
    show_default=True,
    metavar="URL",
    help="Address of the explorer for the links in alerts.",
)
@click.option(
    "--selector",
    metavar="MATCHERS",
    help="Count only series with these labels, for a Prometheus of several environments:"
    " 'env=\"prod\"'. Objectives with their own queries are not changed.",
)
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file."
)
@format_option("YAML, or JSON, which Prometheus also reads.")
@config_option
def rules(
    paths: Sequence[Path],
    form: str,
    source: str,
    explorer_url: str,
    selector: str | None,
    output: Path | None,
) -> None:
    """Print Prometheus recording and alerting rules for objectives.

    Exit status 1: an objective cannot be converted to rules.
    """
    if not explorer_url.startswith(("http://", "https://")):
        raise click.UsageError(
            f"--explorer-url {explorer_url!r}: must begin with http:// or https://"
        )
    make = {"tailspan": tailspan_rules, "vllm": vllm_rules}[source]
    try:
        matchers = "" if selector is None else read_selector(selector)
    except ExpressionError as error:
        raise click.UsageError(f"--selector {error}") from error
    try:
        made = make(_reading(load, paths).objectives, explorer_url, matchers)
    except AlertsError as error:
        raise click.ClickException(str(error)) from error
    if form == "json":
        made = f"{_json_for_prometheus(yaml.safe_load(made))}\n"
    if output is None:
        click.echo(made, nl=False)
    else:
        try:
            output.write_text(made, encoding="utf-8")
        except OSError as error:
            raise click.UsageError(f"--output {output}: {error.strerror}") from error


def _json_for_prometheus(rules: Any) -> str:
    """The rules as JSON that Prometheus reads as YAML.

    YAML has no escapes of surrogates, so characters above U+FFFF are not escaped.
    """
    written = json.dumps(rules, ensure_ascii=False)
    return re.sub(r"[\x7f-\uffff]", lambda found: f"\\u{ord(found[0]):04x}", written)


@slo.command(
    epilog="""\b
Examples:
  tailspan slo status
  tailspan slo status objectives/ --format json
"""
)
@_paths
@_form
@click.option(
    "--at",
    metavar="TIME",
    help="Time of the status, not in the future: unix seconds, or ISO 8601.  [default: now]",
)
@database_option
@config_option
def status(paths: Sequence[Path], form: str, at: str | None, database: str | None) -> None:
    """Print the remaining error budget, the burn rate and the time until the budget is spent.

    They are computed from the stored requests. For time without data, Tailspan assumes good
    requests at the mean rate of the time with data.

    Exit status 1: an alert of severity "page" fires, or a server hangs.
    """
    now = time.time_ns()
    try:
        at_s = (now if at is None else time_range.instant_ns(at)) // 10**9
    except ValueError as error:
        raise click.UsageError(f"--at {error}") from error
    if at_s > now // 10**9:
        raise click.UsageError(
            f"--at {at!r} is in the future; allowed: times up to now, {time_text.moment(now)} UTC"
        )
    try:
        objectives = _reading(load, paths).objectives
    except AlertsError as error:
        raise click.UsageError(str(error)) from error
    engine = open_to_read(database, state_url())
    click.get_current_context().call_on_close(engine.dispose)
    newest = stored_data(engine).newest_unix_ns
    silent = silence_s(newest, now if at is None else at_s * 10**9, now)
    if form == "text" and (silent_line := silence(engine, now if at is None else at_s * 10**9)):
        click.echo(f"{silent_line} The status below is from before the data stopped.\n")
    hung = hung_engines.hung_lines(engine, (at_s + 1) * 10**9 - 1)
    for line in hung:
        click.echo(line, err=True)
    paging = bool(hung)
    count = by_second()
    for objective in visible_objectives(engine, objectives):
        if not isinstance(objective.indicator, GoodEvents):
            click.echo(
                f"{objective.name}: Prometheus counts this objective, not Tailspan", err=True
            )
            continue
        groups, blind = objective_status(engine, objective, at_s, count)
        for found in (group.status for group in groups):
            each = found.objective
            paging |= found.severity == "page"
            alerted = slo_incidents(engine, each.name, at_s, INCIDENTS)
            if form == "json":
                fields = {
                    **_as_json(found),
                    "blind": blind,
                    "newest_data": None if newest is None else newest / 1e9,
                    "no_data_for_s": silent,
                    "incidents": [_incident(row) for row in alerted.incidents],
                    "notifications": [notification_json(row) for row in alerted.notifications],
                }
                click.echo(json.dumps(fields, allow_nan=False))
            else:
                if each.group:
                    _print_group(found)
                else:
                    _print(found)
                if blind is not None:
                    click.echo(f"  blind in the last hour: {REASONS[blind].why}")
                    click.echo(f"  to do: {REASONS[blind].remedy}\n")
                _print_incidents(alerted.incidents)
                print_undelivered(alerted.notifications)
            blind = None  # printed once, for all groups
    if paging:
        click.get_current_context().exit(1)


slo.add_command(notify)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _reading(read: Callable[[Sequence[Path]], Any], paths: Sequence[Path]) -> Any:
    try:
        return read(paths or [OBJECTIVES])
    except FileNotFoundError as error:
        raise click.UsageError(str(error)) from error


def _as_json(found: ObjectiveStatus) -> dict[str, Any]:
    def number(value: Any) -> float | None:
        return None if value is None else float(value)

    objective = found.objective
    return {
        "slo": objective.name,
        "objective": objective.base,
        "group": dict(objective.group) or None,
        "target": float(objective.target),
        "period_s": found.span.length_s,
        "period_started_at": found.span.start_s,
        "period_ends_at": found.span.end_s,
        "at": found.at_s,
        "counted_since": found.since_s,
        "covered": float(found.covered),
        "counted_in": objective.counted_in,
        "events": found.period.events,
        "bad": found.period.bad,
        "excluded": dict(found.excluded),
        "budget_left": number(found.budget_left),
        "burn": {durations.render(length): number(each) for length, each in found.burns.items()},
        "exhausted_in_s": number(found.exhausted_in_s),
        "alerts": [
            {
                "severity": pair.severity,
                "long": durations.render(pair.long_s),
                "short": durations.render(pair.short_s),
                "factor": float(pair.factor),
                "state": str(state),
            }
            for pair, state in found.states.items()
        ],
    }


_STATE_TEXTS: Final = {
    State.FIRING: "ALERTS",
    State.QUIET: "quiet",
    State.LOW_TRAFFIC: "not alerting: too few bad requests",
    State.COLD_START: "not alerting: not enough history",
    State.NO_DATA: "no requests",
}


def _state_text(found: ObjectiveStatus, state: State) -> str:
    return _STATE_TEXTS[state].replace("requests", found.objective.rows)


def _print_group(found: ObjectiveStatus) -> None:
    """Print one group, such as a tenant. Print each alert that fires, and each alert that would
    fire with enough data."""
    left = f"no {found.objective.rows} counted yet"
    if found.budget_left is not None:
        left = f"{text.percent(float(found.budget_left))} of the budget left"
    burning = found.burns[found.burning_s]
    pace = "unknown" if burning is None else f"{float(burning):.2f}"
    alerts = "".join(
        f"; {pair.severity} ({durations.render(pair.long_s)}): {_state_text(found, state)}"
        for pair, state in found.states.items()
        if state not in (State.QUIET, State.NO_DATA)
    )
    click.echo(
        f"{found.objective.name}: {found.period.bad:,} bad of {found.period.events:,}; {left};"
        f" burning at {pace} (last {durations.render(found.burning_s)}){alerts}"
    )


def _print(found: ObjectiveStatus) -> None:
    objective = found.objective
    click.echo(f"{objective.name}: {objective.display_name}")
    period = objective.period_text
    if found.since_s is None or found.budget_left is None:
        click.echo(
            f"  target {objective.target_written} over {period}; no {objective.rows} counted yet\n"
        )
        return
    since = time_text.moment(found.since_s * 10**9)
    good = found.period.events - found.period.bad
    click.echo(
        f"  target {objective.target_written} over {period};"
        f" {good:,} good of {found.period.events:,} {objective.counted_in},"
        f" counted since {since} UTC"
    )
    left = f"{text.percent(float(found.budget_left))} of the budget left"
    burning = found.burns[found.burning_s]
    pace = "unknown" if burning is None else f"{float(burning):.2f}"
    click.echo(
        f"  {left}; burning at {pace} (last {durations.render(found.burning_s)}),"
        f" {_budget_outlook(found)}"
    )
    left_out = [f"{count:,} {name}" for name, count in found.excluded.items() if count]
    if left_out:
        click.echo(f"  not counted: {', '.join(left_out)}")
    click.echo()
    rows = [
        [
            pair.severity,
            durations.render(pair.long_s),
            durations.render(pair.short_s),
            f"{float(pair.factor):.3g}",
            _burn(found, pair.long_s),
            _burn(found, pair.short_s),
            _state_text(found, state),
        ]
        for pair, state in found.states.items()
    ]
    header = ["alert", "long", "short", "above", "burn, long", "burn, short", "state"]
    for line in text.table(header, rows, left=3, keep=len(header)):
        click.echo(f"  {line}")
    click.echo()


def _incident(row: IncidentRow) -> dict[str, Any]:
    return {
        "severity": row.severity,
        "began": row.began_unix_s,
        "fired": row.fired_unix_s,
        "ended": row.ended_unix_s,
        "peak": row.peak_unix_s,
        "peak_burn": float(Fraction(row.peak_burn)),
        "budget_spent": None if row.budget_spent is None else float(Fraction(row.budget_spent)),
    }


def _print_incidents(rows: Sequence[IncidentRow]) -> None:
    if not rows:
        return
    header = [
        "incident",
        "began (UTC)",
        "alerted (UTC)",
        "ended (UTC)",
        "peak burn",
        "budget spent",
    ]
    cells = [
        [
            row.severity,
            time_text.moment(row.began_unix_s * 10**9),
            time_text.moment(row.fired_unix_s * 10**9),
            "ongoing" if row.ended_unix_s is None else time_text.moment(row.ended_unix_s * 10**9),
            f"{float(Fraction(row.peak_burn)):.1f}",
            text.UNKNOWN
            if row.budget_spent is None
            else text.percent(float(Fraction(row.budget_spent)), 2),
        ]
        for row in rows
    ]
    for line in text.table(header, cells, left=4, keep=len(header)):
        click.echo(f"  {line}")
    click.echo()


def _burn(found: ObjectiveStatus, length_s: int) -> str:
    burning = found.burns[length_s]
    return text.UNKNOWN if burning is None else f"{float(burning):.2f}"


def _budget_outlook(found: ObjectiveStatus) -> str:
    if found.budget_left is not None and found.budget_left <= 0:
        return "and spent"
    if not found.burns[found.burning_s]:
        return "so no budget is spent"
    if found.exhausted_in_s is None:
        return "so the budget lasts until the period ends"
    return f"so the budget is spent in {time_text.length(int(found.exhausted_in_s * 10**9))}"
