"""Measures how much faster than real time the simulator runs.

    python benchmarks/simulator.py [--minutes 10]

First, one replica with 5 requests/s is simulated. The replica's rows and samples are kept in
memory, as in the cases of `diagnosis.py`. Then each fault is simulated, with two replicas.
Durations are CPU time of one core. The exit status is 1 if the speed is below the limit.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from simulator.dataset import run  # needs the path inserted above
from simulator.faults import CAUSES, SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload

LIMIT = 100.0
"""Minimum speed as a multiple of real time, for one replica at 5 requests/s without a fault."""


def measure(config: FleetConfig) -> tuple[float, int, int]:
    """Return the simulated seconds of one replica per CPU second, and the number of requests and
    samples."""
    begun = time.process_time()
    dataset = run(config)
    took_s = time.process_time() - begun
    simulated_s = (config.duration_s or 0.0) * dataset.config.replicas
    made = len(dataset.samples) + len(dataset.gpus)
    return simulated_s / took_s, len(dataset.requests), made


def main() -> int:
    """Print one line per case, and return 1 if the first case is slower than the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="simulated; default 10")
    duration_s = parser.parse_args().minutes * 60
    one = FleetConfig(replicas=1, workload=Workload(rate_per_s=5.0), duration_s=duration_s)
    run(replace(one, duration_s=30.0))  # warm up
    ratio, requests, samples = measure(one)
    verdict = "ok" if ratio >= LIMIT else "TOO SLOW"
    print(
        f"1 replica, 5 requests/s: {ratio:.0f}× real time (limit: at least {LIMIT:.0f}×) {verdict};"
        f" {requests} requests, {samples} samples"
    )
    for cause in CAUSES:
        fault = SimulatedFault(cause=cause, start_s=duration_s / 4)
        case = FleetConfig(duration_s=duration_s / 2, faults=(fault,))
        each, requests, samples = measure(case)
        print(f"  {cause:24}{each:6.0f}× for each replica; {requests} requests, {samples} samples")
    return 0 if ratio >= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
