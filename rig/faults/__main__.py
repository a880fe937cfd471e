"""Record faults of a real vLLM on this machine's CPU, with their ground truth.

python -m rig.faults --into DIR                         every fault
python -m rig.faults --into DIR engine_stall preemption --seed 7 --severity 0.5

Each fault is stored in DIR/CAUSE, as tailspan.db and truth.json.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rig.faults.catalogue import FAULTS, faults_of
from rig.faults.combined_faults import PAIRS
from rig.faults.recording import RecordingError, record
from rig.install import ProgramUnavailableError, ensure


def main(arguments: Sequence[str]) -> int:
    """Record the faults given on the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m rig.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cause", nargs="*", metavar="CAUSE", help="faults to record; default: all")
    parser.add_argument("--into", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--severity", type=float, default=1.0, help="with 1, a fault has a clearly visible effect"
    )
    parser.add_argument(
        "--before",
        type=float,
        default=46.0,
        metavar="S",
        help="seconds of usual traffic before the fault",
    )
    parser.add_argument(
        "--under", type=float, default=44.0, metavar="S", help="seconds with the fault"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.cause) - set(FAULTS) - set(PAIRS):
        allowed = ", ".join((*FAULTS, *PAIRS))
        parser.error(f"cause: {', '.join(sorted(unknown))}; allowed: {allowed}")
    faults = faults_of(options.cause or [*FAULTS], options.seed, options.severity)
    begun = time.monotonic()
    try:
        ensure()
        cases = record(
            faults,
            options.into,
            seed=options.seed,
            severity=options.severity,
            before_s=options.before,
            during_s=options.under,
            log_line=lambda line: print(f"{time.monotonic() - begun:5.0f} s  {line}", flush=True),
        )
    except (ProgramUnavailableError, RecordingError) as reason:
        print(reason, file=sys.stderr)
        return 2
    for case in cases:
        print(case)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
