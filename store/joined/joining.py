"""Join rows of engines to joined requests. Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from store.joined.grouping import Chain, chains, end_ns
from store.joined.phases import phases_s
from store.joined.placement import Axis, Placed, generated_ns, placed
from store.joined.roles import Roles
from telemetry.joined_request import EngineRole, JoinedBasis, JoinedRequest, RequestHop, Row


class Outside(NamedTuple):
    """What a client or router reports about a request, on its own clock."""

    start_unix_ns: int
    e2e_s: float
    ttft_s: float | None
    basis: JoinedBasis


class ChainTimes(NamedTuple):
    """The hops of a chain on one time axis, and the times of the user's request in seconds."""

    axis: Axis
    hops: Sequence[Placed]
    e2e_s: float
    ttft_s: float | None
    first_content_s: float | None


FindOutside = Callable[[Chain], Sequence[Outside]]
"""Returns the reports about a chain, the best report first."""


def joined_requests(
    rows: Iterable[Row], roles: Roles, outside: FindOutside = lambda chain: ()
) -> list[JoinedRequest]:
    """The joined requests that passed through a prefill or a decode engine.

    Args:
        rows: rows of engines, without duplicates.
        outside: returns the reports about a chain. A report is ignored if it is shorter than the
            time of a hop until its last token, except for a prefill that overlaps the last hop.
    """
    found = [_join_chain(chain, outside(chain)) for chain in chains(rows, roles)]
    return sorted(found, key=lambda each: each.started_unix_ns)


def times_of(chain: Chain, report: Outside | None = None) -> ChainTimes:
    """The times of a chain's request. `report` is a client's or router's report about it."""
    last = chain.links[-1].row
    axis = None
    if report is not None:
        axis = Axis(report.start_unix_ns, report.start_unix_ns + round(report.e2e_s * 1e9))
    axis, hops = placed(chain.links, axis)
    e2e_s = (axis.end_ns - axis.start_ns) / 1e9
    ttft_s = None
    if hops[-1].link.role is EngineRole.DECODE and last["ttft_s"] is not None:
        ttft_s = (hops[-1].start_ns - axis.start_ns) / 1e9 + last["ttft_s"]
        if report is not None and report.ttft_s is not None and last["streamed"] is not False:
            ttft_s = report.ttft_s
        ttft_s = min(ttft_s, e2e_s)
    return ChainTimes(axis, hops, e2e_s, ttft_s, _first_content_s(last, ttft_s, e2e_s))


def _join_chain(chain: Chain, reports: Sequence[Outside]) -> JoinedRequest:
    longest_s = max(map(generated_ns, _rows_within_a_report(chain))) / 1e9
    report = next((each for each in reports if each.e2e_s >= longest_s), None)
    axis, hops, e2e_s, ttft_s, first_content_s = times_of(chain, report)
    first_byte_ns = axis.start_ns + round((ttft_s or 0.0) * 1e9)
    phases, until_first_byte = phases_s(axis, hops, first_byte_ns)
    return JoinedRequest(
        started_unix_ns=axis.start_ns,
        hops=tuple(map(_hop, hops)),
        phases=phases,
        ttft_s=ttft_s,
        ttft_phases=None if ttft_s is None else until_first_byte,
        first_content_s=first_content_s,
        e2e_s=e2e_s,
        basis=JoinedBasis.ENGINES if report is None else report.basis,
        joined_by=chain.joined_by,
    )


def _rows_within_a_report(chain: Chain) -> list[Row]:
    """Return the rows of the hops that a report about the request must be long enough to contain.

    A prefill that overlaps the last hop is left out: if a router calls both engines at the same
    time, the prefill engine may record its token after the decode engine has answered.
    """
    last = chain.links[-1].row
    within = [
        link.row
        for link in chain.links[:-1]
        if link.role is not EngineRole.PREFILL
        or end_ns(link.row) <= last["received_unix_ns"]
        or end_ns(last) <= link.row["received_unix_ns"]
    ]
    return [*within, last]


def _first_content_s(last: Row, ttft_s: float | None, e2e_s: float) -> float | None:
    """Return the user's TTFT plus the decode engine's time from the first byte to the first
    content."""
    if ttft_s is None or last["first_content_s"] is None:
        return None
    after_s = max(0.0, last["first_content_s"] - last["ttft_s"])
    return float(min(ttft_s + after_s, e2e_s))


def _hop(hop: Placed) -> RequestHop:
    shift_s = (hop.start_ns - int(hop.link.row["received_unix_ns"])) / 1e9
    return RequestHop(hop.link.row, hop.link.role, hop.recomputed, shift_s)
