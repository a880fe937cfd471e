"""Prometheus and the live evaluator agree on the generated rules at every step."""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
import yaml

from alerts.burnrate import EventCounts, State
from alerts.history import History, HistoryBucket, states_at
from alerts.objectives import Objective
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules, vllm_rules
from alerts.prometheus.rulefile import label_text, literal
from telemetry import durations
from tests.alerts.prometheus.rule_test import (
    MINUTE_S,
    ONE,
    Run,
    expect,
    expect_alerts,
    slo_counters,
)

pytestmark = pytest.mark.real

HOUR_S: Final = 3600

Make = Callable[..., Objective]
States = list[tuple[int, dict[str, State]]]


@dataclass(frozen=True)
class Stretch:
    length: str
    events: int
    bad: int
    reset: bool = False


def series(
    stretches: Sequence[Stretch], step_s: int
) -> tuple[list[int], list[int], list[HistoryBucket]]:
    """Return Tailspan's two counters, and the buckets that they are computed from."""
    events, good = [0], [0]
    buckets: list[HistoryBucket] = []
    at_s = 0
    for stretch in stretches:
        if stretch.reset:
            events[-1] = good[-1] = 0
            buckets.pop()
        for _ in range(durations.parse_s(stretch.length) // step_s):
            at_s += step_s
            events.append(events[-1] + stretch.events)
            good.append(good[-1] + stretch.events - stretch.bad)
            buckets.append(HistoryBucket(at_s, EventCounts(stretch.bad, stretch.events)))
    return events, good, buckets


def check(
    promtool: Run,
    objective: Objective,
    stretches: Sequence[Stretch],
    step: str,
    severities: Sequence[str] = ("page", "ticket"),
) -> States:
    """Check that Prometheus and the live evaluator agree, and return the alerts."""
    step_s = durations.parse_s(step)
    events, good, buckets = series(stretches, step_s)
    history = History(0, buckets, 15)
    states: States = [
        (at_s, states_at(history, at_s, objective.policy, objective.budget))
        for at_s in range(step_s, len(events) * step_s, step_s)
    ]
    promtool(
        tailspan_rules([objective], EXPLORER_URL),
        slo_counters(events, good),
        [
            expect(
                f'count(ALERTS{{alertname="TailspanBudgetBurn",severity="{severity}"}})',
                at_s,
                ONE if state[severity] is State.FIRING else {},
            )
            for at_s, state in states
            for severity in severities
        ],
        interval=step,
    )
    return states


def fired(states: States, severity: str) -> list[int]:
    return [at_s for at_s, state in states if state[severity] is State.FIRING]


def test_the_rules_are_valid(tmp_path: Path, objective: Make) -> None:
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
    stretches = [Stretch("2h", 1000, 0), Stretch("65m", 1000, bad)]
    states = check(promtool, objective(), stretches, "1m", ["page"])
    after = [at_s for at_s in fired(states, "page") if at_s <= 3 * HOUR_S]
    assert bool(after) is pages


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
    """The history of three days is long, so the test uses steps of ten minutes."""
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
        ({}, 61, True),
        ({}, 59, False),
        ({"period": "7d"}, 40, True),  # burn rate 4; the factor is 3.5 over 6 h
        ({"period": "7d"}, 33, False),  # burn rate 3.3 spends a week's budget in two days: a ticket
        ({"period": "14d"}, 47, True),
        ({"period": "14d"}, 42, False),
        ({"target": "0.9"}, 620, True),
        ({"target": "0.9"}, 580, False),
        ({"target": "0.8"}, 930, True),  # the factor is capped at nine tenths of a total failure
        ({"target": "0.8"}, 870, False),
    ],
)
def test_a_steady_burn_pages_above_the_factor_of_its_period_and_target(
    promtool: Run, objective: Make, about: dict[str, str], bad: int, pages: bool
) -> None:
    lasts, step = ("65m", "15s") if about.get("target") == "0.8" else ("7h", "2m")
    states = check(promtool, objective(**about), [Stretch(lasts, 1000, bad)], step, ["page"])
    assert bool(fired(states, "page")) is pages


def test_a_spike_does_not_page(promtool: Run, objective: Make) -> None:
    """A total failure of three minutes makes 5 % of an hour's requests bad."""
    stretches = [Stretch("1h", 100, 0), Stretch("3m", 100, 100), Stretch("1h", 100, 0)]
    assert not fired(check(promtool, objective(), stretches, "1m", ["page"]), "page")


def test_a_page_ends_soon_after_recovery(promtool: Run, objective: Make) -> None:
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
    before = [] if cold else [Stretch("1h", 100, 0)]
    states = check(
        promtool, objective(target=target), [*before, Stretch("12m", 100, 100)], "15s", ["page"]
    )
    began_s = 0 if cold else HOUR_S
    assert abs(fired(states, "page")[0] - began_s - seconds) <= 15


def test_one_bad_request_of_ten_does_not_page(promtool: Run, objective: Make) -> None:
    lengths = {"1h": (0, 0), "10m": (1, 0), "2m": (1, 1), "8m": (0, 0)}
    stretches = [Stretch(length, events, bad) for length, (events, bad) in lengths.items()]
    states = check(promtool, objective(), stretches, "1m")
    assert not fired(states, "page")
    assert State.LOW_TRAFFIC in {state["page"] for _, state in states}


def test_a_fifth_bad_after_a_start_pages_once_enough_is_spent(
    promtool: Run, objective: Make
) -> None:
    states = check(promtool, objective(), [Stretch("50m", 1000, 200)], "1m", ["page"])
    first_s = fired(states, "page")[0]
    assert abs(first_s - 0.144 * HOUR_S / 0.2) <= 60
    assert states[2][1]["page"] is State.COLD_START


def test_a_counter_reset_is_not_a_burn(promtool: Run, objective: Make) -> None:
    stretches = [Stretch("1h", 100, 0), Stretch("1h", 100, 0, reset=True)]
    assert not fired(check(promtool, objective(), stretches, "1m", ["page"]), "page")


def test_a_counter_reset_does_not_hide_a_burn(promtool: Run, objective: Make) -> None:
    burning = Stretch("15m", 100, 100)
    stretches = [Stretch("1h", 100, 0), burning, replace(burning, reset=True)]
    found = fired(check(promtool, objective(), stretches, "1m", ["page"]), "page")
    assert found == list(range(found[0], 90 * 60 + 60, 60))


def test_no_data_is_absence_and_not_a_burn(promtool: Run, objective: Make) -> None:
    absent = 'count(ALERTS{alertname="TailspanObjectiveAbsent",alertstate="firing"})'
    burning = 'count(ALERTS{alertname=~"TailspanBudgetBurn.*"})'
    values = "_x20 0+100x20 stale _x40"
    promtool(
        tailspan_rules([objective()], EXPLORER_URL),
        slo_counters(values, values),
        [
            *(expect(absent, at) for at in ("5m", "30m")),
            *(expect(absent, at, ONE) for at in ("15m", "75m")),
            *(expect(burning, minute * MINUTE_S) for minute in range(1, 80)),
        ],
    )


def test_no_traffic_is_no_burn_and_no_absence(promtool: Run, objective: Make) -> None:
    """Counters that do not grow give NaN, which never fires an alert."""
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
def test_a_suppressed_page_names_the_reason(
    promtool: Run, objective: Make, stretches: list[Stretch], guard: str
) -> None:
    events, good, _ = series(stretches, MINUTE_S)
    held = 'ALERTS{alertname="TailspanBudgetBurnHeldBack",held_back="page"}'
    samples = {f'{{guard="{guard}",severity="info"}}': 1}
    promtool(
        tailspan_rules([objective()], EXPLORER_URL),
        slo_counters(events, good),
        [expect(f"count by (guard, severity) ({held})", (len(events) - 1) * MINUTE_S, samples)],
    )


def test_a_page_has_numbers_and_first_actions(promtool: Run, objective: Make) -> None:
    events, good, _ = series([Stretch("1h", 100, 0), Stretch("20m", 100, 100)], MINUTE_S)
    labels = {"slo": "chat", "service": "chat", "severity": "page"}
    annotations = {
        "summary": "chat: the error budget burns 33.3 times too fast",
        "description": "What: chat. Objective: 99 % of requests with ttft_s <= 0.5 and"
        " tpot_s <= 0.05 over 30d.\nFired by the last 1h and 5m: 2000 of 6000 bad in the last 1h."
        " Burn rates: 33.3 and 100.0, alerting above 14.4. \n"
        "Budget: 95.91% of 30d is left; at this pace it lasts 21h 48m 26s.\n"
        "First: open dashboard_url, or run `tailspan explain --incident chat`. Both show the"
        " likely cause and what to change.\nTailspan compares each request with the exact"
        " threshold.",
        "dashboard_url": f"{EXPLORER_URL}/?last=1h&latency=ttft&page=root-cause",
    }
    promtool(
        tailspan_rules([objective()], EXPLORER_URL),
        slo_counters(events, good),
        alerts=[expect_alerts("TailspanBudgetBurn", "80m", (labels, annotations))],
    )


def test_a_page_of_the_slow_pair_has_its_own_windows(promtool: Run, objective: Make) -> None:
    """The last hour is good, so only the slow pair's windows fire."""
    events, good, _ = series([Stretch("5h", 100, 9), Stretch("40m", 100, 8)], 120)
    slow = 'slo:tailspan_alerting_burn:ratio6h{slo="chat"} > bool 8'
    promtool(
        tailspan_rules([objective()], EXPLORER_URL),
        slo_counters(events, good),
        [
            expect('slo:tailspan_alerting_burn:ratio1h{slo="chat"}', "340m"),
            expect(slow, "340m", {'{slo="chat"}': 1}),
        ],
        interval="2m",
    )


def test_any_text_in_an_annotation_yields_itself(promtool: Run) -> None:
    """Go's templates treat braces, actions, quotes, comments and trim markers specially."""
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
            "annotations": {"text": f"<{literal(text)}>{{{{ $value }}}}"},
        }
        for place, text in enumerate(texts)
    ]
    promtool(
        yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}),
        alerts=[
            expect_alerts(f"A{place}", "1m", ({}, {"text": f"<{text}>7"}))
            for place, text in enumerate(texts)
        ],
    )


def test_a_senders_label_cannot_contain_a_mention(promtool: Run) -> None:
    rule = {"alert": "A", "expr": "up", "annotations": {"text": label_text("replica")}}
    expected = ({"replica": "a<!here>\nb"}, {"text": "a_!here__b"})
    promtool(
        yaml.safe_dump({"groups": [{"name": "all", "rules": [rule]}]}),
        {'up{replica="a<!here>\\nb"}': "1x3"},
        alerts=[expect_alerts("A", "1m", expected)],
    )
