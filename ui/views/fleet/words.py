"""The texts of the Fleet page. Pure HTML. External text is escaped."""

import html
from collections.abc import Sequence
from typing import Final

from telemetry.incidents import IncidentRow
from ui.frame.address import link
from ui.frame.view import View
from ui.kit import wording
from ui.kit.tables import table
from ui.kit.terms import term
from ui.views.fleet.configs import ConfigGroup, shown
from ui.views.fleet.replicas import SLOW_SHARE, FleetReplicas, Imbalance, ReplicaRow

NAMED: Final = 4
EVEN: Final = 1.5
"""The load is even if the busiest server has at most this many times the load of the least busy
server."""


def sentence(found: FleetReplicas, incident: IncidentRow | None = None) -> str:
    """The number of replicas, and the replicas that have problems.

    `incident` is the newest incident in the range, or None.
    """
    number = wording.counted(len(found.replicas), "replica")
    with_problems = found.with_problems
    if not with_problems and incident is None:
        return f"<b>{number}</b>, no problem found."
    if not with_problems and incident is not None:
        named = f"{incident.slo}@{incident.fired_unix_s}"
        href = html.escape(link(View(last=None, page="root-cause", incident=named)))
        return (
            f"<b>{number}</b>: no replica has a problem of its own, but incident"
            f" <b>{wording.for_html(incident.slo, 63)}</b> overlaps this range."
            f" <a href='{href}' target='_self'>Show its cause</a>"
        )
    named = "; ".join(_replica_with_problems(replica) for replica in with_problems[:NAMED])
    rest = len(with_problems) - NAMED
    more = f"; and {rest} more" if rest > 0 else ""
    many = "all" if len(with_problems) == len(found.replicas) else f"{len(with_problems)} of them"
    return f"<b>{number}</b>, {many} with problems: {named}{more}."


def _replica_with_problems(replica: ReplicaRow) -> str:
    what = ", ".join(wording.for_html(problem.what) for problem in replica.problems[:3])
    return f"<b class='name'>{wording.for_html(replica.name)}</b> ({what})"


def imbalance(
    found: Imbalance | None, servers: int, kind: str = "replica", scraped: int = 0
) -> str | None:
    """Whether the load and the latency of the servers are even, or None for a single server.

    `kind` is `replica`, or `engine` if a replica has several engines. `scraped` is the number of
    replicas whose requests may be unknown.
    """
    if servers < 2:
        return None
    if found is None:
        return f"Too few requests to compare the {kind}s’ latency."
    if found.loaded == 1:
        return (
            f"All known requests were served by one {kind}, so the {kind}s’ latency is not"
            " compared."
        )
    ttft = term("ttft_s", "TTFT")
    shares = _shares(found, servers - scraped, kind)
    if not found.hits:
        return (
            f"Latency is even: no {kind}’s requests are among the slowest "
            f"{wording.percent(SLOW_SHARE)} by {ttft} clearly more often than the requests of "
            f"other {kind}s "
            f"({wording.counted(found.requests, 'request')}). {shares}"
        )
    worst = found.hits[0]
    others = len(found.hits) - 1
    verb = "is" if others == 1 else "are"
    more = f" {wording.counted(others, f'more {kind}')} {verb} slow more often." if others else ""
    return (
        f"Latency is uneven: a request on <b>{wording.for_html(worst.value)}</b> is "
        f"<b>{worst.risk_ratio:.1f}×</b> "
        f"<small title='95 % interval'>[{worst.low:.1f} to {worst.high:.1f}]</small> as likely to "
        f"be among the slowest {wording.percent(SLOW_SHARE)} by {ttft} as a request on another "
        f"{kind} ({wording.counted(found.requests, 'request')}).{more} {shares}"
    )


def _shares(found: Imbalance, servers: int, kind: str) -> str:
    least, most = found.least_share, found.most_share
    if (idle := servers - found.loaded) > 0:
        gets = "gets" if idle == 1 else "get"
        return (
            f"The busiest {kind} gets {wording.percent(most)} of the requests, and"
            f" {wording.counted(idle, kind)} {gets} none."
        )
    if most <= EVEN * least:
        return "Load is even."
    return (
        f"The busiest {kind} gets {wording.percent(most)} of the requests, the least busy "
        f"{wording.percent(least)}."
    )


def without_samples(replicas: int, one_in: int) -> str | None:
    """A sentence about replicas with requests but without engine samples.

    1 request in `one_in` was read.
    """
    if not replicas:
        return None
    number = ("At least " if one_in > 1 else "") + wording.counted(replicas, "more replica")
    has, is_ = ("has", "is") if replicas == 1 else ("have", "are")
    return f"{number} {has} requests but no engine samples, and {is_} not compared."


def ignored_filters(labels: Sequence[str]) -> str | None:
    """A sentence about filters that do not apply to engines, or None if there are none."""
    if not labels:
        return None
    listed = " or ".join(labels)
    return (
        f"The filter by {listed} applies only to TTFT and imbalance, because engines report their"
        f" state without {listed}."
    )


def thinned_requests(one_in: int) -> str | None:
    """A sentence about the share of requests that were read, or None if all were read."""
    return f"TTFT and imbalance are computed from 1 in {one_in} requests." if one_in > 1 else None


def configurations(groups: Sequence[ConfigGroup]) -> str:
    """The configurations, with their differences from the most common configuration."""
    if not groups:
        text = "No engine reported its start arguments. The plugin in vLLM sends them."
        return f"<p class='note'>{text}</p>"
    return table(("model", "replicas", "differs in"), map(_row, groups), "configs")


def _row(group: ConfigGroup) -> tuple[str, str, str]:
    version = f" · vLLM {wording.for_html(group.version)}" if group.version else ""
    names = [wording.for_html(name, 24) for name in group.replicas[:NAMED]]
    rest = len(group.replicas) - NAMED
    listed = ", ".join(names) + (f" and {rest} more" if rest > 0 else "")
    differs = "<br>".join(
        f"{wording.for_html(each.argument)}: <b>{wording.for_html(shown(each.after))}</b>, most "
        f"have {wording.for_html(shown(each.before))}"
        for each in group.differs
    )
    config = f"<small>{wording.for_html(group.config, 12)}{version}</small>"
    model = f"{wording.for_html(group.model or 'model unknown')} {config}"
    return model, listed, differs or wording.UNKNOWN
