"""Measure how long it takes to replay an hour of a replica's traffic.

    python benchmarks/replay.py

The traffic is 10 requests/s with the lengths and prefixes of the simulator's conversations. The
exit status is 1 if a limit is exceeded.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np  # needs the path inserted above

from replay import reference
from replay.arrivals import Arrivals, Prefixes
from replay.engine_config import EngineConfig
from replay.loop import replay, warm
from replay.server_model import ServerModel
from simulator.workload import Workload

ROOT = Path(__file__).parent.parent
RATE_PER_S = 10.0
ONE_S, FIFTY_S = 1.0, 60.0
"""Limits in seconds: for one replay, and for 50 replays on two cores."""
REPLAYS, CORES = 50, 2
REFERENCE_S = 300.0


def hour(duration_s: float = 3600.0) -> Arrivals:
    """The traffic of one replica."""
    requests = list(Workload(rate_per_s=RATE_PER_S).arrivals("replay", 0.0, duration_s))
    shared = [request.prefix for request in requests]
    names = sorted({prefix.name for prefix in shared if prefix})
    return Arrivals(
        received_s=np.array([request.at_s for request in requests]),
        prompt_tokens=np.array([request.prompt_tokens for request in requests]),
        output_tokens=np.array([request.output_tokens for request in requests]),
        prefixes=Prefixes(
            offsets=np.cumsum([0, *(prefix is not None for prefix in shared)]),
            keys=np.array([names.index(prefix.name) for prefix in shared if prefix]),
            end_tokens=np.array([prefix.tokens for prefix in shared if prefix]),
        ),
    )


def warming_s() -> tuple[float, float]:
    """CPU seconds of a process that compiles the replay's loop, and of a process that reads it from
    the cache."""
    code = "import time; from replay.loop import warm; warm(); print(time.process_time())"
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONPATH": str(ROOT)}
        first, second = (
            float(subprocess.check_output([sys.executable, "-c", code], env=environment))
            for _ in range(2)
        )
    return first, second


def main() -> int:
    """Print the measurements. Return 1 if a limit is exceeded."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    compiling_s, loading_s = warming_s()
    print(f"warm(), once for each version: {compiling_s:.1f} s of CPU; then {loading_s:.1f} s")
    warm()
    traffic, model = hour(), ServerModel()
    took, clock, out = [], [], replay(model, traffic)
    for number in range(5):
        begun, at = time.process_time(), time.perf_counter()
        out = replay(model, traffic, str(number))
        took.append(time.process_time() - begun)
        clock.append(time.perf_counter() - at)
    one_s = float(np.median(took))
    print(
        f"{len(traffic):,} requests, {out.engines.steps[0]:,} steps: {one_s:.2f} s of CPU, "
        f"{np.median(clock):.2f} s on the clock (limit: {ONE_S:.0f} s)"
    )
    tight = ServerModel(engine=EngineConfig(num_gpu_blocks=2_100))
    begun = time.process_time()
    out = replay(tight, traffic)
    print(
        f"the same with {tight.engine.num_gpu_blocks:,} KV blocks and "
        f"{out.engines.preemptions[0]:,} preemptions: {time.process_time() - begun:.2f} s of CPU"
    )
    minutes = traffic.select(np.nonzero(traffic.received_s < REFERENCE_S)[0])
    begun = time.process_time()
    slow = reference.replay(model, minutes)
    reference_s = (time.process_time() - begun) * 3600 / REFERENCE_S
    same = np.abs(replay(model, minutes).e2e_s - slow.e2e_s).max()
    print(
        f"the reference in plain Python: {reference_s:.0f} s of CPU per hour, "
        f"{reference_s / one_s:.0f} times as long; largest difference of an E2E: {same:.1e} s"
    )
    begun, at = time.process_time(), time.perf_counter()
    edits = [
        replace(model, engine=replace(model.engine, max_num_seqs=40 + 4 * n))
        for n in range(REPLAYS)
    ]
    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(lambda each: replay(each, traffic), edits))
    fifty_s = (time.process_time() - begun) / CORES
    print(
        f"{REPLAYS} replays with other arguments on {CORES} cores: {fifty_s:.1f} s of CPU on each, "
        f"{time.perf_counter() - at:.1f} s on the clock (limit: {FIFTY_S:.0f} s)"
    )
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0 if one_s <= ONE_S and fifty_s <= FIFTY_S else 1


if __name__ == "__main__":
    sys.exit(main())
