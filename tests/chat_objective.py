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
    """Return an SLO over 30 days: 99 % of the requests that match `where` meet `good`."""
    return _OPENSLO.replace("GOOD", good).replace("WHERE", where)
