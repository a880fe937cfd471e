"""Compare the result of `tailspan explain` on a recorded fault with the ground truth."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.faults.combined_faults import AND

NO_INCIDENT = "no_incident"
LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class ExplanationResult:
    """A recorded fault, and the causes that the diagnosis found."""

    cause: str
    metric: str
    severity: float
    seed: int
    verdict: str
    found: tuple[str, ...]
    """The causes that the diagnosis found, sorted by their share of the increase."""
    shares: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]
    """For each cause, the lowest and the highest plausible share. It is empty without a replay."""
    not_replayed: str | None
    """The reason why the shares are only estimates. It is None if the shares come from a replay."""
    tail_share: float | None
    """The share of the requests that `explain` analysed, or None if it analysed all requests."""
    baseline_s: float | None
    excess_s: float | None
    others_cpus: tuple[float | None, float | None]
    """CPUs that other processes used before and during the fault, or None if unknown."""

    @property
    def causes(self) -> tuple[str, ...]:
        """The injected causes: none, one, or two."""
        return () if self.cause == NO_INCIDENT else tuple(self.cause.split(AND))

    @property
    def share(self) -> float | None:
        """The largest share of a cause, or None if no cause was found."""
        return self.shares[0] if self.shares else None

    @property
    def first(self) -> str | None:
        """The cause with the largest share, or None if no cause was found."""
        return self.found[0] if self.found else None

    @property
    def right(self) -> bool:
        """Whether the diagnosis is correct.

        The cause of a single fault must have the largest share. The causes of two faults must be
        among the first three. Without a fault, there must be no incident.
        """
        if not self.causes:
            return self.verdict == NO_INCIDENT
        if len(self.causes) == 1:
            return self.first == self.cause
        return set(self.causes) <= set(self.found[:3])


def evaluate_explanation(case: Path, tailspan: Path | None = None) -> ExplanationResult:
    """Run `tailspan explain` for the latency that the fault affects.

    Args:
        case: a folder with tailspan.db and truth.json.
        tailspan: the path of the command. By default, the command beside this Python is used.

    Raises:
        RuntimeError: the command failed.
    """
    truth = json.loads((case / "truth.json").read_text())
    answer = _explained(case, truth, tailspan or Path(sys.executable).with_name("tailspan"))
    causes = answer["causes"]
    known = [(each.get("share_low"), each.get("share_high")) for each in causes]
    return ExplanationResult(
        cause=truth["cause"],
        metric=truth["metric"],
        severity=truth["severity"],
        seed=truth["seed"],
        verdict=answer["verdict"],
        found=tuple(cause["id"] for cause in causes),
        shares=tuple(cause["share"] for cause in causes),
        intervals=tuple((low, high) for low, high in known if low is not None),
        not_replayed=answer.get("not_replayed"),
        tail_share=answer.get("slowest_share"),
        baseline_s=answer.get("baseline_s"),
        excess_s=answer["excess_s"],
        others_cpus=(
            truth["baseline"].get("others_cpus"),
            truth["window"].get("others_cpus"),
        ),
    )


def _explained(case: Path, truth: dict[str, Any], tailspan: Path) -> dict[str, Any]:
    window, baseline = truth["window"], truth["baseline"]
    done = subprocess.run(
        [
            *(str(tailspan), "explain", "--format", "json", "--metric", truth["metric"]),
            # The size of the growth decides the verdict, because the tiny model's requests meet
            # realistic objectives even during a fault.
            "--by-size",
            *("--database", f"sqlite:///{(case / 'tailspan.db').resolve()}"),
            *("--from", str(window["begun_s"]), "--to", str(window["ended_s"])),
            *("--baseline", f"{baseline['begun_s']}/{baseline['ended_s']}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"tailspan explain of {case}: {done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
