"""The Prometheus rules of an objective. They make the same decisions as `alerts.burnrate`.

Conditions compare products instead of quotients, so that a window without events does not give NaN.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

from alerts import vocabulary
from alerts.blindness import REASONS
from alerts.burnrate import WindowPair, detection_s
from alerts.explorer_links import group_filters, objective_link
from alerts.objectives import Objective
from alerts.prometheus.alert_text import (
    alerting_burn,
    budget_left,
    fired_by,
    first_step,
    of_objective,
    subject,
    what,
)
from alerts.prometheus.budget_rules import BUDGET_INTERVAL, ENDS_SOON_S, budget_rules, horizon_s
from alerts.prometheus.indicators import EventQueries
from alerts.prometheus.rulefile import AlertingRule, RecordingRule, RuleGroup, literal, number
from telemetry import durations

INTERVAL: Final = {"page": "15s", "ticket": "2m"}
"""The evaluation interval of each severity."""

STEP_S: Final = durations.parse_s(INTERVAL["page"])
"""The first sample of a window may be this many seconds after the start of the window."""

BLIND_FOR: Final = "15m"
"""The delay of the alert on a blind objective. During the delay, a deployment may correct the
fault."""

SHORTEST_ABSENCE_S: Final = 120
"""A target that restarts misses one or two scrapes. By default, scrapes are a minute apart."""


def burn_groups(
    objective: Objective, counted: EventQueries, explorer_url: str, now_s: int
) -> list[RuleGroup]:
    """Rules of one objective, one group per severity."""
    rules = _Rules(objective, counted, explorer_url, now_s)
    return list(rules.groups())


class _Rules:
    def __init__(
        self, objective: Objective, counted: EventQueries, explorer_url: str, now_s: int
    ) -> None:
        self._now_s = now_s
        self._objective = objective
        self._counted = counted
        self._policy = objective.policy
        self._pairs = objective.policy.pairs
        self._labels = {vocabulary.SLO: objective.name}
        self._link = literal(objective_link(objective, explorer_url)) + group_filters(objective)

    def groups(self) -> Iterator[RuleGroup]:
        recorded: set[int] = set()
        for severity in dict.fromkeys(pair.severity for pair in self._pairs):
            pairs = [pair for pair in self._pairs if pair.severity == severity]
            rules: list[RecordingRule | AlertingRule] = []
            if not recorded:
                if self._counted.slots is not None:
                    rules.append(RecordingRule(vocabulary.SLOTS, self._counted.slots, self._labels))
                rules.append(self._seen())
            lengths = sorted({length for pair in pairs for length in (pair.short_s, pair.long_s)})
            for length_s in lengths:
                if length_s not in recorded:
                    rules += self._window(length_s)
                    recorded.add(length_s)
            rules += [self._alerting(pair) for pair in pairs]
            rules.append(self._burning(severity, pairs))
            rules += self._held_back(severity, pairs)
            if severity == self._pairs[0].severity and self._objective.alert_when_no_data:
                rules += [self._absent(), *self._blind()]
            yield RuleGroup(
                f"tailspan-{self._objective.name}-{severity}", INTERVAL[severity], rules
            )
        budget: list[RecordingRule | AlertingRule] = []
        budget += budget_rules(self._objective, min(recorded), self._now_s)
        if self._objective.calendar:
            budget.append(self._calendar_ends())
        yield RuleGroup(f"tailspan-{self._objective.name}-budget", BUDGET_INTERVAL, budget)

    def _seen(self) -> RecordingRule:
        return RecordingRule(vocabulary.SEEN, f"0 * {self._counted.present} + time()", self._labels)

    def _window(self, length_s: int) -> list[RecordingRule]:
        window = durations.render(length_s)
        seen, events = self._series(vocabulary.SEEN), self._series(vocabulary.events(window))
        return [
            RecordingRule(vocabulary.events(window), self._counted.events(window), self._labels),
            RecordingRule(vocabulary.bad_events(window), self._counted.bad(window), self._labels),
            RecordingRule(
                vocabulary.coverage(window),
                f"clamp_max((time() - min_over_time({seen}[{window}]) + {STEP_S}) / {length_s}, 1)",
                self._labels,
            ),
            RecordingRule(
                vocabulary.burn_rate(window),
                f"{self._series(vocabulary.bad_events(window))} / ({events} > 0)"
                f" / {number(self._objective.budget)}",
                self._labels,
            ),
        ]

    def _alerting(self, pair: WindowPair) -> RecordingRule:
        name = alerting_burn(self._objective, pair)
        needed = [
            self._over(pair, pair.long_s, covered=True),
            self._over(pair, pair.short_s, covered=True),
            self._enough(pair),
        ]
        return RecordingRule(name, self._arms([(pair, needed)]), self._labels)

    def _any_alerting(self, pairs: Sequence[WindowPair]) -> str:
        names = (alerting_burn(self._objective, pair) for pair in pairs)
        return "\nor\n".join(map(self._series, names)) + "\n"

    def _burning(self, severity: str, pairs: Sequence[WindowPair]) -> AlertingRule:
        return self._alert(
            vocabulary.ALERT_BURNING,
            self._any_alerting(pairs),
            {"severity": severity},
            f"{subject(self._objective)}: the error budget burns"
            ' {{ $value | printf "%.1f" }} times too fast',
            [
                what(self._objective),
                "".join(fired_by(self._objective, pair) for pair in pairs),
                budget_left(self._objective),
                first_step(self._objective, self._counted.in_explorer),
                self._counted.about,
            ],
        )

    def _held_back(self, severity: str, pairs: Sequence[WindowPair]) -> list[AlertingRule]:
        """The alerts that fire while a guard suppresses an alert."""
        minimum = self._policy.minimum_bad_events
        over = {
            pair: [
                self._over(pair, pair.long_s, covered=False),
                self._over(pair, pair.short_s, covered=False),
            ]
            for pair in pairs
        }
        few = [(pair, [*over[pair], self._enough(pair, negated=True)]) for pair in pairs]
        new = [
            (pair, [*over[pair], self._enough(pair), f"({uncovered})"])
            for pair in pairs
            for uncovered in [
                " or ".join(
                    self._over(pair, length_s, covered=True, negated=True)
                    for length_s in (pair.long_s, pair.short_s)
                )
            ]
        ]
        # These alerts are silent while any pair of the same severity fires.
        but = f"unless (\n{self._any_alerting(pairs)})\n"
        name = subject(self._objective)
        return [
            self._alert(
                vocabulary.ALERT_HELD_BACK,
                f"(\n{self._arms(few)})\n{but}",
                {"severity": "info", "held_back": severity, "guard": "low_traffic"},
                f"{name}: burning, but with too few bad requests for a {severity}",
                [
                    f"The long window has fewer than {minimum} bad requests. With so few, the high"
                    " burn rate may be chance.",
                    what(self._objective),
                    self._counted.about,
                ],
            ),
            self._alert(
                vocabulary.ALERT_HELD_BACK,
                f"(\n{self._arms(new)})\n{but}",
                {"severity": "info", "held_back": severity, "guard": "cold_start"},
                f"{name}: burning, but counting began too recently for a {severity}",
                [
                    "Tailspan began to count during the window, and assumes that earlier requests"
                    " were good. If the burn continues, an alert follows when enough of the"
                    " budget is spent.",
                    what(self._objective),
                    self._counted.about,
                ],
            ),
        ]

    def _absent(self) -> AlertingRule:
        return self._alert(
            vocabulary.ALERT_ABSENT,
            f"absent({self._series(vocabulary.SEEN)})",
            {"severity": self._pairs[0].severity},
            f"{self._objective.name}: no events are counted",
            [
                "The counters of this objective have disappeared, so no alert about its error"
                " budget can fire.",
                self._counted.when_absent,
            ],
            for_=durations.render(absent_for_s(self._objective, self._counted)),
        )

    def _calendar_ends(self) -> AlertingRule:
        last_s = horizon_s(self._now_s)
        until = datetime.fromtimestamp(last_s, UTC).strftime("%Y-%m-%d")
        return self._alert(
            vocabulary.ALERT_CALENDAR,
            f"vector(time()) > {last_s - ENDS_SOON_S}",
            {"severity": "ticket"},
            f"{self._objective.name}: the rules contain its calendar periods until {until}",
            [
                "After that date, Prometheus no longer records the remaining budget. Alerts on"
                " burn rates continue to work.",
                "To do: generate the rules again with `tailspan slo rules`, and load them.",
            ],
        )

    def _blind(self) -> list[AlertingRule]:
        return [
            self._alert(
                vocabulary.ALERT_BLIND,
                condition,
                {"severity": "ticket", "reason": reason},
                f"{self._objective.name}: {self._objective.rows} arrive, but they are not counted",
                [
                    "Until this is corrected, no alert about its error budget can fire:"
                    f" {REASONS[reason].why}.",
                    f"To do: {REASONS[reason].remedy}.",
                    what(self._objective),
                    f"If no such {self._objective.rows} are expected, set alertWhenNoData: false.",
                ],
                for_=BLIND_FOR,
            )
            for reason, condition in self._counted.blind.items()
        ]

    def _alert(
        self,
        alert: str,
        expr: str,
        labels: dict[str, str],
        summary: str,
        description: Sequence[str],
        for_: str | None = None,
    ) -> AlertingRule:
        about = self._objective
        annotations = {
            **{key: literal(value) for key, value in about.annotations},
            "summary": summary,
            "description": "\n".join(each for each in description if each),
        }
        if self._counted.in_explorer:
            annotations["dashboard_url"] = self._link
        # Prometheus also expands templates in labels.
        theirs = {key: literal(value) for key, value in about.labels}
        own = {**self._labels, "service": literal(about.service), **labels}
        return AlertingRule(alert, expr, {**theirs, **own}, annotations, for_=for_)

    def _arms(self, conditions: Sequence[tuple[WindowPair, Sequence[str]]]) -> str:
        """The burn rate over the long window, for each pair whose conditions are all met."""
        arms = []
        for pair, needed in conditions:
            burning = self._series(vocabulary.burn_rate(durations.render(pair.long_s)))
            arms.append(burning + "".join(f"\n  and {each}" for each in needed))
        return "\nor\n".join(arms) + "\n"

    def _over(
        self, pair: WindowPair, length_s: int, *, covered: bool, negated: bool = False
    ) -> str:
        window = durations.render(length_s)
        threshold = pair.factor * self._objective.budget
        bad, events = (
            self._series(of(window)) for of in (vocabulary.bad_events, vocabulary.events)
        )
        share = f" * {self._series(vocabulary.coverage(window))}" if covered else ""
        sign = "<=" if negated else ">"
        return f"{bad}{share} {sign} {number(threshold)} * {events}"

    def _enough(self, pair: WindowPair, *, negated: bool = False) -> str:
        bad = self._series(vocabulary.bad_events(durations.render(pair.long_s)))
        # increase() may return 4.9999 instead of 5.
        least = number(self._policy.minimum_bad_events - Fraction(1, 2))
        return f"{bad} {'<=' if negated else '>'} {least}"

    def _series(self, name: str) -> str:
        return of_objective(self._objective, name)


def absent_for_s(objective: Objective, counted: EventQueries) -> int:
    """Seconds after which the paging alert on missing counters fires.

    Missing counters may hide a total failure. So this alert fires as soon as an alert on a total
    failure would, minus `counted.staleness_s`. For a target of 99.9 %, this is after 2 minutes. For
    99 %, it is after 8 minutes.
    """
    first = objective.policy.pairs[0].severity
    urgent = [pair for pair in objective.policy.pairs if pair.severity == first]
    detected = [detection_s(pair, objective.budget, Fraction(1)) for pair in urgent]
    after_s = min((int(each) for each in detected if each is not None), default=SHORTEST_ABSENCE_S)
    minutes = (after_s - counted.staleness_s) // 60
    return max(SHORTEST_ABSENCE_S, minutes * 60)
