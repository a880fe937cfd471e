"""Rules on recent P99 latencies, for users without an objective.

The alerts create tickets, because a P99 does not measure how many users are affected or for how
long. With too few requests for a P99, `/metrics` has a lower quantile. If the lower quantile is
above the limit, the P99 is also above it.
"""

from typing import Final, NamedTuple

from alerts.prometheus.rulefile import AlertingRule, RuleGroup, label_text, literal


class Limit(NamedTuple):
    """A limit on a P99 and its reason."""

    alert: str
    series: str
    """The series on `/metrics`, with the labels model and quantile."""
    latency: str
    """The latency's name in the explorer's addresses."""
    title: str
    limit_s: str
    reason: str


LIMITS: Final = (
    Limit(
        "TailspanTtftP99High",
        "tailspan_recent_model_ttft_seconds",
        "ttft",
        "TTFT",
        "2",
        # Nielsen, Usability Engineering, 1993, ch. 5: past 1 s the flow of thought breaks.
        "A wait of more than 1 s interrupts a user's train of thought. The limit of this alert is"
        " twice as long.",
    ),
    Limit(
        "TailspanTpotP99High",
        "tailspan_recent_model_tpot_seconds",
        "tpot",
        "TPOT",
        "0.2",
        # Brysbaert, J. Mem. Lang. 109, 2019: 238 words a minute; a word takes about 1.3 tokens.
        "Above 0.2 s per token, text appears more slowly than it is read (238 words per minute).",
    ),
    Limit(
        "TailspanE2eP99High",
        "tailspan_recent_model_e2e_seconds",
        "e2e",
        "E2E",
        "60",
        # nginx' proxy_read_timeout and AWS' idle timeout of load balancers, both 60 s.
        "By default, proxies and load balancers close a silent connection after 60 s.",
    ),
    Limit(
        "TailspanQueueP99High",
        "tailspan_recent_model_queue_seconds",
        "queue",
        "queue time",
        "1",
        "Above 1 s, requests spend half of the TTFT limit in the queue. Add replicas, or limit"
        " the number of requests. A faster model does not help.",
    ),
)
"""If a limit does not suit a service, define an objective and silence the alert."""


def latency_group(explorer_url: str) -> RuleGroup:
    """The rule group with one alert per limit."""
    return RuleGroup("tailspan-latency", "30s", [_alert(each, explorer_url) for each in LIMITS])


def _alert(limit: Limit, explorer_url: str) -> AlertingRule:
    link = f"{literal(explorer_url.rstrip('/'))}/?last=1h&latency={limit.latency}&page=root-cause"
    return AlertingRule(
        limit.alert,
        f"max by (model) ({limit.series}) > {limit.limit_s}",
        {"severity": "ticket"},
        {
            "summary": f"{label_text('model')}: P99 of {limit.title} is above {limit.limit_s} s",
            "description": "The P99 over the last 5 min is at least"
            " {{ $value | humanizeDuration }}. It has been above the limit for 5 min."
            f" {limit.reason}",
            "dashboard_url": f"{link}{{{{ with $labels.model }}}}&model={{{{ . | urlquery }}}}"
            "{{ end }}",
        },
        for_="5m",
    )
