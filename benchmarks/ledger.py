"""Measure the cost of the step ledger for the engine core, without a server.

    python benchmarks/ledger.py [--steps 3000]

A step takes 10 ms of a simulated clock. The ledger sends accounts every 100 ms, so every tenth step
includes this work. The result is the mean of the cheapest 200 consecutive steps. In a real server,
the ledger costs two to three times as much, because the CPU caches are full of the model's data.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "instrumentation"))

STEP_S = 0.01
STRETCH = 200


class Waiting(list[Any]):
    """A request queue with vLLM's interface."""

    def peek_request(self) -> Any:
        """The next request to admit."""
        return self[0]


def scheduler(ids: list[str], waiting: int, held: int) -> Any:
    """A scheduler with a full batch, so that requests wait."""
    queue = Waiting(
        SimpleNamespace(
            request_id=f"waiting-{number}",
            num_tokens=900,
            status=SimpleNamespace(name="WAITING_FOR_REMOTE_KVS"),
        )
        for number in range(waiting)
    )
    return SimpleNamespace(
        requests={name: SimpleNamespace(num_computed_tokens=900, num_tokens=900) for name in ids},
        has_unfinished_requests=lambda: True,
        running=ids,
        waiting=queue,
        deferred_waiting=set() if not held else dict.fromkeys(range(held), queue[0]).values(),
        max_num_running_reqs=len(ids),
        max_num_scheduled_tokens=8192,
        scheduler_config=SimpleNamespace(enable_chunked_prefill=True),
        finished_recving_kv_req_ids=set(),
        kv_cache_manager=None,
        vllm_config=SimpleNamespace(
            model_config=SimpleNamespace(served_model_name="m"),
            cache_config=SimpleNamespace(block_size=16),
        ),
    )


def cost_us(batch: int, waiting: int, held: int, steps: int) -> float:
    """The microseconds of ledger work per engine step, over the cheapest steps."""
    from tailspan_vllm.engine_core.link import EngineEnd
    from tailspan_vllm.engine_core.observer import EngineObserver

    name = f"benchmark-{os.getpid()}-{batch}-{waiting}-{held}"
    observer = EngineObserver(EngineEnd(name, "engine-0"), 0)
    ids = [f"chatcmpl-{number:032x}" for number in range(batch)]
    engine = scheduler(ids, waiting, held)
    no_requests = SimpleNamespace(num_computed_tokens=[], resumed_req_ids=set())
    cached = SimpleNamespace(num_computed_tokens=[900] * batch, resumed_req_ids=set())
    first = SimpleNamespace(
        num_scheduled_tokens=dict.fromkeys(ids, 900),
        total_num_scheduled_tokens=900 * batch,
        scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in ids],
        scheduled_cached_reqs=no_requests,
    )
    counts = dict.fromkeys(ids, 1)
    stretches, spent, now = [], 0.0, time.monotonic()
    for number in range(steps):
        output = first
        if number:
            output = SimpleNamespace(
                num_scheduled_tokens=counts,
                total_num_scheduled_tokens=batch,
                scheduled_new_reqs=[],
                scheduled_cached_reqs=cached,
            )
        now += STEP_S
        results = {0: SimpleNamespace(timestamp=now)}
        begun = time.perf_counter()
        observer.scheduled(engine, output, now - STEP_S)
        observer.in_update = True
        observer.ended(engine, output, results)
        spent += time.perf_counter() - begun
        if (number + 1) % STRETCH == 0:
            stretches.append(spent / STRETCH)
            spent = 0.0
    return min(stretches) * 1e6


def main() -> int:
    """Measure and print the costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=3000)
    arguments = parser.parse_args()
    print("ledger, per engine step:")
    for batch in (1, 16, 256):
        print(
            f"  {batch:3} decoding                {cost_us(batch, 0, 0, arguments.steps):5.1f} µs"
        )
    for waiting, held in ((1000, 0), (100, 8)):
        cost = cost_us(256, waiting, held, arguments.steps)
        print(f"  256, {waiting:4} waiting, {held} held    {cost:5.1f} µs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
