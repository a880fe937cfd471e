"""Rules on probes.

An alert fires if an endpoint fails, is slow from one region, or has a certificate that expires
soon. A silent prober triggers an alert too. Regions are compared if their probers' configuration
files use the same name for an endpoint.

Several collectors may receive the results of one endpoint. Each collector exports the latest result
that it received. So the rules never sum the series of several collectors, and an endpoint counts as
failed only if it fails at every collector.
"""

from typing import Final

from alerts.prometheus.rulefile import AlertingRule, RecordingRule, RuleGroup, label_text, literal

WAIT: Final = "probe:tailspan_wait:seconds"
"""The client's wait for the whole answer, including the set-up of the connection."""
SLOWER: Final = "2"
"""A slow wait exceeds this multiple of the wait in the previous 6 h."""
NOTICED_S: Final = "0.1"
"""Users do not notice a delay of fewer seconds (Nielsen, Usability Engineering, 1993, ch. 5)."""
CERTIFICATE_S: Final = 7 * 86_400
"""An ACME client renews a certificate when a third of its validity is left: 15 of 45 days (Let's
Encrypt, "Integration Guide"). If only 7 days are left, the renewal has failed for about a week."""

REMEMBERED: Final = "1h"
"""If a prober has been silent for longer than this, it was probably removed on purpose."""
_RESULTS: Final = "tailspan_probe_results_total"
_UNSENT: Final = '{outcome=~"missed|over_budget"}'
_SENT: Final = '{outcome!~"abort|missed|over_budget"}'
SILENT: Final = (
    f"count by (region) (max_over_time(tailspan_probe_success[{REMEMBERED}]))\n"
    "unless on (region) count by (region) (tailspan_probe_success)\n"
    f"unless on (region) sum by (region) (increase({_RESULTS}{_UNSENT}[{REMEMBERED}])) > 0\n"
    f"and on (region) max by (region) (sum by (region, endpoint, model) ({_RESULTS}{_SENT})) > 1\n"
)
"""A prober stopped reporting. The exporter omits an endpoint's results after three missing probes,
at the earliest after 5 min. `_SENT` excludes endpoints with a single result, whose interval is
unknown. `_UNSENT` excludes probers whose budget is spent."""

ENDPOINT: Final = label_text("endpoint")
REGION: Final = label_text("region")


def probe_group(explorer_url: str) -> RuleGroup:
    """Rules on probes."""
    link = f"{literal(explorer_url.rstrip('/'))}/?last=1h"

    def alert(
        name: str, expr: str, for_: str, severity: str, summary: str, do: str
    ) -> AlertingRule:
        return AlertingRule(
            name,
            expr,
            {"severity": severity},
            {"summary": summary, "description": do, "dashboard_url": link},
            for_=for_,
        )

    now, usual = f"avg_over_time({WAIT}[10m])", f"avg_over_time({WAIT}[6h] offset 10m)"
    slow = f"({now} > {SLOWER} * {usual} and {now} - {usual} > {NOTICED_S})"
    by = "by (endpoint, model)"
    return RuleGroup(
        "tailspan-probes",
        "30s",
        [
            RecordingRule(
                WAIT,
                "avg by (region, endpoint, model)"
                " (sum without (phase) (tailspan_probe_duration_seconds))",
            ),
            alert(
                "TailspanProbeFails",
                "max by (region, endpoint, model) (max_over_time(tailspan_probe_success[5m])) == 0",
                "5m",
                "page",
                f"{ENDPOINT} gives no answer to {REGION}",
                "No probe from this region has received a complete answer for 10 min. `tailspan"
                " probe` prints the reason of each failure. If other regions get answers, check"
                " the network of this region. If they do not, check the endpoint.",
            ),
            alert(
                "TailspanProberSilent",
                SILENT,
                "5m",
                "ticket",
                f"The prober in {REGION} has stopped reporting",
                "No endpoint has had a result for three probe intervals, so objectives on probes"
                " do not see this region. Check whether `tailspan probe` still runs, and"
                " whether it can reach Tailspan.",
            ),
            alert(
                "TailspanProbeSlowFromOneRegion",
                f"{slow}\n"
                f"and on (endpoint, model) count {by} {slow} == 1\n"
                f"and on (endpoint, model) count {by} ({now}) > 1\n",
                "5m",
                "ticket",
                f"{ENDPOINT} is slow from {REGION} only",
                "Answers to this region take more than twice as long as in the previous 6 h."
                " Answers to the other regions do not. The phases of"
                " tailspan_probe_duration_seconds show where: resolve, connect and tls are the"
                " network; processing is the network and the server.",
            ),
            alert(
                "TailspanCertificateEnds",
                "min by (endpoint) (tailspan_probe_ssl_earliest_cert_expiry) - time()"
                f" < {CERTIFICATE_S}",
                "1h",
                "ticket",
                f"{ENDPOINT}: the certificate expires in {{{{ $value | humanizeDuration }}}}",
                "After that, clients refuse to connect. An automatic renewal would have happened"
                " earlier, so it probably failed.",
            ),
        ],
    )
