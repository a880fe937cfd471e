import random
from types import SimpleNamespace

import pytest
from tailspan_vllm import guard

from tests.instrumentation.engine_core.test_observer import Server, held_by

STEPS = 400


class Schedule:
    """A scheduler that prefills in chunks, preempts, and loses requests at any time."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.server = Server()
        self.observer = self.server.observer
        self.observer.ledger._capacity = self.draw.choice([64, 128, 32768])
        self.fresh: set[str] = set()
        self.evicted: set[str] = set()
        self.sent = 0

    def arrive(self) -> None:
        """Add requests; some reuse an id, and some are aborted at once."""
        for _ in range(self.draw.choice([0, 0, 0, 1, 3])):
            self.sent += 1
            name = f"r{max(1, self.sent - self.draw.randint(0, 1))}"
            if name in self.server.requests:
                continue
            self.observer.queued(name)
            if self.draw.random() < 0.1:
                self.observer.freed(name)
                continue
            self.server.add(name, self.draw.randint(1, 300))
            self.fresh.add(name)

    def leave(self, chance: float, among: set[str]) -> None:
        for name in sorted(among):
            if name in self.server.requests and self.draw.random() < chance:
                self.server.free(name)
                self.fresh.discard(name)
                self.evicted.discard(name)

    def plan(self) -> SimpleNamespace:
        """Return a step with most of the requests. It lists a preempted request as resumed or as
        new."""
        requests = self.server.requests
        counts: dict[str, int] = {}
        new, cached, resumed = [], [], set()
        for name, request in requests.items():
            if self.draw.random() < 0.1:
                continue
            left = request.num_tokens - request.num_computed_tokens
            counts[name] = self.draw.randint(1, left) if left > 0 else 1
            if name in self.fresh or (name in self.evicted and self.draw.random() < 0.5):
                new.append(name)
            else:
                cached.append(name)
                if name in self.evicted:
                    resumed.add(name)
        self.fresh -= counts.keys()
        self.evicted -= counts.keys()
        computed = [requests[name].num_computed_tokens for name in cached]
        for name, count in counts.items():
            requests[name].num_computed_tokens += count
        return SimpleNamespace(
            num_scheduled_tokens=counts,
            total_num_scheduled_tokens=sum(counts.values()),
            scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in new],
            scheduled_cached_reqs=SimpleNamespace(
                num_computed_tokens=computed, resumed_req_ids=resumed
            ),
        )

    def preempt(self) -> None:
        """Preempt some requests, which are then computed again from the start."""
        for name, request in self.server.requests.items():
            request.num_tokens = max(request.num_tokens, request.num_computed_tokens)
            waits = name in self.fresh or name in self.evicted
            if not waits and self.draw.random() < 0.04:
                request.num_computed_tokens = 0
                self.observer.preempted(name)
                self.evicted.add(name)

    def step(self) -> None:
        server = self.server
        self.arrive()
        output = self.plan()
        self.observer.scheduled(server.scheduler, output, server.now)
        self.leave(0.03, set(server.requests))
        server.now += self.draw.choice([0, 0.01, 0.01, 0.01, 0.2])
        self.observer.in_update = True
        self.leave(0.05, set(output.num_scheduled_tokens))
        results = {0: SimpleNamespace(timestamp=server.now)}
        self.observer.ended(server.scheduler, output, results)
        self.preempt()


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_leaves_tracked_requests(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tailspan_vllm.engine_core.engine_reports.fingerprint", lambda config: "c0ffee"
    )
    before = dict(guard.failures)
    schedule = Schedule(seed)
    for _ in range(STEPS):
        schedule.step()
    schedule.leave(1.0, set(schedule.server.requests))
    assert len(schedule.server.front.accounts) > 100
    assert dict(guard.failures) == before
    assert held_by(schedule.observer) == 0
