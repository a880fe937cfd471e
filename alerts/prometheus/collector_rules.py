"""Rules for several collectors, each of which stores a part of the requests.

A collector exports a limited number of tenants by name on `/metrics`, and counts all other tenants
as `other`. The recorded series has a value for each tenant that every collector exports by name.
Requests of all other tenants are counted as `other`.
"""

from typing import Final

from alerts.prometheus.rulefile import AlertingRule, RecordingRule, RuleGroup, label_text, literal

TENANT_REQUESTS: Final = "tenant:tailspan_tenant_requests:rate5m"
_NAMED: Final = (
    "count by (tenant) (tailspan_tenant_named_since_seconds <= time() - 300)"
    ' == on () group_left () count(tailspan_exporter_label_values_limit{label="tenant"})'
)
"""The tenants that every collector has named for the last 5 min. The request rate has the same
range."""
_RATE: Final = "rate(tailspan_tenant_requests_total[5m])"


def collector_group(explorer_url: str) -> RuleGroup:
    """Rules for several collectors."""
    complete = f"sum by (tenant) ({_RATE}) and on (tenant) ({_NAMED})"
    unnamed = 'sum by (tenant) (rate(tailspan_tenant_requests_total{tenant=""}[5m]))'
    named = f"(({complete}) or on (tenant) ({unnamed}))"
    rest = f"sum({_RATE}) - (sum({named}) or on () vector(0))"
    return RuleGroup(
        "tailspan-collectors",
        "30s",
        [
            RecordingRule(
                TENANT_REQUESTS,
                f'{named} or on (tenant) label_replace({rest}, "tenant", "other", "", "")',
            ),
            AlertingRule(
                "TailspanReplicaAtSeveralCollectors",
                "count by (replica, engine)"
                " (tailspan_engine_last_sample_timestamp_seconds > time() - 60) > 1",
                {"severity": "ticket"},
                {
                    "summary": "{{ $value }} collectors receive samples of replica"
                    f" {label_text('replica')}, engine {{{{ $labels.engine }}}}",
                    "description": "Each of these collectors exports the engine's totals, so sums"
                    " over collectors are too high. Route all telemetry of a replica to one"
                    " collector:"
                    " collector/otel-gateway-by-replica.yaml is an example.",
                    "dashboard_url": f"{literal(explorer_url.rstrip('/'))}/?last=1h",
                },
                for_="15m",
            ),
        ],
    )
