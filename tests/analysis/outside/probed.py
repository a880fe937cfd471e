"""Probes of two endpoints from two regions, and rows of one endpoint's server."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from store.database import open_database
from store.writer import Writer
from telemetry.probes import PROBE_TENANT, Probe, ProbeOutcome
from telemetry.requests import RequestTimeline
from tests.probe.results import EXAMPLE

NS = 10**9
START_S = 1_763_634_000
LENGTH_S = 3_600
EVERY_S = 30
NETWORK_S = {"eu-west": 0.02, "ap-south": 0.2}
REFUSED = "the connection was refused"


def probe(number: int, **changes: Any) -> Probe:
    """A probe without reasoning."""
    return replace(
        EXAMPLE,
        **{
            "trace_id": f"{number + 1:032x}",
            "span_id": f"{number + 1:016x}",
            "request_id": f"chatcmpl-{number}",
            "first_reasoning_s": None,
            "error": None,
            "error_type": None,
            **changes,
        },
    )


def failed(number: int, **changes: Any) -> Probe:
    measured = ("first_byte_s", "first_event_s", "first_content_s", "e2e_s", "itl_max_s")
    known = {"error": REFUSED, "error_type": "connect", "outcome": ProbeOutcome.ERROR}
    return probe(number, **{**dict.fromkeys((*measured, "cost_usd")), **known, **changes})


def probes() -> Iterator[Probe]:
    """Yield an hour of probes of chat, which is self-hosted, and claude, which is managed.

    The last probes of claude fail from ap-south.
    """
    number = 0
    for step in range(LENGTH_S // EVERY_S):
        for place, (region, network_s) in enumerate(NETWORK_S.items()):
            for endpoint in ("chat", "claude"):
                number += 1
                first_s = network_s + (0.05 if step % 2 else 0.1)
                changes: dict[str, Any] = {
                    "region": region,
                    "endpoint": endpoint,
                    "at_unix_ns": (START_S + step * EVERY_S) * NS + place * 10**8,
                    "twin": step % 2 == 1,
                    "connect_s": network_s,
                    "cost_usd": 0.001 if endpoint == "claude" else None,
                    "cached_tokens": 64 if step % 2 else 0,
                }
                if endpoint == "claude" and region == "ap-south" and step >= 110:
                    yield failed(number, **changes)
                else:
                    times = {"first_event_s": first_s, "first_content_s": first_s + 0.01}
                    yield probe(number, **changes, **times, e2e_s=first_s + 0.3)


def rows(request_row: Callable[..., RequestTimeline], of: list[Probe]) -> list[RequestTimeline]:
    """Return the rows of the server of chat, whose clock is a minute behind."""
    return [
        request_row(
            number,
            trace_id=each.trace_id,
            request_id=each.request_id,
            tenant=PROBE_TENANT,
            received_unix_ns=each.at_unix_ns - 60 * NS,
            ttft_s=(each.first_event_s or 0.0) - NETWORK_S[each.region or ""],
            e2e_s=(each.first_event_s or 0.0) - NETWORK_S[each.region or ""] + 0.3,
            streamed=True,
        )
        for number, each in enumerate(of)
        if each.endpoint == "chat" and each.first_event_s is not None
    ]


def store(url: str, results: list[Probe], server: list[RequestTimeline]) -> None:
    engine = open_database(url)
    with Writer(engine) as writer:
        writer.submit(server, [], probes=results).result(60)
    engine.dispose()
