"""Joined requests as HTML: their phases, and their hops (the engines that served them).

Pure; external text is escaped.
"""

import html
from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Final

from analysis.joined.words import PHASE_NAMES
from store.joined.joined_request import JOINED_PHASES, EngineRole, JoinedRequest, RequestHop, Row
from ui.kit import wording
from ui.kit.request_key import RequestKey

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
    """A sentence: how long the user waited, and where this was measured."""
    whole = f"The user’s request took <b>{wording.seconds(request.e2e_s)}</b>"
    if not request.complete:
        whole += ", and no decode engine has reported it"
    elif request.ttft_s is not None:
        whole += f", its first byte <b>{wording.seconds(request.ttft_s)}</b>"
    again = any(hop.recomputed and hop.role is EngineRole.DECODE for hop in request.hops[1:])
    computed = " The decode engine computed the prompt again." if again else ""
    return f"{whole}. Measured at {_MEASURED[request.basis.value]}.{computed}"


def phases_table(request: JoinedRequest) -> str:
    """The phases and their sum as a table."""
    rows = "".join(
        f"<tr><td>{PHASE_NAMES[phase]}<small> · {PHASE_MEANINGS[phase]}</small></td>"
        f"<td>{wording.seconds(seconds)}</td><td>{_share(seconds, request.e2e_s)}</td></tr>"
        for phase in JOINED_PHASES
        if (seconds := request.phases[phase]) is not None
    )
    return (
        "<table class='data'><thead><tr><th>phase</th><th>time</th><th>share</th></tr></thead>"
        f"<tbody>{rows}<tr><td><b>whole</b></td><td><b>{wording.seconds(request.e2e_s)}</b></td>"
        "<td></td></tr></tbody></table>"
    )


def hops_table(request: JoinedRequest, address: Address) -> str:
    """The engines that served a request. A row links to the request as this engine reported it."""
    rows = "".join(_hop(hop, address) for hop in request.hops)
    header = "".join(f"<th>{name}</th>" for name in _HEADER)
    return f"<table class='data'><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>"


def requests_table(requests: Sequence[JoinedRequest], address: Address, zone: tzinfo) -> str:
    """Joined requests. A row links to the request as its last engine reported it."""
    names = "".join(f"<th>{PHASE_NAMES[phase]}</th>" for phase in JOINED_PHASES)
    rows = "".join(
        f"<tr><td>{_row_link(each.last, each.last['request_id'], address)}</td>"
        f"<td>{wording.clock(each.started_unix_ns, zone, date=True)}</td>"
        f"<td class='text'>{wording.for_html(each.label('tenant') or wording.UNKNOWN)}</td>"
        + "".join(f"<td>{wording.seconds(each.phases[phase])}</td>" for phase in JOINED_PHASES)
        + f"<td><b>{wording.seconds(each.ttft_s)}</b></td>"
        f"<td><b>{wording.seconds(each.e2e_s)}</b></td></tr>"
        for each in requests
    )
    return (
        f"<table class='data'><thead><tr><th>request</th><th>started</th><th>tenant</th>{names}"
        f"<th>TTFT</th><th>E2E</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _hop(hop: RequestHop, address: Address) -> str:
    row = hop.row
    name = hop.server or row["span_id"]
    role = f"{hop.role.value}{', computed the prompt' if hop.recomputed else ''}"
    return (
        f"<tr><td>{_row_link(row, name, address)}</td><td class='text'>{role}</td>"
        f"<td class='text'>{wording.for_html(str(row['outcome']))}</td>"
        + "".join(f"<td>{wording.seconds(row[each])}</td>" for each in _TIMES)
        + f"<td>{wording.count(row['prompt_tokens'])}</td>"
        f"<td>{wording.count(row['external_cached_tokens'])}</td>"
        f"<td>{wording.seconds(row['e2e_s'])}</td><td>{wording.usd(row['cost_usd'])}</td></tr>"
    )


def _row_link(row: Row, name: str | None, address: Address) -> str:
    key = RequestKey(row["received_unix_ns"], row["trace_id"], row["span_id"])
    shown = wording.for_html(name or row["trace_id"], 60)
    return f"<a href='{html.escape(address(key))}' target='_self'>{shown}</a>"


def _share(seconds: float, whole_s: float) -> str:
    return wording.percent(seconds / whole_s) if whole_s > 0 else ""
