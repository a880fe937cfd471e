"""Rules on the P99 of the last minutes, for those who have no objective yet.

They make tickets: that one request in a hundred is slow says neither how many users that were
nor for how long, which is what an objective's burn tells. The quantiles are those of
`/metrics`, within 1 % and of all replicas of a model together; nothing is averaged.

Where too few requests tell of the P99, a lower quantile may be known. If that one is above
the limit, so is the P99: the greatest of a model's quantiles that there are decides.
"""

from typing import Final, NamedTuple

from alerts.prometheus.rulefile import Alert, Group, label_text, literal


class Limit(NamedTuple):
    """What a P99 should stay under, and why there."""

    alert: str
    series: str
    """On `/metrics`, by model and quantile."""
    latency: str
    """The explorer's name of it."""
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
        "After 1 s a reader's train of thought breaks; this is twice as long.",
    ),
    Limit(
        "TailspanTpotP99High",
        "tailspan_recent_model_tpot_seconds",
        "tpot",
        "TPOT",
        "0.2",
        # Brysbaert, J. Mem. Lang. 109, 2019: 238 words a minute; a word takes some 1.3 tokens.
        "At 5 tokens/s an answer comes no faster than it is read (238 words a minute).",
    ),
    Limit(
        "TailspanE2eP99High",
        "tailspan_recent_model_e2e_seconds",
        "e2e",
        "E2E",
        "60",
        # nginx' proxy_read_timeout and AWS' idle timeout of load balancers, both 60 s.
        "Proxies and load balancers give up on a silent connection after 60 s, unless told"
        " otherwise.",
    ),
    Limit(
        "TailspanQueueP99High",
        "tailspan_recent_model_queue_seconds",
        "queue",
        "queue time",
        "1",
        "Half of what TTFT may take is then spent before any work begins: no faster model mends"
        " that, only capacity or admission.",
    ),
)
"""Where one is wrong for you, make an objective of what is right, and silence it."""


def latency_group(explorer_url: str) -> Group:
    """The rules."""
    return Group("tailspan-latency", "30s", [_alert(each, explorer_url) for each in LIMITS])


def _alert(limit: Limit, explorer_url: str) -> Alert:
    link = f"{literal(explorer_url.rstrip('/'))}/?last=1h&latency={limit.latency}&page=root-cause"
    return Alert(
        limit.alert,
        f"max by (model) ({limit.series}) > {limit.limit_s}",
        {"severity": "ticket"},
        {
            "summary": f"{label_text('model')}: P99 of {limit.title} is above {limit.limit_s} s",
            "description": f"At least {{{{ $value | humanizeDuration }}}} over the last 5 min, for"
            f" five minutes. {limit.reason}",
            "dashboard_url": f"{link}{{{{ with $labels.model }}}}&model={{{{ . | urlquery }}}}"
            "{{ end }}",
        },
        for_="5m",
    )
