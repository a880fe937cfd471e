from alerts.objectives import Objective
from alerts.openslo.reader import inspect_texts

DOCUMENT = """\
apiVersion: openslo/v1
kind: SLO
metadata: {{name: outside}}
spec:
  service: chat
  budgetingMethod: Occurrences
  timeWindow: [{{duration: 30d, isRolling: true}}]
  objectives: [{{target: 0.99}}]
  indicator: {{spec: {{ratioMetric: {{
    total: {{metricSource: {{type: tailspan, spec: {{events: {events}, {where}}}}}}},
    good: {{metricSource: {{type: tailspan, spec: {{good: '{good}'}}}}}}}}}}}}
"""


def objective(
    good: str = "first_content_s <= 0.5", where: str = "where: all", events: str = "probes"
) -> Objective:
    found = inspect_texts({"o.yaml": DOCUMENT.format(events=events, where=where, good=good)})
    assert not found.errors, found.errors
    return found.spec.objectives[0]
