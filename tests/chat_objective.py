"""The objective `chat` in OpenSLO, for the tests of several parts."""

_OPENSLO = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat}
spec:
  service: chat
  indicator:
    metadata: {name: chat-good}
    spec:
      ratioMetric:
        counter: true
        good: {metricSource: {type: tailspan, spec: {good: "GOOD"}}}
        total: {metricSource: {type: tailspan, spec: {where: "WHERE"}}}
  timeWindow: [{duration: 30d, isRolling: true}]
  budgetingMethod: Occurrences
  objectives: [{target: 0.99}]
"""


def chat_openslo(good: str, where: str = "streamed == true") -> str:
    """Return an SLO: 99 % of the requests that match `where` are good by `good`, over 30 days."""
    return _OPENSLO.replace("GOOD", good).replace("WHERE", where)
