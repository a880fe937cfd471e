"""Send requests to several collectors, as a load balancer does.

If a collector does not acknowledge a message, the sender sends it to the next collector.
"""

import random
import threading
import time
from collections.abc import Sequence

import requests
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.otlp.encoder import encode
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.record import RequestRecord

from benchmarks._collectors import Collectors
from rig.program import PATIENCE_S

TIMEOUT_S = 2.0
"""Seconds that a sender waits for a collector."""
EACH = 6
"""Number of requests of each model per message."""


class CollectorTraffic:
    """Threads that send requests, for a `with` statement.

    `every_s` is the pause between two messages in seconds.
    """

    def __init__(self, collectors: Collectors, models: Sequence[str], every_s: float = 0.2) -> None:
        self.slow: set[str] = set()
        """The models whose requests miss their objective."""
        self.acknowledged: set[str] = set()
        """Trace ids that were acknowledged."""
        self._collectors = collectors
        self._models = models
        self._every_s = every_s
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(3)]

    def __enter__(self) -> "CollectorTraffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        with requests.Session() as session:
            session.trust_env = False
            while not self._stop.wait(self._every_s):
                body, ids = self._message(chance)
                at = chance.randrange(len(self._collectors.ports))
                deadline_s = time.monotonic() + PATIENCE_S
                while not (sent := self._sent(session, body, at)) and time.monotonic() < deadline_s:
                    at = (at + 1) % len(self._collectors.ports)
                if sent:
                    self.acknowledged.update(ids)

    def _sent(self, session: requests.Session, body: bytes, at: int) -> bool:
        url = f"http://127.0.0.1:{self._collectors.ports[at]}/v1/traces"
        headers = {"Content-Type": "application/x-protobuf"}
        try:
            return session.post(url, body, headers=headers, timeout=TIMEOUT_S).status_code == 200
        except requests.RequestException:
            return False

    def _message(self, chance: random.Random) -> tuple[bytes, set[str]]:
        resource = Resource({names.SERVICE_NAME: "vllm", names.SERVICE_INSTANCE_ID: "vllm-0"})
        records = [
            record(chance, model, 2.0 if model in self.slow else 0.1)
            for model in self._models
            for _ in range(EACH)
        ]
        ids = {f"{each.trace_id:032x}" for each in records}
        return bytes(encode([span_of(each, resource) for each in records])), ids


def record(chance: random.Random, model: str, ttft_s: float) -> RequestRecord:
    """A request that ends now."""
    now = time.monotonic()
    began = now - ttft_s - 0.1
    return RequestRecord(
        received=began,
        queued=began + 0.01,
        scheduled=began + 0.02,
        first_token=now - 0.1,
        first_byte=now - 0.1,
        last_token=now,
        delivered=now,
        wall_offset_ns=time.time_ns() - time.monotonic_ns(),
        outcome="stop",
        basis="http",
        trace_id=chance.getrandbits(128) or 1,
        span_id=chance.getrandbits(64) or 1,
        request_id=f"chatcmpl-{chance.getrandbits(64):016x}",
        model=model,
        output_tokens=10,
        streamed=True,
    )
