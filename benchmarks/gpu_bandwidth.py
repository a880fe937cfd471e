"""Memory bandwidth as our reader measures it, against bytes that are known.

    python benchmarks/gpu_bandwidth.py [--gib 1] [--seconds 5]

PyTorch copies one half of some memory to the other, at 25, 50, 75 and 100 % of the time; each
copy reads and writes all of it. How many copies there were between two looks of the reader is
counted, so the known rate does not depend on how well the pauses were kept. The memory is many
times the GPU's cache. The bar: within 10 %.

On a machine without an NVIDIA GPU of Hopper's age or newer, or without PyTorch, it says so and
ends with status 0.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from collector.gpus.nvml import NvmlReader  # found by the line above
from collector.gpus.reading import ReaderError, Told

DUTIES = (0.25, 0.5, 0.75, 1.0)
BAR = 0.1
LOOK_S = 1.0
FIELD = "dram_bandwidth_bytes_per_s"


class Point(NamedTuple):
    """One duty: bytes a second, known and measured; medians over the looks."""

    duty: float
    known_bytes_per_s: float
    measured_bytes_per_s: float

    @property
    def ratio(self) -> float:
        """Measured to known."""
        return self.measured_bytes_per_s / self.known_bytes_per_s


def measure(
    duty: float,
    copy: Callable[[], float],
    look: Callable[[], float | None],
    looks: int,
    copied_bytes: float,
    clock: Callable[[], float] = time.perf_counter,
    pause: Callable[[float], object] = time.sleep,
) -> Point | None:
    """Copy for so many looks.

    Args:
        duty: share of the time to copy in.
        copy: copies some times, waits for the end, and says how many times.
        look: what the reader measured since the last look, in bytes a second; None for nothing.
        looks: how many to take.
        copied_bytes: what one copy moves, reading and writing.
        clock: monotonic seconds.
        pause: waits.

    Returns:
        None where the reader told nothing.
    """
    known, measured = [], []
    look()
    for _ in range(looks):
        begun_s = clock()
        copies = 0.0
        while clock() - begun_s < LOOK_S:
            before_s = clock()
            copies += copy()
            pause((clock() - before_s) * (1 / duty - 1))
        told = look()
        taken_s = clock() - begun_s
        if told is not None:
            known.append(copies * copied_bytes / taken_s)
            measured.append(told)
    if not known:
        return None
    return Point(duty, statistics.median(known), statistics.median(measured))


def table(points: Sequence[Point]) -> list[str]:
    """As it is printed."""
    lines = ["  duty  known TB/s  measured TB/s  ratio"]
    lines += [
        f"{each.duty:>5.0%}  {each.known_bytes_per_s / 1e12:>10.3f}"
        f"  {each.measured_bytes_per_s / 1e12:>13.3f}  {each.ratio:>5.3f}"
        for each in points
    ]
    worst = max(abs(each.ratio - 1) for each in points)
    kept = "kept" if worst <= BAR else "MISSED"
    return [*lines, f"bar: within {BAR:.0%}; the worst is {worst:.1%} off: {kept}"]


def why_not() -> str | None:
    """Why nothing can be measured here; None where it can."""
    reader = NvmlReader()
    try:
        gpus = reader.read().gpus
    except ReaderError as error:
        return f"no NVIDIA GPU: {error}"
    finally:
        reader.close()
    if not any("older" not in str(gpu.absent.get(FIELD, "")) for gpu in gpus):
        return "no NVIDIA GPU of Hopper's age or newer"
    try:
        import torch
    except ImportError:
        return "no PyTorch: pip install torch"
    return None if torch.cuda.is_available() else "PyTorch finds no GPU"


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; 0, also where there is nothing to measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=1.0, help="memory to copy, in GiB")
    parser.add_argument("--seconds", type=int, default=5, help="looks at each duty, one a second")
    given = parser.parse_args(words)
    # So that both count GPUs alike; before PyTorch looks.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if reason := why_not():
        print(f"nothing measured: {reason}")
        return 0
    import torch

    uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))
    copy = _copier(torch, round(given.gib * 2**30))
    reader = NvmlReader()
    points = []

    def look() -> float | None:
        gpu = _ours(reader.read().gpus, uuid)
        told: float | None = gpu.values.get(FIELD)
        if told is None:
            print(f"  the reader cannot tell: {gpu.absent.get(FIELD)}", file=sys.stderr)
        return told

    try:
        copy()
        name = _ours(reader.read().gpus, uuid).model_name
        print(f"{name}, {given.gib:g} GiB copied, median of {given.seconds} looks a duty")
        for duty in DUTIES:
            time.sleep(2 * LOOK_S)  # what came before is over
            point = measure(duty, copy, look, given.seconds, 2 * given.gib * 2**30)
            if point is None:
                print(f"nothing measured at {duty:.0%}")
                return 1
            points.append(point)
    finally:
        reader.close()
    print("\n".join(table(points)))
    return 0


def _copier(torch: Any, size_bytes: int) -> Callable[[], float]:
    source = torch.zeros(size_bytes, dtype=torch.uint8, device="cuda:0")
    target = torch.empty_like(source)
    at_once = max(1, round(8 * 2**30 / size_bytes))

    def copy() -> float:
        for _ in range(at_once):
            target.copy_(source)
        torch.cuda.synchronize()
        return float(at_once)

    return copy


def _ours(gpus: Sequence[Told], uuid: str) -> Told:
    """PyTorch's first GPU among the driver's."""
    return next((gpu for gpu in gpus if uuid and gpu.gpu.endswith(uuid)), gpus[0])


if __name__ == "__main__":
    sys.exit(main())
