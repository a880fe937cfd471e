"""Compare the times at which Tailspan's and Sloth's rules fire pages, with promtool.

    python benchmarks/timelines.py           the table
    python benchmarks/timelines.py --table   the table as Markdown, as in docs/benchmarks.md

Both rule sets read the same series. Each fault begins after seven hours of healthy traffic with one
request per second. These hours fill the long windows. Rules are evaluated every 30 s. In real use,
Tailspan's paging rules are evaluated every 15 s.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))

from alerts.openslo.reader import inspect_texts
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules
from benchmarks._sloth import ALERT, sloth_pages
from rig.needed_rules import needed

STEP_S: Final = 30
HEALTHY_S: Final = 7 * 3_600
_RATE: Final = STEP_S
"""Requests per step, at one request per second."""

Stretch = tuple[int, float | None]
"""A length in seconds, and the counter's increase per step (None if the counter is absent)."""

QUESTIONS: Final = {
    "page": 'count(ALERTS{alertname=~"Tailspan.*",severity="page",alertstate="firing"})',
    "ticket": 'count(ALERTS{alertname="TailspanObjectiveBlind",alertstate="firing"})',
    "sloth": f'count(ALERTS{{alertname="{ALERT}",alertstate="firing"}})',
}
"""The alerts to check at each step. Tailspan's ticket is the alert on an objective that counts no
events."""


@dataclass(frozen=True)
class TimelineFault:
    """One fault, which is a row of the table.

    Args:
        lasts_s: the observed time in seconds.
        series: the values of each series, beginning with the first step of healthy traffic.
        bad: the query for bad events, or "" for Tailspan's own counters.
        total: the query for all events, or "".
    """

    name: str
    lasts_s: int
    series: Mapping[str, str]
    target: str = "0.99"
    days: int = 30
    bad: str = ""
    total: str = ""


@dataclass(frozen=True)
class Timeline:
    """Seconds from the start of a fault to the first alert of each kind, or None if there is no
    alert."""

    page_s: int | None
    ticket_s: int | None
    sloth_s: int | None


def counter(*stretches: Stretch) -> str:
    """A counter's values, one per step, in promtool's notation."""
    value, parts = 0.0, []
    for length_s, growth in stretches:
        steps = length_s // STEP_S
        if growth is None:
            parts.append(f"stale _x{steps - 1}")
        else:
            parts.append(f"{value:g}+{growth:g}x{steps - 1}")
            value += growth * steps
    return " ".join(parts)


def gauge(*stretches: Stretch) -> str:
    """A gauge's values in promtool's notation. The second element of a stretch is the value
    itself."""
    return " ".join(f"{value:g}x{length_s // STEP_S - 1}" for length_s, value in stretches)


_SLO: Final = '{slo="chat"}'
_EVENTS: Final = f"tailspan_slo_events_total{_SLO}"
_GOOD: Final = f"tailspan_slo_good_events_total{_SLO}"
_REQUESTS: Final = 'tailspan_requests_total{model="m",replica="r",outcome="stop"}'
_ENGINE: Final = '{model="m",replica="r",engine="0"}'
_IN_FLIGHT: Final = f"tailspan_engine_in_flight_requests{_ENGINE}"
_STEP_AGE: Final = f"tailspan_engine_last_step_age_seconds{_ENGINE}"


def _excluded(reason: str) -> str:
    return f'tailspan_slo_excluded_events_total{{slo="chat",reason="{reason}"}}'


def own(lasts_s: int, events: Stretch, good: float | None, **others: str) -> dict[str, str]:
    """Return Tailspan's series before and during a fault: all events, good events, and other
    series."""
    whole_s = HEALTHY_S + lasts_s
    series = {
        "tailspan_build_info": gauge((whole_s, 1)),
        f"tailspan_engine_last_sample_timestamp_seconds{_ENGINE}": counter((whole_s, STEP_S)),
        _REQUESTS: counter((whole_s, _RATE)),
        _EVENTS: counter((HEALTHY_S, _RATE), events),
        _GOOD: counter((HEALTHY_S, _RATE), (events[0], good)),
    }
    for reason in ("unknown", "late", "client_error", "aborted"):
        series[_excluded(reason)] = counter((whole_s, 0))
    return {**series, **others}


def _failing(lasts_s: int, share: float) -> dict[str, str]:
    return own(lasts_s, (lasts_s, _RATE), _RATE * (1 - share))


_OK, _FAILED = 'http_requests_total{code="200"}', 'http_requests_total{code="500"}'
_ALL_QUERY: Final = "sum(rate(http_requests_total[{{.window}}]))"
_BAD_QUERY: Final = 'sum(rate(http_requests_total{code="500"}[{{.window}}]))'
_HOUR_S: Final = 3_600
_HANG_S: Final = 600
"""Seconds after which the clients of a hung engine give up."""


def faults() -> list[TimelineFault]:
    """The faults, one per row of the table."""
    errors = {
        _OK: counter((HEALTHY_S, _RATE), (_HOUR_S, 0)),
        _FAILED: counter((HEALTHY_S, 0), (_HOUR_S, _RATE)),
    }
    hang_s = 2 * _HANG_S
    hang = own(hang_s, (hang_s, 0), 0)
    # After ten minutes, one client per second disconnects. Each of these clients' requests is bad.
    hang[_EVENTS] = counter((HEALTHY_S, _RATE), (_HANG_S, 0), (_HANG_S, _RATE))
    hang[_REQUESTS] = hang[_EVENTS]
    ages = " ".join(str(each) for each in range(0, hang_s, STEP_S))
    return [
        TimelineFault(
            "1. Everything fails; bad events are `rate(…) or vector(0)`",
            _HOUR_S,
            errors,
            bad=f"{_BAD_QUERY} or vector(0)",
            total=_ALL_QUERY,
        ),
        TimelineFault(
            "1. Everything fails; bad events are `all - good # comment`",
            _HOUR_S,
            errors,
            bad=f"{_ALL_QUERY} - {_BAD_QUERY.replace('500', '200')} # bad\n",
            total=f"{_ALL_QUERY} # all\n",
        ),
        TimelineFault(
            "2. 5 % fail, 99 % over 7 d", 5 * _HOUR_S, _failing(5 * _HOUR_S, 0.05), days=7
        ),
        TimelineFault("2. 5 % fail, 99 % over 30 d", 5 * _HOUR_S, _failing(5 * _HOUR_S, 0.05)),
        *(
            TimelineFault(
                f"2. Everything fails, {float(target):.0%} over 30 d".replace("%", " %"),
                5 * _HOUR_S,
                _failing(5 * _HOUR_S, 1),
                target,
            )
            for target in ("0.95", "0.9", "0.8")
        ),
        TimelineFault(
            "3. The objective no longer selects any request",
            2 * _HOUR_S,
            own(2 * _HOUR_S, (2 * _HOUR_S, 0), 0),
        ),
        TimelineFault(
            "3. A clock falls 6 min behind: every request is late",
            2 * _HOUR_S,
            {
                **own(2 * _HOUR_S, (2 * _HOUR_S, 0), 0),
                _excluded("late"): counter((HEALTHY_S, 0), (2 * _HOUR_S, _RATE)),
            },
        ),
        *(
            TimelineFault(
                f"4. The counters disappear, {shown}",
                _HOUR_S,
                own(_HOUR_S, (_HOUR_S, None), None),
                target,
            )
            for target, shown in (("0.999", "99.9 %"), ("0.99", "99 %"), ("0.95", "95 %"))
        ),
        TimelineFault(
            "5. The engine hangs; clients give up after 10 min",
            hang_s,
            {
                **hang,
                _IN_FLIGHT: gauge((HEALTHY_S, 3), (hang_s, 300)),
                _STEP_AGE: f"{gauge((HEALTHY_S, 0))} {ages}",
            },
        ),
    ]


_OPENSLO: Final = """\
apiVersion: openslo/v1
kind: SLO
metadata: {{name: chat}}
spec:
  service: chat
  budgetingMethod: Occurrences
  timeWindow: [{{duration: {days}d, isRolling: true}}]
  objectives: [{{target: {target}}}]
  indicator: {{metadata: {{name: chat-good}}, spec: {{ratioMetric: {{counter: true,
    total: {{metricSource: {total}}}, {part}: {{metricSource: {bad}}}}}}}}}
"""


def rules(fault: TimelineFault) -> str:
    """Return one rule file with all rules that the checked alerts need, of Tailspan and Sloth."""
    if fault.bad:
        sources = [
            json.dumps({"type": "Prometheus", "spec": {"query": query}})
            for query in (fault.total, fault.bad)
        ]
        part, bad, total = "bad", fault.bad, fault.total
    else:
        sources = ["{type: tailspan, spec: {}}", "{type: tailspan, spec: {good: ttft_s <= 0.5}}"]
        part, total = "good", f"sum(rate({_EVENTS}[{{{{.window}}}}]))"
        bad = f"{total} - sum(rate({_GOOD}[{{{{.window}}}}]))"
    text = _OPENSLO.format(
        days=fault.days, target=fault.target, total=sources[0], bad=sources[1], part=part
    )
    findings = inspect_texts({"chat.yaml": text})
    assert not findings.errors, findings.errors
    ours = yaml.safe_load(tailspan_rules(findings.spec.objectives, EXPLORER_URL))
    theirs = yaml.safe_load(sloth_pages(bad, total, Fraction(fault.target), fault.days))
    # promtool evaluates groups in no fixed order.
    every = [rule for each in (ours, theirs) for group in each["groups"] for rule in group["rules"]]
    return yaml.safe_dump({"groups": [{"name": "all", "rules": needed(every, QUESTIONS.values())}]})


def timeline(fault: TimelineFault, lasts_s: int | None = None) -> Timeline:
    """Return the time at which each set of rules fires its first alert.

    Args:
        lasts_s: the observed time in seconds, or None for the fault's `lasts_s`.

    Raises:
        RuntimeError: promtool rejects the rules or the series.
    """
    at_s = range(HEALTHY_S, HEALTHY_S + (lasts_s or fault.lasts_s), STEP_S)
    test = {
        "interval": f"{STEP_S}s",
        "input_series": [{"series": name, "values": v} for name, v in fault.series.items()],
        # The test expects no alert, so promtool lists each alert.
        "promql_expr_test": [
            {"expr": expr, "eval_time": f"{each}s", "exp_samples": []}
            for expr in QUESTIONS.values()
            for each in (HEALTHY_S - STEP_S, *at_s)
        ],
    }
    whole = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [test],
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.yaml").write_text(rules(fault))
        (Path(folder) / "test.yaml").write_text(yaml.safe_dump(whole))
        done = subprocess.run(
            ["promtool", "test", "rules", "test.yaml"],
            cwd=folder,
            env={**os.environ, "GOGC": "400"},  # less garbage collection saves a fifth of the time
            capture_output=True,
            text=True,
            check=False,
        )
    output = done.stdout + done.stderr
    found = {
        name: _first_s(re.findall(rf"expr: {re.escape(json.dumps(expr))}, time: (\w+),", output))
        for name, expr in QUESTIONS.items()
    }
    if done.returncode and not any(each is not None for each in found.values()):
        raise RuntimeError(f"{fault.name}: promtool: {output[-1_000:]}")
    since = {name: None if each is None else each - HEALTHY_S for name, each in found.items()}
    if early := [name for name, each in since.items() if each is not None and each < 0]:
        raise RuntimeError(f"{fault.name}: alerts before the fault: {', '.join(early)}")
    return Timeline(since["page"], since["ticket"], since["sloth"])


def _first_s(times: Sequence[str]) -> int | None:
    units = {"h": 3_600, "m": 60, "s": 1}
    return min(
        (
            sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", each))
            for each in times
        ),
        default=None,
    )


def shown(seconds: int | None) -> str:
    """Format a duration for the table."""
    if seconds is None:
        return "never"
    hours, rest = divmod(seconds, 3_600)
    parts = ((hours, "h"), (rest // 60, "min"), (rest % 60, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "at once"


def cells(fault: TimelineFault, found: Timeline) -> tuple[str, str, str, str]:
    """A row of the table."""
    ours = shown(found.page_s)
    if found.page_s is None and found.ticket_s is not None:
        ours = f"{shown(found.ticket_s)} (ticket)"
    return fault.name, ours, shown(found.sloth_s), shown(fault.lasts_s)


def main() -> int:
    """Run promtool on each fault, and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="print Markdown")
    arguments = parser.parse_args()
    if shutil.which("promtool") is None:
        print("skipped: there is no promtool (apt-get install prometheus)")
        return 0
    header = ("fault", "Tailspan", "Sloth", "observed for")
    if arguments.table:
        print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    else:
        print(f"{header[0]:64}{header[1]:>22}{header[2]:>18}{header[3]:>16}")
    for fault in faults():
        row = cells(fault, timeline(fault))
        line = f"| {' | '.join(row)} |"
        plain = f"{row[0]:64}{row[1]:>22}{row[2]:>18}{row[3]:>16}"
        print(line if arguments.table else plain, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
