"""Read OpenSLO's AlertPolicy and AlertCondition as burn-rate policies.

A condition `{kind: burnrate, threshold, lookbackWindow, alertAfter}` is a pair of windows.
`lookbackWindow` is the long window. `alertAfter` is the short window, by default a twelfth of the
long window.

Sources: OpenSLO 1.0, "AlertCondition". Google SRE Workbook, ch. 5, "Multiwindow, Multi-Burn-Rate
Alerts", for the twelfth.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from alerts.burnrate import Policy, WindowPair
from alerts.errors import DocumentError, shown
from alerts.openslo.metadata import METADATA, name_of
from alerts.policy import SEVERITIES, policy_for
from alerts.strict_yaml import Items, MappingReader, Node, YamlScalar
from telemetry import durations

POLICY: Final = (
    "description",
    "alertWhenNoData",
    "alertWhenResolved",
    "alertWhenBreaching",
    "conditions",
    "notificationTargets",
)
CONDITION: Final = ("description", "severity", "condition")
TARGET: Final = ("description", "target")
SHORT_PART: Final = 12
SHORTEST_S: Final = 60
"""The shortest allowed window: four evaluations of 15 s, and at least one scrape."""

_INLINE: Final = ("apiVersion", "kind", "metadata", "spec")


@dataclass(frozen=True, slots=True)
class AlertPolicy:
    """An AlertPolicy. `where` is the document's file and line."""

    name: str
    where: str
    pairs: tuple[WindowPair, ...]
    when_no_data: bool


def read_condition(spec: MappingReader) -> WindowPair:
    """The pair of windows of an AlertCondition.

    Raises:
        DocumentError: the document is invalid, or its kind is not supported.
    """
    severity = spec.choice("severity", SEVERITIES)
    condition = spec.inner("condition", ("kind", "op", "threshold", "lookbackWindow", "alertAfter"))
    condition.choice("kind", ("burnrate", "Burnrate"))
    if "op" in condition:
        condition.choice("op", ("gt",))
    text = condition.text("threshold")
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,6})?", text, re.ASCII) or not Fraction(text):
        raise condition.error(
            "threshold", f"{shown(text)}; allowed: a burn rate above 0, for instance 14.4"
        )
    long_s = condition.duration_s("lookbackWindow")
    short_s = (
        condition.duration_s("alertAfter")
        if "alertAfter" in condition
        else max(SHORTEST_S, long_s // SHORT_PART)
    )
    if short_s < SHORTEST_S:
        raise condition.error("alertAfter", "is too short; allowed: at least 1m")
    if short_s >= long_s:
        raise condition.error(
            "alertAfter", f"must be shorter than lookbackWindow: {durations.render(long_s)}"
        )
    return WindowPair(severity, long_s, short_s, Fraction(text))


def read_policy(
    spec: MappingReader, name: str, conditions: Mapping[str, MappingReader]
) -> AlertPolicy:
    """The policy of an AlertPolicy document.

    Raises:
        DocumentError: the document is invalid, or it refers to an unknown condition.
    """
    if not spec.flag("alertWhenBreaching", True):
        raise spec.error("alertWhenBreaching", "false would disable every alert; allowed: true")
    spec.flag("alertWhenResolved", True)
    pairs = tuple(
        read_condition(_condition(each, conditions))
        for each in spec.each("conditions", ("conditionRef", *_INLINE))
    )
    if not pairs:
        raise spec.error("conditions", "is empty: at least one condition is needed")
    if "notificationTargets" in spec:
        for each in spec.each("notificationTargets", ("targetRef", *_INLINE)):
            if "targetRef" not in each:
                read_target(each.inner("spec", TARGET))
    where = f"{spec.file}:{spec.line}"
    return AlertPolicy(name, where, pairs, spec.flag("alertWhenNoData", True))


def read_target(spec: MappingReader) -> None:
    """Check an AlertNotificationTarget. The target itself has no effect, because `notify.yaml`
    configures notifications."""
    spec.text("target")


def _condition(reference: MappingReader, conditions: Mapping[str, MappingReader]) -> MappingReader:
    if "conditionRef" not in reference:
        name_of(reference.inner("metadata", METADATA))
        return reference.inner("spec", CONDITION)
    wanted = reference.text("conditionRef")
    if wanted not in conditions:
        known = ", ".join(sorted(conditions)) or "none was read"
        raise reference.error(
            "conditionRef", f"{shown(wanted)} is no AlertCondition; allowed: {known}"
        )
    return conditions[wanted]


def policies_of(
    slo: MappingReader,
    policies: Mapping[str, MappingReader],
    conditions: Mapping[str, MappingReader],
) -> tuple[AlertPolicy, ...]:
    """The AlertPolicies that an SLO contains or refers to.

    Raises:
        DocumentError: a policy is malformed or unknown.
    """
    if "alertPolicies" not in slo:
        return ()
    return tuple(_policies(slo, slo.node("alertPolicies"), policies, conditions))


def _policies(
    slo: MappingReader,
    node: Node,
    policies: Mapping[str, MappingReader],
    conditions: Mapping[str, MappingReader],
) -> Iterator[AlertPolicy]:
    if isinstance(node, YamlScalar) and node.plain and not node.text:
        return  # the key has no value, as in OpenSLO's own examples
    if not isinstance(node, Items):
        raise slo.error("alertPolicies", "must be a sequence (- …)")
    for place, each in enumerate(node.items):
        if isinstance(each, YamlScalar):
            yield _policy_by_name(slo, each.text, policies, conditions)
            continue
        inner = MappingReader(
            each, slo.file, f"{slo.path}.alertPolicies[{place}]", ("alertPolicyRef", *_INLINE)
        )
        if "alertPolicyRef" in inner:
            yield _policy_by_name(slo, inner.text("alertPolicyRef"), policies, conditions)
        else:
            name = name_of(inner.inner("metadata", METADATA))
            yield read_policy(inner.inner("spec", POLICY), name, conditions)


def _policy_by_name(
    slo: MappingReader,
    wanted: str,
    policies: Mapping[str, MappingReader],
    conditions: Mapping[str, MappingReader],
) -> AlertPolicy:
    if wanted not in policies:
        known = ", ".join(sorted(policies)) or "none was read"
        raise slo.error("alertPolicies", f"{shown(wanted)} is no AlertPolicy; allowed: {known}")
    return read_policy(policies[wanted], wanted, conditions)


def resolved(
    chosen: tuple[AlertPolicy, ...], objective: MappingReader, period_s: int, target: Fraction
) -> Policy:
    """Return the conditions of the AlertPolicies. Without AlertPolicies, return the built-in policy
    for the period.

    Raises:
        DocumentError: a condition can never be met, not even by a total failure.
    """
    built_in = policy_for(period_s, 1 - target)
    if not chosen:
        return built_in
    # If two conditions have the same windows, keep only the condition with the lower threshold,
    # because it alerts first.
    lowest: dict[tuple[int, int, int], WindowPair] = {}
    for pair in sorted(
        (pair for each in chosen for pair in each.pairs), key=lambda pair: pair.factor
    ):
        lowest.setdefault((SEVERITIES.index(pair.severity), pair.long_s, pair.short_s), pair)
    pairs = [lowest[key] for key in sorted(lowest)]
    for pair in pairs:
        if pair.long_s >= period_s:
            raise DocumentError(
                objective.file,
                objective.line,
                objective.path,
                f"has a condition in {chosen[0].where} with a lookbackWindow of"
                f" {durations.render(pair.long_s)}; allowed: shorter than the period,"
                f" {durations.render(period_s)}",
            )
        if pair.factor * (1 - target) >= 1:
            raise DocumentError(
                objective.file,
                objective.line,
                f"{objective.path}.target",
                f"can never cause a {pair.severity} by {chosen[0].where}: even if every request"
                " is bad,"
                f" the budget burns only {float(1 / (1 - target)):.4g} times too fast, but the"
                f" condition requires more than {float(pair.factor):.4g}; allowed: a threshold"
                " below the burn rate of a total failure, or no alertPolicies",
            )
    return Policy(
        ", ".join(each.name for each in chosen),
        ", ".join(each.where for each in chosen),
        built_in.minimum_bad_events,
        tuple(pairs),
    )
