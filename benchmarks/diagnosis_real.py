"""Measure how often `tailspan explain` finds the fault that was injected into a real vLLM.

    python benchmarks/diagnosis_real.py                          every fault, about 35 minutes
    python benchmarks/diagnosis_real.py engine_stall preemption --seed 7 --severity 0.5
    python benchmarks/diagnosis_real.py --recorded DIR [DIR …]   faults recorded earlier
    python benchmarks/diagnosis_real.py --shares                 6 faults and 5 pairs, 12 minutes
    python benchmarks/diagnosis_real.py --server "vllm serve FOLDER" --rate 16 --tokens 60,160

Each fault is injected (python -m rig.faults) into a vLLM on this machine's CPU, after a period of
usual load. With --server, the given command starts the server, for example on a GPU. Then the fault
is explained from the database of a running Tailspan. Without --server, the benchmark has the same
requirements as `make vllm`. Run nothing else on the machine. The column `others` shows how many
CPUs other processes used before and during the fault.

The true shares are measured on one server, with the same seeds each time: without a fault, with
each of two faults, and with both faults. The goal: the confidence intervals of the shares contain
90 % of the true shares. Windows with equal requests do not have equal latencies. With --repeats,
the windows are recorded in several rounds. To compute a true share, the latency of one window is
then compared with the means of the other windows. The standard deviation of the share between the
rounds is printed too.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._options import add_server, two_numbers
from benchmarks._true_shares import TrueShare, true_shares
from rig.faults.catalogue import FAULTS, faults_of
from rig.faults.combined_faults import PAIRS
from rig.faults.evaluation import NO_INCIDENT, ExplanationResult, evaluate_explanation
from rig.faults.recording import RecordingError, record
from rig.install import ProgramUnavailableError, ensure

MEASURED = (
    NO_INCIDENT,
    "longer_outputs",
    "longer_prompts",
    "engine_stall",
    "prefix_cache_miss",
    "long_prompt_blocking",
    "prefill_interference",
    *PAIRS,
)
"""Faults that are recorded on servers with equal arguments, and the pairs of these faults."""

HEADING = (
    f"{'fault':22} {'asked':8} {'severity':>8} {'excess':>19}  {'found first':22} "
    f"{'share':>6} {'others':>9}  then"
)


def line(of: ExplanationResult) -> str:
    """Return a line with one fault and the causes that Tailspan found."""
    excess = share = ""
    if of.excess_s is not None and of.baseline_s is not None:
        excess = f"{of.baseline_s * 1e3:7.0f} + {of.excess_s * 1e3:6.0f} ms"
    if of.share is not None:
        share = f"{of.share:6.0%}"
    others = " / ".join("–" if cpus is None else f"{cpus:.1f}" for cpus in of.others_cpus)
    return (
        f"{of.cause:22} {of.metric:8} {of.severity:8.2f} {excess:>19}  "
        f"{of.first or of.verdict:22} {share:>6} {others:>9}  "
        f"{'right' if of.right else 'WRONG'} {', '.join(of.found[1:4])}".rstrip()
    )


def summary(all_of_them: Sequence[ExplanationResult]) -> str:
    """Return a sentence with the number of correct results."""
    faults = [each for each in all_of_them if each.cause != NO_INCIDENT]
    quiet = [each for each in all_of_them if each.cause == NO_INCIDENT]
    parts = [
        f"{sum(each.right for each in faults)} of {len(faults)} faults named first "
        f"({len({each.cause for each in faults if each.right})} causes)"
    ]
    named = sum(each.cause in each.found[:3] for each in faults)
    parts.append(f"{named} among the first three")
    missed = sum(each.verdict == "no_incident" for each in faults)
    unsure = sum(each.verdict == "insufficient_data" for each in faults)
    parts.append(f"{missed} not detected, {unsure} without a verdict")
    if quiet:
        parts.append(f"{sum(not each.right for each in quiet)} of {len(quiet)} false alarms")
    return "; ".join(parts) + "."


def shares_line(of: ExplanationResult, true: Sequence[TrueShare]) -> str:
    """Return the line with the shares of one fault, or of one pair of faults."""
    found = dict(zip(of.found, of.shares, strict=True))
    intervals = dict(zip(of.found, of.intervals, strict=False))
    parts = []
    for cause, (share, spread) in zip(of.causes, true, strict=True):
        low, high = intervals.get(cause, (None, None))
        interval = "no interval" if low is None else f"[{low:.0%}, {high:.0%}]"
        measured = f"{share:.0%}{'' if spread is None else f' ± {spread:.0%}'}"
        parts.append(f"{cause}: true {measured}, found {found.get(cause, 0.0):.0%} {interval}")
    return f"{of.cause:38} {of.metric:5} " + "; ".join(parts)


def contained(of: ExplanationResult, true: Sequence[TrueShare]) -> list[bool]:
    """For each injected cause that was named, return whether the confidence interval of its share
    contains the true share. The list is empty if the shares were not computed by a replay."""
    intervals = dict(zip(of.found, of.intervals, strict=False))
    return [
        intervals[cause][0] <= min(max(share.value, 0.0), 1.0) <= intervals[cause][1]
        for cause, share in zip(of.causes, true, strict=True)
        if cause in intervals
    ]


def shares_summary(cases: Sequence[Path], found: Sequence[ExplanationResult]) -> list[str]:
    """Return one line for each case whose true shares are known, and a line with the coverage of
    the confidence intervals."""
    lines, hits, widths = [], list[bool](), list[float]()
    for case, of in zip(cases, found, strict=True):
        true = true_shares(case, of) if of.causes else None
        if true is not None:
            lines.append(shares_line(of, true))
            hits += contained(of, true)
            widths += [high - low for low, high in of.intervals]
    if hits:
        lines.append(
            f"{sum(hits)} of {len(hits)} intervals ({sum(hits) / len(hits):.0%}) contain the true "
            f"share (goal: 90 %); median width {sorted(widths)[len(widths) // 2]:.0%}"
        )
    return lines


def cases_in(folders: Iterable[Path]) -> list[Path]:
    """Return the folders that contain one recorded fault each, at any depth inside these
    folders."""
    return sorted(truth.parent for folder in folders for truth in folder.glob("**/truth.json"))


def recorded(causes: Sequence[str], options: argparse.Namespace, into: Path) -> list[Path]:
    """Record the faults, and return their folders."""
    if not options.server:
        ensure()
    begun = time.monotonic()
    return record(
        faults_of(causes, options.seed, options.severity, options.rate, options.tokens),
        into,
        seed=options.seed,
        severity=options.severity,
        before_s=options.before,
        during_s=options.under,
        log_line=lambda text: print(f"{time.monotonic() - begun:5.0f} s  {text}", flush=True),
        command=options.server,
        repeats=options.repeats,
    )


def main() -> int:
    """Record and explain the faults, and print the results.

    The exit status is 1 if the cause of a fault was not named first.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cause",
        nargs="*",
        help=f"causes or pairs to record, of {', '.join((*FAULTS, *PAIRS))}; default: all causes",
    )
    parser.add_argument(
        "--shares", action="store_true", help="record the faults whose true shares are measured"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--severity", type=float, default=1.0, help="with 1, a fault has a clearly visible effect"
    )
    add_server(parser)
    parser.add_argument(
        "--rate", type=float, default=8.0, help="requests/s of the usual load (default 8)"
    )
    parser.add_argument(
        "--tokens",
        type=two_numbers,
        default=(16, 40),
        metavar="MIN,MAX",
        help="output tokens of a request of the usual load (default 16,40)",
    )
    parser.add_argument(
        "--before",
        type=float,
        default=46.0,
        metavar="S",
        help="seconds of usual load before the faults (default 46)",
    )
    parser.add_argument(
        "--under",
        type=float,
        default=44.0,
        metavar="S",
        help="seconds of each fault (default 44)",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=1,
        metavar="N",
        help="record the faults in N rounds (default 1)",
    )
    parser.add_argument("--record-only", action="store_true", help="do not explain the faults")
    parser.add_argument("--recorded", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder to store the recordings")
    parser.add_argument(
        "--tailspan",
        type=Path,
        help="path of the tailspan command; default: the one in the folder of this Python",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.cause) - set(FAULTS) - set(PAIRS):
        parser.error(
            f"cause: {', '.join(sorted(unknown))}; allowed: {', '.join((*FAULTS, *PAIRS))}"
        )
    if arguments.record_only and arguments.keep is None:
        parser.error("--record-only needs --keep DIR")
    causes = arguments.cause or [*(MEASURED if arguments.shares else FAULTS)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            if arguments.recorded:
                cases = cases_in(arguments.recorded)
            else:
                into = arguments.keep or Path(folder)
                cases = recorded(causes, arguments, into)
        except (ProgramUnavailableError, RecordingError) as reason:
            print(reason, file=sys.stderr)
            return 2
        if arguments.record_only:
            return 0
        print(f"\n{HEADING}")
        found = []
        for case in cases:
            found.append(evaluate_explanation(case, arguments.tailspan))
            print(line(found[-1]), flush=True)
        print(summary(found))
        print("\n".join(shares_summary(cases, found)))
    return 0 if all(each.right for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
