"""Measure whether the verdict of `tailspan compare` is right on a real vLLM.

    python benchmarks/compare_real.py [--keep DIR]       record and compare, 25 minutes
    python benchmarks/compare_real.py --recorded DIR     compare again, without a server
    python benchmarks/compare_real.py budget restarted   only these changes

A vLLM on this machine's CPU is restarted with the same arguments (A/A), with a small limit on the
tokens per step (A/B), and with compilation (A/B). Each change is compared in both directions, with
the same and with a different mix of requests. Four earlier processes with the usual arguments show
the effect of a restart. Windows of the same process are compared too.

The true change is measured with the same arrivals on both configurations. The verdict must be right
whenever the confidence interval of the true change does not contain the margin. The verdict of an
A/A case must not be `worse` or `better`. The benchmark needs the requirements of `make vllm` and an
idle machine.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from sqlalchemy import Engine

from analysis.compare.intervals import MIN_BLOCKS, SHORTEST_S
from analysis.compare.verdict import MARGIN
from benchmarks._compare_verdicts import (
    HEADING,
    LATENCIES,
    JudgedAnswer,
    cases_of,
    false_verdicts,
    judged,
    latencies_of,
    line,
    summary,
)
from benchmarks._compare_windows import (
    CONFIGURATIONS,
    USUAL,
    ServedWindow,
    WindowsError,
    read_windows,
    record,
)
from rig.faults.recording import RecordingError
from rig.install import ProgramUnavailableError, ensure
from store.database import open_database

CHANGES: Final = tuple(name for name in CONFIGURATIONS if name != USUAL)
MIN_SECONDS: Final = MIN_BLOCKS * SHORTEST_S
"""Shorter windows have too few blocks of time for a confidence interval."""
MAX_SECONDS: Final = 300.0
MIN_RATE, MAX_RATE = 0.1, 20.0


def windows_table(engine: Engine, served: Sequence[ServedWindow]) -> list[str]:
    """Lines of all windows, with the numbers of requests."""
    lines = [f"{'window':22} {'answered':>8} {'failed':>6} {'stored':>6} {'others CPUs':>11}"]
    for each in served:
        stored = latencies_of(engine, each, "e2e").value_s.size
        lines.append(
            f"{each.configuration + ', ' + each.traffic:22} {each.answered:8} {each.failed:6}"
            f" {stored:6} {each.stretch.others_cpus:11.2f}"
        )
    return lines


def judge_recording(
    folder: Path, served: Sequence[ServedWindow], changes: Sequence[str], looks: bool
) -> int:
    """Print the verdict on each case of a recording, and return the exit status."""
    windows = {(each.configuration, each.traffic): each for each in served}
    engine = open_database(f"sqlite:///{folder / 'tailspan.db'}")
    found: list[JudgedAnswer] = []
    try:
        print("\n".join(windows_table(engine, served)), flush=True)
        print(f"\nchanges in %, 95 % intervals, margin {MARGIN:.0%}\n{HEADING}")
        for case in cases_of(changes):
            if not {case.before, case.after, *case.truth} <= set(windows):
                print(f"{case.before[0]} → {case.after[0]}, {case.after[1]}: not recorded")
                continue
            for metric, quantile in LATENCIES:
                one = judged(engine, case, windows, metric, quantile, looks)
                if one is not None:
                    found.append(one)
                    print(line(one), flush=True)
        false, compared = false_verdicts(engine, windows, looks)
        print(
            "\n".join([f"\n{len(false)} of {compared} verdicts of one process are false", *false])
        )
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        engine.dispose()
    lines, met = summary(found)
    print("\n".join(lines))
    return 0 if met else 1


def _number(least: float, most: float) -> Callable[[str], float]:
    def parsed(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text}; allowed: {least:g} to {most:g}")
        return value

    parsed.__name__ = "number"  # argparse prints this name if the text is not a number
    return parsed


def main(words: Sequence[str] | None = None) -> int:
    """Record and compare windows. Return 1 if the goal is not met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("change", nargs="*", help=f"changes, of {', '.join(CHANGES)}; default: all")
    parser.add_argument("--seed", type=int, default=1, help="determines the arrivals")
    parser.add_argument(
        "--seconds",
        type=_number(MIN_SECONDS, MAX_SECONDS),
        default=70.0,
        help="length of a window",
    )
    parser.add_argument(
        "--rate",
        type=_number(MIN_RATE, MAX_RATE),
        default=6.0,
        help="requests/s before the mix changes",
    )
    parser.add_argument(
        "--one-look", action="store_true", help="use the narrower interval for a single comparison"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--keep", type=Path, metavar="DIR", help="folder to store the recording")
    where.add_argument("--recorded", type=Path, metavar="DIR", help="earlier recording to use")
    arguments = parser.parse_args(words)
    changes = arguments.change or CHANGES
    if unknown := set(changes) - set(CHANGES):
        parser.error(f"change: {', '.join(sorted(unknown))}; allowed: {', '.join(CHANGES)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.recorded or arguments.keep or Path(temporary)
        try:
            if arguments.recorded:
                served = read_windows(folder)
            else:
                ensure()
                begun = time.monotonic()
                served = record(
                    changes,
                    folder,
                    seed=arguments.seed,
                    rate_per_s=arguments.rate,
                    seconds=arguments.seconds,
                    log_line=lambda text: print(
                        f"{time.monotonic() - begun:5.0f} s  {text}", flush=True
                    ),
                )
        except (ProgramUnavailableError, RecordingError, WindowsError) as reason:
            print(reason, file=sys.stderr)
            return 2
        return judge_recording(folder, served, changes, looks=not arguments.one_look)


if __name__ == "__main__":
    sys.exit(main())
