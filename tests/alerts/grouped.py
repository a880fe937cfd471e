"""Objectives with groups, and requests of several tenants, for the tests of several modules."""

import json
from collections.abc import Sequence

from alerts.objectives import Objective
from alerts.openslo.reader import inspect_texts

_OPENSLO = """
apiVersion: openslo/v1
kind: SLO
metadata: {{name: {name}}}
spec:
  service: chat
  budgetingMethod: Occurrences
  timeWindow: [{{duration: 30d, isRolling: true}}]
  objectives: [{{target: 0.99}}]
  indicator: {{metadata: {{name: goodput}}, spec: {{ratioMetric: {{counter: true,
    total: {{metricSource: {{type: {kind}, spec: {total}}}}},
    {key}: {{metricSource: {{type: {kind}, spec: {part}}}}}}}}}}}
"""


def own(
    by: Sequence[str] = ("tenant",), reserved: Sequence[str] = (), where: str = "all"
) -> Objective:
    """99 % of the requests of each group have their first byte within 500 ms."""
    total = {"where": where, "by": list(by), **({"reserved": list(reserved)} if reserved else {})}
    return read("chat", "tailspan", "good", total, {"good": "ttft_s <= 0.5"})


def foreign(total: str, bad: str, by: Sequence[str] = ("tenant",)) -> Objective:
    """99 % of the events of each group are not bad, by queries of Prometheus."""
    return read("web", "Prometheus", "bad", {"query": total, "by": list(by)}, {"query": bad})


def read(name: str, kind: str, key: str, total: object, part: object) -> Objective:
    """The objective of a document."""
    return objective_of(document(name, kind, key, total, part))


def document(name: str, kind: str, key: str, total: object, part: object) -> str:
    """An SLO whose sources have these specs."""
    return _OPENSLO.format(
        name=name, kind=kind, key=key, total=json.dumps(total), part=json.dumps(part)
    )


def objective_of(text: str) -> Objective:
    """The only objective of a text."""
    findings = inspect_texts({"slo.yaml": text})
    assert not findings.errors, findings.errors
    return findings.spec.objectives[0]
