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
  indicator: {{metadata: {{name: goodput}}, spec: {{ratioMetric: {ratio}}}}}
"""


def own(
    by: Sequence[str] = ("tenant",),
    reserved: Sequence[str] = (),
    where: str = "all",
    name: str = "chat",
) -> Objective:
    """Return an objective: 99 % of each group's requests have their first byte within 500 ms."""
    total = {"where": where, "by": list(by), **({"reserved": list(reserved)} if reserved else {})}
    return read(name, "tailspan", "good", total, {"good": "ttft_s <= 0.5"})


def foreign(total: str, bad: str, by: Sequence[str] = ("tenant",)) -> Objective:
    """Return an objective over two Prometheus queries: 99 % of each group's events are good."""
    return read("web", "Prometheus", "bad", {"query": total, "by": list(by)}, {"query": bad})


def read(name: str, kind: str, key: str, total: object, part: object) -> Objective:
    return objective_of(document(name, kind, key, total, part))


def document(name: str, kind: str, key: str, total: object, part: object) -> str:
    sources = {
        each: {"metricSource": {"type": kind, "spec": spec}}
        for each, spec in (("total", total), (key, part))
    }
    return _OPENSLO.format(name=name, ratio=json.dumps({"counter": True, **sources}))


def query_document(**ratio: object) -> str:
    metric = {
        key: {"metricSource": {"type": "Prometheus", "spec": value}}
        if isinstance(value, dict)
        else value
        for key, value in ratio.items()
    }
    return _OPENSLO.format(name="web", ratio=json.dumps(metric))


def query_objective(**ratio: object) -> Objective:
    """Return an objective with this ratioMetric, whose sources are Prometheus queries."""
    sources = ("total", "good", "bad", "raw")
    return objective_of(
        query_document(**{k: {"query": v} if k in sources else v for k, v in ratio.items()})
    )


def objective_of(text: str) -> Objective:
    findings = inspect_texts({"slo.yaml": text})
    assert not findings.errors, findings.errors
    return findings.spec.objectives[0]
