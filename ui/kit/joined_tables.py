"""Joined requests as HTML, with their phases and hops. Pure. External text is escaped.

The hops are the engines that served the request.
"""

from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Final

from analysis.joined.words import PHASE_NAMES
from telemetry.joined_request import JOINED_PHASES, EngineRole, JoinedRequest, RequestHop, Row
from ui.kit import wording
from ui.kit.request_key import RequestKey
from ui.kit.tables import table

Address = Callable[[RequestKey], str]

PHASE_MEANINGS: Final = {
    "route_s": "client or router, until the first engine queued the request",
    "prefill_queue_s": "waiting in the prefill engine",
    "prefill_s": "computing the prompt",
    "kv_transfer_s": "from the prefill's first token until the decode engine had the KV cache",
    "decode_queue_s": "waiting in the decode engine",
    "decode_s": "generating tokens",
    "delivery_s": "last token → last byte",
}
_MEASURED: Final = {
    "client": "the client",
    "router": "the router",
    "engines": "the engines; the time in the router before and after them is not known",
}
_TIMES: Final = ("queue_s", "prefill_s", "decode_s")
_HEADER: Final = (
    *("engine", "role", "outcome", "queue", "prefill", "decode", "prompt tokens"),
    *("loaded tokens", "E2E", "cost"),
)


def sentence(request: JoinedRequest) -> str:
    """A sentence about how long the user waited, and where this time was measured."""
    whole = f"The user’s request took <b>{wording.seconds(request.e2e_s)}</b>"
    if not request.complete:
        whole += ", and no decode engine has reported it"
    elif request.ttft_s is not None:
        whole += f", its first byte <b>{wording.seconds(request.ttft_s)}</b>"
    again = any(hop.recomputed and hop.role is EngineRole.DECODE for hop in request.hops[1:])
    computed = " The decode engine computed the prompt again." if again else ""
    return f"{whole}. Measured at {_MEASURED[request.basis.value]}.{computed}"


def phases_table(request: JoinedRequest) -> str:
    """A table of the phases and their sum."""
    rows = [
        (
            f"{PHASE_NAMES[phase]}<small> · {PHASE_MEANINGS[phase]}</small>",
            wording.seconds(seconds),
            wording.share(seconds, request.e2e_s),
        )
        for phase in JOINED_PHASES
        if (seconds := request.phases[phase]) is not None
    ]
    whole = ("<b>whole</b>", f"<b>{wording.seconds(request.e2e_s)}</b>", "")
    return table(("phase", "time", "share"), [*rows, whole])


def hops_table(request: JoinedRequest, address: Address) -> str:
    """The engines that served a request. Each row links to the request in its engine's data."""
    return table(_HEADER, [_hop(hop, address) for hop in request.hops], text=(1, 2))


def requests_table(requests: Sequence[JoinedRequest], address: Address, zone: tzinfo) -> str:
    """Joined requests. Each row links to the request in its last engine's data."""
    names = (PHASE_NAMES[phase] for phase in JOINED_PHASES)
    rows = [
        (
            _row_link(each.last, each.last["request_id"], address),
            wording.clock(each.started_unix_ns, zone, date=True),
            wording.for_html(each.label("tenant") or wording.UNKNOWN),
            *(wording.seconds(each.phases[phase]) for phase in JOINED_PHASES),
            f"<b>{wording.seconds(each.ttft_s)}</b>",
            f"<b>{wording.seconds(each.e2e_s)}</b>",
        )
        for each in requests
    ]
    return table(("request", "started", "tenant", *names, "TTFT", "E2E"), rows, text=(2,))


def _hop(hop: RequestHop, address: Address) -> Sequence[str]:
    row = hop.row
    return (
        _row_link(row, hop.server or row["span_id"], address),
        f"{hop.role.value}{', computed the prompt' if hop.recomputed else ''}",
        wording.for_html(str(row["outcome"])),
        *(wording.seconds(row[each]) for each in _TIMES),
        wording.count(row["prompt_tokens"]),
        wording.count(row["external_cached_tokens"]),
        wording.seconds(row["e2e_s"]),
        wording.usd(row["cost_usd"]),
    )


def _row_link(row: Row, name: str | None, address: Address) -> str:
    shown = wording.for_html(name or row["trace_id"], 60)
    return wording.anchor(address(RequestKey.of(row)), shown)
