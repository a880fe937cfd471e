"""Compare the memory bandwidth that Tailspan's reader measures with the known bandwidth of copies.

    python benchmarks/gpu_bandwidth.py [--gib 1] [--seconds 5]

PyTorch copies one half of a buffer to the other half for 25, 50, 75 and 100 % of the time. The
benchmark needs PyTorch and an NVIDIA GPU of the Hopper generation or newer. Without them, the
program prints the reason and exits with 0.
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

from collector.gpus.nvml import NvmlReader  # needs the path inserted above
from collector.gpus.reader import Absence, AbsenceReason, GpuReading, ReaderError

DUTIES = (0.25, 0.5, 0.75, 1.0)
BAR = 0.1
LOOK_S = 1.0
FIELD = "dram_bandwidth_bytes_per_s"
MIN_GIB = 0.5
"""Minimum size of the buffer in GiB: ten times the cache of the largest GPUs."""


class Point(NamedTuple):
    """The known and measured bytes per second for one duty cycle, as medians over the reads."""

    duty: float
    known_bytes_per_s: float
    measured_bytes_per_s: float

    @property
    def ratio(self) -> float:
        """Measured rate divided by the known rate."""
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
    """Copy in the given duty cycle until `looks` readings are done. Return the medians, or None if
    there is no bandwidth.

    Args:
        duty: the share of the time in which copies run.
        copy: makes several copies, and returns the number of completed copies.
        look: returns the measured bytes per second since the last call, or None.
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
        bandwidth = look()
        taken_s = clock() - begun_s
        if bandwidth is not None:
            known.append(copies * copied_bytes / taken_s)
            measured.append(bandwidth)
    if not known:
        return None
    return Point(duty, statistics.median(known), statistics.median(measured))


def table(points: Sequence[Point]) -> list[str]:
    """The printed table as lines."""
    lines = ["  duty  known TB/s  measured TB/s  ratio"]
    lines += [
        f"{each.duty:>5.0%}  {each.known_bytes_per_s / 1e12:>10.3f}"
        f"  {each.measured_bytes_per_s / 1e12:>13.3f}  {each.ratio:>5.3f}"
        for each in points
    ]
    worst = max(abs(each.ratio - 1) for each in points)
    kept = "kept" if worst <= BAR else "MISSED"
    return [*lines, f"goal: within {BAR:.0%}; the worst is {worst:.1%} off: {kept}"]


def why_not() -> str | None:
    """Return why this machine cannot run the measurement, or None if it can."""
    reader = NvmlReader()
    try:
        gpus = reader.read().gpus
    except ReaderError as error:
        return f"no NVIDIA GPU: {error}"
    finally:
        reader.close()
    unable = [why for gpu in gpus if (why := _unable(gpu)) is not None]
    if len(unable) == len(gpus):
        return f"no GPU here reports its bandwidth: {unable[0]}"
    try:
        import torch
    except ImportError:
        return "no PyTorch: pip install torch"
    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    if len(gpus) > 1 and not _uuid(torch):
        return "this PyTorch does not report which of several GPUs it uses: use a newer one"
    return None


def _unable(gpu: GpuReading) -> Absence | None:
    """Return why a GPU cannot be measured, or None if it can. The GPU may have to be read a second
    time."""
    why = gpu.absent.get(FIELD)
    return None if why is None or why.why is AbsenceReason.FIRST_LOOK else why


def main(
    words: Sequence[str] | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> int:
    """Print the table. Return 0, even if the measurement is not possible."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--gib", type=float, default=1.0, help=f"memory to copy, in GiB, at least {MIN_GIB:g}"
    )
    parser.add_argument(
        "--seconds", type=int, default=5, help="number of reads at each duty cycle, one per second"
    )
    given = parser.parse_args(words)
    if given.gib < MIN_GIB or given.seconds < 1:
        parser.error(
            f"--gib must be at least {MIN_GIB:g}, because smaller buffers fit into caches; "
            "--seconds must be at least 1"
        )
    # Set this before PyTorch starts, so that PyTorch and the driver use the same GPU numbers.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if reason := why_not():
        print(f"nothing measured: {reason}")
        return 0
    import torch

    uuid = _uuid(torch)
    size_bytes = round(given.gib * 2**30)
    copy = _copier(torch, size_bytes)
    reader = NvmlReader(clock=clock)
    points = []
    peaks: list[float] = []

    def look() -> float | None:
        gpu = _ours(reader.read().gpus, uuid)
        bandwidth: float | None = gpu.values.get(FIELD)
        if (why := _unable(gpu)) is not None:
            print(f"  the reader reports no bandwidth: {why}", file=sys.stderr)
        if bandwidth:
            peaks.append(bandwidth / gpu.values["dram_bandwidth_ratio"])
        return bandwidth

    try:
        copy()
        gpu = _ours(reader.read().gpus, uuid)
        if (why := _unable(gpu)) is not None:
            print(f"nothing measured: {gpu.model_name} reports no bandwidth: {why}")
            return 0
        print(
            f"{gpu.model_name}, PyTorch {torch.__version__}: {given.gib:g} GiB copied, median of "
            f"{given.seconds} reads per duty cycle"
        )
        if gpu.processes is not None and len(gpu.processes) > 1:
            print(
                f"{len(gpu.processes) - 1} other processes use the GPU; their transfers are "
                "measured as well"
            )
        for duty in DUTIES:
            pause(2 * LOOK_S)  # wait until earlier copies are complete
            point = measure(duty, copy, look, given.seconds, 2 * size_bytes, clock, pause)
            if point is None:
                print(f"no measurement at {duty:.0%}")
                return 1
            points.append(point)
    finally:
        reader.close()
    print("\n".join(table(points)))
    if peaks:
        print(f"the reader's peak, by bus and clock: {statistics.median(peaks) / 1e12:.3f} TB/s")
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


def _uuid(torch: Any) -> str:
    return str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))


def _ours(gpus: Sequence[GpuReading], uuid: str) -> GpuReading:
    return next((gpu for gpu in gpus if uuid and gpu.gpu.endswith(uuid)), gpus[0])


if __name__ == "__main__":
    sys.exit(main())
