"""Send invented results of probers in two regions, because a simulated fleet sends no probes."""

import random
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from probe.otlp_spans import message
from telemetry.probes import Probe, ProbeOutcome

REGIONS: Final = {"eu-west": 0.02, "ap-south": 0.18}
"""For each region, the network round-trip time in seconds."""
ENDPOINTS: Final = {"claude": 0.0004, "llama": None}
"""For each endpoint, the price of one probe in US dollars."""
EVERY_S: Final = 1.0
FAILS_ONE_IN: Final = 40


@contextmanager
def send_synthetic_probes(otlp_http_port: int) -> Iterator[None]:
    """Send results every second until the context ends."""
    stop = threading.Event()
    url = f"http://127.0.0.1:{otlp_http_port}/v1/traces"
    thread = threading.Thread(target=_send, args=(url, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


def _send(url: str, stop: threading.Event) -> None:
    chance = random.Random(1)
    while not stop.wait(EVERY_S):
        for region in REGIONS:
            body = message(region, [_probe(region, each, chance) for each in ENDPOINTS])
            request = urllib.request.Request(
                url, body, {"Content-Type": "application/x-protobuf"}, method="POST"
            )
            try:
                urllib.request.urlopen(request, timeout=5).close()
            except OSError:
                continue


def _probe(region: str, endpoint: str, chance: random.Random) -> Probe:
    way_s = REGIONS[region] * chance.uniform(1, 1.2)
    first_s = way_s + chance.uniform(0.05, 0.15)
    answered = chance.randrange(FAILS_ONE_IN) > 0
    known: dict[str, Any] = {
        "trace_id": f"{chance.getrandbits(128):032x}",
        "span_id": f"{chance.getrandbits(64):016x}",
        "at_unix_ns": time.time_ns() - int((3 * way_s + first_s + 1) * 1e9),
        "region": region,
        "endpoint": endpoint,
        "model": "llama-3-8b",
        "kind": "openai-chat",
        "late_s": 0.0002,
        "dns_s": 0.002,
        "connect_s": way_s,
    }
    if not answered:
        return Probe(outcome=ProbeOutcome.ERROR, error_type="tls", error="refused", **known)
    return Probe(
        outcome=ProbeOutcome.LENGTH,
        http_status=200,
        tls_s=way_s,
        first_byte_s=first_s,
        first_event_s=first_s,
        first_content_s=first_s + 0.002,
        itl_max_s=0.03,
        e2e_s=first_s + 0.4,
        output_tokens=16,
        cost_usd=ENDPOINTS[endpoint],
        certificate_ends_unix_s=time.time() + 40 * 86_400,
        **known,
    )
