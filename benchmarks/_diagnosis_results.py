"""The result of a case: its faults, the causes that each diagnoser named, and the evaluation."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.counterfactual.factors import KIND_OF_CAUSE, FactorKind
from benchmarks._diagnosis_draws import NONE, PAIR, SINGLE

WORTH_NAMING = 0.1
"""The minimum share of the latency's increase that a cause must contribute to be counted. If the
smaller of two causes contributed less than this, the diagnosis need not find it."""


@dataclass(frozen=True, slots=True)
class DiagnosisResult:
    """One case with the causes that each diagnoser named, most likely first."""

    number: int
    seed: int
    kind: str
    causes: tuple[str, ...]
    severities: tuple[float, ...]
    load: float
    metric: str
    requests: int
    verdict: str
    found: tuple[str, ...]
    shares: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]
    """The 95 % confidence interval of each cause's share. Empty if the shares do not come from a
    replay."""
    accounted: tuple[str, ...]
    """The causes that were named by accounting: from the recorded times, without a replay."""
    accounted_shares: tuple[float, ...]
    not_replayed: str | None
    true_shares: tuple[float, ...]
    """The true share of each cause."""
    unexplained: float | None
    by_phase: tuple[str, ...]
    by_score: tuple[str, ...]
    explain_s: float
    replay_s: float
    took_s: float


def both_matter(of: DiagnosisResult) -> bool:
    """Return whether each of the two causes contributed at least a tenth of the increase."""
    return all(share >= WORTH_NAMING for share in of.true_shares)


def larger(of: DiagnosisResult) -> str:
    """Return which of two causes contributed more."""
    return of.causes[of.true_shares.index(max(of.true_shares))]


def outcome(of: DiagnosisResult) -> str:
    """Return the evaluation of one case as one word."""
    if of.kind == NONE:
        return "FALSE ALARM" if of.verdict == "incident" else "right"
    if of.verdict != "incident":
        return "not seen" if of.verdict == "no_incident" else "abstained"
    if of.kind == PAIR:
        if not both_matter(of):
            return "larger" if of.found[:1] == (larger(of),) else "WRONG"
        return "both" if both_named(of) else "ONE" if one_named(of) else "NEITHER"
    if not of.found:
        return "UNEXPLAINED"
    return "right" if of.found[0] == of.causes[0] else "WRONG"


def both_named(of: DiagnosisResult) -> bool:
    """Return whether both injected causes are among the first three named causes."""
    return set(of.causes) <= set(of.found[:3])


def one_named(of: DiagnosisResult) -> bool:
    """Return whether at least one injected cause is among the first three named causes."""
    return bool(set(of.causes) & set(of.found[:3]))


def first_named(results: Iterable[DiagnosisResult], most: int) -> float | None:
    """Return the share of single-fault cases in which the injected cause is one of the first `most`
    named causes. Return None if there is no case with a single fault."""
    return share(each.causes[0] in each.found[:most] for each in results)


def share(hits: Iterable[bool]) -> float | None:
    """Return the share of values that are true, or None if there are no values."""
    known = [*hits]
    return sum(known) / len(known) if known else None


_PARTS = {
    # The fault makes outputs longer, and removes KV blocks.
    "preemption": (FactorKind.OUTPUTS, FactorKind.BLOCKS),
    # The added requests have long contexts and long outputs.
    "decode_batch_growth": (FactorKind.LONG_PROMPTS,),
}
"""The changes that a fault makes in addition to the change that its cause describes."""


def true_share(of: DiagnosisResult, cause: str) -> float | None:
    """Return the true share of a named cause. The share is 0 for a cause that was not injected.
    Return None if the cause was not injected, but a replay cannot distinguish it from an injected
    cause or from the parts of an injected cause."""
    if cause in of.causes:
        return min(max(of.true_shares[of.causes.index(cause)], 0.0), 1.0)
    injected = {KIND_OF_CAUSE.get(each) for each in of.causes}
    injected |= {kind for each in of.causes for kind in _PARTS.get(each, ())}
    return None if KIND_OF_CAUSE[cause] in injected else 0.0


def passed(results: Sequence[DiagnosisResult]) -> bool:
    """Return whether the results meet all target values."""
    first = first_named([each for each in results if each.kind == SINGLE], 1)
    both = share(both_named(each) for each in results if each.kind == PAIR and both_matter(each))
    alarms = share(each.verdict == "incident" for each in results if each.kind == NONE)
    return (
        (first is None or first >= 0.95)
        and (both is None or both >= 0.90)
        and (alarms is None or alarms <= 0.02)
    )


def read(text: str) -> DiagnosisResult:
    """Read a result from JSON."""
    fields: dict[str, Any] = json.loads(text)
    for name, value in fields.items():
        if isinstance(value, list):
            fields[name] = tuple(value)
    return DiagnosisResult(**fields)
