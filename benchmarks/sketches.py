"""Measure the cost and error of two quantile sketches: Tailspan's and DataDog's ddsketch.

    python benchmarks/sketches.py [--values 200000]

Both sketches run alternately in one process. ddsketch is installed into a separate folder.
"""

import argparse
import importlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from telemetry.quantiles import quantile  # noqa: E402  # found through sys.path
from telemetry.sketches import Sketch  # noqa: E402

THEIRS = "ddsketch==3.0.1"
ROUNDS = 5
SHARES = (0.5, 0.95, 0.99, 0.999)


def ddsketch(folder: str) -> Any:
    """Install ddsketch into a folder, and return its class."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, THEIRS]
    subprocess.run(pip, check=True)
    sys.path.append(folder)
    return importlib.import_module("ddsketch").DDSketch


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def each_by_itself(add: Callable[[float], None], values: list[float]) -> None:
    """Call `add` for each value."""
    for value in values:
        add(value)


def main() -> int:
    """Measure and print the costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=200_000, help="a round")
    number = parser.parse_args().values
    with TemporaryDirectory() as folder:
        compare(ddsketch(folder), number)
    return 0


def compare(theirs_class: Any, number: int) -> None:
    """Run both sketches on the same values."""
    column = np.random.default_rng(1).lognormal(-1, 1, number)
    values = column.tolist()
    times: dict[str, list[float]] = {"ddsketch, singly": [], "ours, singly": [], "ours, column": []}
    for _ in range(ROUNDS):
        theirs, singly, at_once = theirs_class(0.01), Sketch(), Sketch()
        times["ddsketch, singly"].append(seconds(partial(each_by_itself, theirs.add, values)))
        times["ours, singly"].append(seconds(partial(each_by_itself, singly.add, values)))
        times["ours, column"].append(seconds(partial(at_once.add_column, column)))
    print(f"CPU a value, medians over {ROUNDS} rounds of {number:,} lognormal values:")
    unit_s = statistics.median(times["ddsketch, singly"])
    for name, each in times.items():
        median_s = statistics.median(each)
        print(f"  {name:18} {median_s / number * 1e9:7.0f} ns   ratio {median_s / unit_s:.3f}")
    print("off from the exact quantile:")
    for q in SHARES:
        exact = quantile(column, q)
        ours = at_once.quantile_s(q)
        assert exact is not None
        assert ours is not None
        off = [abs(estimate / exact - 1) for estimate in (theirs.get_quantile_value(q), ours)]
        print(f"  p{q * 100:g}: ddsketch {off[0]:.2%}, ours {off[1]:.2%}")


if __name__ == "__main__":
    sys.exit(main())
