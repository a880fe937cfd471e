"""The generated rules in Prometheus' own hands: what fires over made histories, and when.

The live evaluator says beforehand what must fire at every step, so that each history also
holds the two evaluators to one another.
"""

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from alerts.burnrate import Counts, State
from alerts.generate import EXPLORER_URL, tailspan_rules, vllm_rules
from alerts.history import Bucket, History, states_at
from alerts.objectives import Objective
from alerts.rulefile import label_text, literal
from telemetry import durations

pytestmark = pytest.mark.real

HOUR_S: Final = 3600

Make = Callable[..., Objective]
Run = Callable[[str, Mapping[str, object]], None]
States = list[tuple[int, dict[str, State]]]


@dataclass(frozen=True)
class Stretch:
    """So long, with so many events a step, of which so many bad."""

    length: str
    events: int
    bad: int
    reset: bool = False


def series(stretches: Sequence[Stretch], step_s: int) -> tuple[list[int], list[int], list[Bucket]]:
    """Both counters at every step, and the buckets that they are of."""
    events, good = [0], [0]
    buckets: list[Bucket] = []
    at_s = 0
    for stretch in stretches:
        if stretch.reset:
            events[-1] = good[-1] = 0
            buckets.pop()
        for _ in range(durations.parse_s(stretch.length) // step_s):
            at_s += step_s
            events.append(events[-1] + stretch.events)
            good.append(good[-1] + stretch.events - stretch.bad)
            buckets.append(Bucket(at_s, Counts(stretch.bad, stretch.events)))
    return events, good, buckets


def check(
    promtool: Run,
    objective: Objective,
    stretches: Sequence[Stretch],
    step: str,
    severities: Sequence[str] = ("page", "ticket"),
) -> States:
    """Both evaluators over a history, step by step; what they agreed on."""
    step_s = durations.parse_s(step)
    events, good, buckets = series(stretches, step_s)
    history = History(0, buckets, 15)
    states: States = [
        (at_s, states_at(history, at_s, objective.policy, objective.budget))
        for at_s in range(step_s, len(events) * step_s, step_s)
    ]
    asked = [
        {
            "expr": f'count(ALERTS{{alertname="TailspanBudgetBurn",severity="{severity}"}})',
            "eval_time": f"{at_s}s",
            "exp_samples": [{"labels": "{}", "value": 1}] if told[severity] is State.FIRING else [],
        }
        for at_s, told in states
        for severity in severities
    ]
    promtool(
        tailspan_rules([objective], EXPLORER_URL),
        {
            "interval": step,
            "input_series": [
                {"series": f'{name}{{slo="chat"}}', "values": " ".join(map(str, values))}
                for name, values in (
                    ("tailspan_slo_events_total", events),
                    ("tailspan_slo_good_events_total", good),
                )
            ],
            "promql_expr_test": asked,
        },
    )
    return states


def fired(states: States, severity: str) -> list[int]:
    """When it fired, in seconds."""
    return [at_s for at_s, told in states if told[severity] is State.FIRING]


def test_the_rules_are_valid(tmp_path: Path, objective: Make) -> None:
    """Both kinds, by Prometheus' own check."""
    if shutil.which("promtool") is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    for name, rules in {
        "tailspan": tailspan_rules([objective()], EXPLORER_URL),
        "short": tailspan_rules([objective(period="7d")], EXPLORER_URL),
        "month": tailspan_rules([objective(period="28d")], EXPLORER_URL),
        "vllm": vllm_rules([objective(good="ttft_s <= 1")], EXPLORER_URL),
        "hostile": tailspan_rules(
            [objective(where="where: 'tenant == \"}} \\\\\\\\ {{ $x }} `\"'")], EXPLORER_URL
        ),
    }.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(rules)
        done = subprocess.run(
            ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("bad", "pages"), [(145, True), (144, False), (143, False)])
def test_a_steady_burn_pages_above_the_fast_factor_only(
    promtool: Run, objective: Make, bad: int, pages: bool
) -> None:
    """14.5 for an hour pages; 14.4 does not; the slow pair needs longer than this."""
    states = check(
        promtool,
        objective(),
        [Stretch("2h", 1000, 0), Stretch("65m", 1000, bad)],
        "1m",
        ["page"],
    )
    after = [at_s for at_s in fired(states, "page") if at_s <= 3 * HOUR_S]
    assert bool(after) is pages


@pytest.mark.parametrize(("bad", "pages"), [(61, True), (59, False)])
def test_a_steady_burn_pages_above_the_slow_factor(
    promtool: Run, objective: Make, bad: int, pages: bool
) -> None:
    """6.1 for six hours."""
    states = check(promtool, objective(), [Stretch("7h", 1000, bad)], "2m", ["page"])
    assert bool(fired(states, "page")) is pages


@pytest.mark.parametrize(
    ("bad", "period", "after_s"),
    [
        (310, "30d", 0.03 * 86_400 / 0.031),
        (290, "30d", 0.01 * 3 * 86_400 / 0.029),
        (110, "30d", 0.01 * 3 * 86_400 / 0.011),
        (90, "30d", None),
        (95, "28d", 0.14 / 15 * 3 * 86_400 / 0.0095),
        (92, "28d", None),
    ],
)
def test_a_steady_burn_makes_a_ticket_above_its_factors(
    promtool: Run, objective: Make, bad: int, period: str, after_s: float | None
) -> None:
    """3 over a day, 1 over three, 0.933 of 28 days; at coarse steps, for three days are long."""
    step_s = 600
    states = check(
        promtool, objective(period=period), [Stretch("74h", 10_000, bad)], "10m", ["ticket"]
    )
    found = fired(states, "ticket")
    assert bool(found) is (after_s is not None)
    if after_s is not None:
        assert abs(found[0] - after_s) <= step_s


@pytest.mark.parametrize(
    ("about", "bad", "pages"),
    [
        ({"period": "7d"}, 40, True),  # a burn of 4: above 3.5 over 6 h
        ({"period": "7d"}, 33, False),  # 3.3 spends a week's budget in two days: a ticket
        ({"period": "14d"}, 47, True),
        ({"period": "14d"}, 42, False),
        ({"target": "0.9"}, 620, True),
        ({"target": "0.9"}, 580, False),
        ({"target": "0.8"}, 930, True),  # capped: more than nine of ten for an hour
        ({"target": "0.8"}, 870, False),
    ],
)
def test_other_periods_and_loose_targets_page_above_their_own_factors(
    promtool: Run, objective: Make, about: dict[str, str], bad: int, pages: bool
) -> None:
    """By the rules and the live evaluator alike."""
    lasts, step = ("65m", "15s") if about.get("target") == "0.8" else ("7h", "2m")
    states = check(promtool, objective(**about), [Stretch(lasts, 1000, bad)], step, ["page"])
    assert bool(fired(states, "page")) is pages


def test_a_spike_does_not_page(promtool: Run, objective: Make) -> None:
    """Three minutes of failure are 5 % of an hour."""
    stretches = [Stretch("1h", 100, 0), Stretch("3m", 100, 100), Stretch("1h", 100, 0)]
    assert not fired(check(promtool, objective(), stretches, "1m", ["page"]), "page")


def test_a_page_ends_soon_after_recovery(promtool: Run, objective: Make) -> None:
    """The short window empties in minutes, though the long one remembers."""
    stretches = [Stretch("90m", 100, 0), Stretch("20m", 100, 100), Stretch("30m", 100, 0)]
    found = fired(check(promtool, objective(), stretches, "1m", ["page"]), "page")
    assert found
    assert found[-1] <= (90 + 20 + 5 + 25) * 60
    assert found == list(range(found[0], found[-1] + 60, 60))


@pytest.mark.parametrize(("target", "seconds"), [("0.999", 52), ("0.99", 518)])
@pytest.mark.parametrize("cold", [False, True])
def test_a_total_failure_pages_when_the_formula_says(
    promtool: Run, objective: Make, target: str, seconds: int, cold: bool
) -> None:
    """Within one evaluation of 15 s, after a good hour and right after a start."""
    before = [] if cold else [Stretch("1h", 100, 0)]
    states = check(
        promtool, objective(target=target), [*before, Stretch("12m", 100, 100)], "15s", ["page"]
    )
    began_s = 0 if cold else HOUR_S
    assert abs(fired(states, "page")[0] - began_s - seconds) <= 15


def test_one_bad_request_of_ten_pages_nobody(promtool: Run, objective: Make) -> None:
    """And an alert of its own says what held the page back."""
    stretches = [
        Stretch("1h", 0, 0),
        Stretch("10m", 1, 0),
        Stretch("2m", 1, 1),
        Stretch("8m", 0, 0),
    ]
    states = check(promtool, objective(), stretches, "1m")
    assert not fired(states, "page")
    assert State.LOW_TRAFFIC in {told["page"] for _, told in states}


def test_a_fifth_bad_after_a_start_pages_once_enough_is_spent(
    promtool: Run, objective: Make
) -> None:
    """Not in the third minute, but in the 44th."""
    states = check(promtool, objective(), [Stretch("50m", 1000, 200)], "1m", ["page"])
    first_s = fired(states, "page")[0]
    assert abs(first_s - 0.144 * HOUR_S / 0.2) <= 60
    assert states[2][1]["page"] is State.COLD_START


def test_a_counter_that_begins_anew_is_no_burn(promtool: Run, objective: Make) -> None:
    """Tailspan restarts; Prometheus sees the counters fall, and adds on."""
    stretches = [Stretch("1h", 100, 0), Stretch("1h", 100, 0, reset=True)]
    assert not fired(check(promtool, objective(), stretches, "1m", ["page"]), "page")


def test_a_counter_that_begins_anew_does_not_hide_a_burn(promtool: Run, objective: Make) -> None:
    """Nor does it interrupt the page."""
    stretches = [
        Stretch("1h", 100, 0),
        Stretch("15m", 100, 100),
        Stretch("15m", 100, 100, reset=True),
    ]
    found = fired(check(promtool, objective(), stretches, "1m", ["page"]), "page")
    assert found == list(range(found[0], 90 * 60 + 60, 60))


def test_no_data_is_absence_and_not_a_burn(promtool: Run, objective: Make) -> None:
    """Counters that vanish, or never come, are said to be absent."""
    absent = 'count(ALERTS{alertname="TailspanObjectiveAbsent",alertstate="firing"})'
    burning = 'count(ALERTS{alertname=~"TailspanBudgetBurn.*"})'
    one = [{"labels": "{}", "value": 1}]
    promtool(
        tailspan_rules([objective()], EXPLORER_URL),
        {
            "interval": "1m",
            "input_series": [
                {
                    "series": f'tailspan_slo_{name}_total{{slo="chat"}}',
                    "values": "_x20 0+100x20 stale _x40",
                }
                for name in ("events", "good_events")
            ],
            "promql_expr_test": [
                {"expr": absent, "eval_time": "5m", "exp_samples": []},
                {"expr": absent, "eval_time": "15m", "exp_samples": one},
                {"expr": absent, "eval_time": "30m", "exp_samples": []},
                {"expr": absent, "eval_time": "75m", "exp_samples": one},
                *(
                    {"expr": burning, "eval_time": f"{minute}m", "exp_samples": []}
                    for minute in range(1, 80)
                ),
            ],
        },
    )


def test_no_traffic_is_no_burn_and_no_absence(promtool: Run, objective: Make) -> None:
    """At night the counters stand still. NaN never fires."""
    states = check(promtool, objective(), [Stretch("1h", 10, 0), Stretch("3h", 0, 0)], "1m")
    assert not fired(states, "page")
    assert states[-1][1]["page"] is State.NO_DATA


@pytest.mark.parametrize(
    ("stretches", "guard"),
    [
        ([Stretch("60m", 0, 0), Stretch("6m", 1, 0), Stretch("3m", 1, 1)], "low_traffic"),
        ([Stretch("9m", 1000, 200)], "cold_start"),
    ],
)
def test_what_is_held_back_says_by_which_guard(
    promtool: Run, objective: Make, stretches: list[Stretch], guard: str
) -> None:
    """An alert for information, in the place of the page."""
    events, good, _ = series(stretches, 60)
    at = f"{len(events) - 1}m"
    held = 'ALERTS{alertname="TailspanBudgetBurnHeldBack",held_back="page"}'
    promtool(
        tailspan_rules([objective()], EXPLORER_URL),
        {
            "interval": "1m",
            "input_series": [
                {"series": f'{name}{{slo="chat"}}', "values": " ".join(map(str, values))}
                for name, values in (
                    ("tailspan_slo_events_total", events),
                    ("tailspan_slo_good_events_total", good),
                )
            ],
            "promql_expr_test": [
                {
                    "expr": f"count by (guard, severity) ({held})",
                    "eval_time": at,
                    "exp_samples": [{"labels": f'{{guard="{guard}",severity="info"}}', "value": 1}],
                }
            ],
        },
    )


def test_the_message_can_be_read_at_night(promtool: Run, objective: Make) -> None:
    """What, how bad, how much of how much, where to look."""
    events, good, _ = series([Stretch("1h", 100, 0), Stretch("20m", 100, 100)], 60)
    rules = tailspan_rules([objective()], EXPLORER_URL)
    promtool(
        rules,
        {
            "interval": "1m",
            "input_series": [
                {"series": f'{name}{{slo="chat"}}', "values": " ".join(map(str, values))}
                for name, values in (
                    ("tailspan_slo_events_total", events),
                    ("tailspan_slo_good_events_total", good),
                )
            ],
            "alert_rule_test": [
                {
                    "eval_time": "80m",
                    "alertname": "TailspanBudgetBurn",
                    "exp_alerts": [
                        {
                            "exp_labels": {"slo": "chat", "service": "chat", "severity": "page"},
                            "exp_annotations": {
                                "summary": "chat: the error budget burns 33.3 times too fast",
                                "description": "What: chat. Promised: 99 % requests with ttft_s"
                                " <= 0.5 and tpot_s <= 0.05 over 30d.\n"
                                "Fired by the last 1h and 5m: 2000 of 6000 bad in the last 1h;"
                                " they burn 33.3 and 100.0 times too fast, alerting above 14.4. \n"
                                "Budget: 95.91% of 30d is left; at this pace it lasts 21h 48m 26s."
                                "\n"
                                "First: open dashboard_url, or run `tailspan explain --incident"
                                " chat`: either names the likely cause and what to change.\n"
                                "Counted request by request, against the exact threshold.",
                                "dashboard_url": "http://127.0.0.1:8501/?last=1h&latency=ttft&page=root-cause",
                            },
                        },
                    ],
                }
            ],
        },
    )


def test_a_page_of_the_slow_pair_quotes_its_own_windows(promtool: Run, objective: Make) -> None:
    """An hour ago it was quiet; the six hours are what fired."""
    events, good, _ = series([Stretch("5h", 100, 9), Stretch("40m", 100, 8)], 120)
    promtool(
        tailspan_rules([objective()], EXPLORER_URL),
        {
            "interval": "2m",
            "input_series": [
                {"series": f'{name}{{slo="chat"}}', "values": " ".join(map(str, values))}
                for name, values in (
                    ("tailspan_slo_events_total", events),
                    ("tailspan_slo_good_events_total", good),
                )
            ],
            "promql_expr_test": [
                {
                    "expr": expr,
                    "eval_time": "340m",
                    "exp_samples": [{"labels": labels, "value": value}] if value else [],
                }
                for expr, labels, value in (
                    ('slo:tailspan_alerting_burn:ratio1h{slo="chat"}', "", 0),
                    (
                        'slo:tailspan_alerting_burn:ratio6h{slo="chat"} > bool 8',
                        '{slo="chat"}',
                        1,
                    ),
                )
            ],
        },
    )


def test_any_text_in_an_annotation_yields_itself(promtool: Run) -> None:
    """By Go's own templates: braces, actions, quotes, comments and trim markers are text."""
    texts = [
        "{{{ $value }}}",
        "{{ $value }}",
        "{ {{ . }} }",
        "{{`x`}}",
        '{{ "{" }}',
        "{{- 1 -}} {{/* x */}} {{{{ }}}}",
        "{",
        "a {",
        "}} {{",
        '{{ with query "up" }}{{ end }}',
    ]
    rules = [
        {
            "alert": f"A{place}",
            "expr": "vector(7)",
            "annotations": {"said": f"<{literal(text)}>{{{{ $value }}}}"},
        }
        for place, text in enumerate(texts)
    ]
    tests = [
        {
            "eval_time": "1m",
            "alertname": f"A{place}",
            "exp_alerts": [{"exp_annotations": {"said": f"<{text}>7"}}],
        }
        for place, text in enumerate(texts)
    ]
    promtool(
        yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}), {"alert_rule_test": tests}
    )


def test_a_label_that_a_sender_chose_holds_no_mention(promtool: Run) -> None:
    """Of Slack's, where Alertmanager sends it."""
    rule = {"alert": "A", "expr": "up", "annotations": {"said": label_text("replica")}}
    labels = {"replica": "a<!here>\nb"}
    promtool(
        yaml.safe_dump({"groups": [{"name": "all", "rules": [rule]}]}),
        {
            "input_series": [{"series": 'up{replica="a<!here>\\nb"}', "values": "1x3"}],
            "alert_rule_test": [
                {
                    "eval_time": "1m",
                    "alertname": "A",
                    "exp_alerts": [
                        {"exp_labels": labels, "exp_annotations": {"said": "a_!here__b"}}
                    ],
                }
            ],
        },
    )
