"""One judged case: what was done, what each diagnoser named, and how that counts."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks._diagnosis_draws import NONE, PAIR, SINGLE

WORTH_NAMING = 0.1
"""Of the excess, what the smaller of two causes must have brought about to be missed."""


@dataclass(frozen=True, slots=True)
class Result:
    """One case, and what each diagnoser named, likeliest first."""

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
    true_shares: tuple[float, ...]
    """Of two causes, what each brought about; they sum to 1."""
    unexplained: float | None
    by_phase: tuple[str, ...]
    by_score: tuple[str, ...]
    explain_s: float
    took_s: float


def both_matter(of: Result) -> bool:
    """Whether each of two causes brought a tenth of the excess about, or more: else one hides
    the other, and there is but one to be named."""
    return all(share >= WORTH_NAMING for share in of.true_shares)


def larger(of: Result) -> str:
    """Of two causes, the one that brought more about."""
    return of.causes[of.true_shares.index(max(of.true_shares))]


def outcome(of: Result) -> str:
    """One case in a word."""
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


def both_named(of: Result) -> bool:
    """Whether both of two causes are among the first three named."""
    return set(of.causes) <= set(of.found[:3])


def one_named(of: Result) -> bool:
    """Whether one of them at least is."""
    return bool(set(of.causes) & set(of.found[:3]))


def first_named(results: Iterable[Result], places: int) -> float | None:
    """Of single faults, how many are named at these first places."""
    return share(each.causes[0] in each.found[:places] for each in results)


def share(hits: Iterable[bool]) -> float | None:
    """Of all, how many; None of none."""
    known = [*hits]
    return sum(known) / len(known) if known else None


def passed(results: Sequence[Result]) -> bool:
    """Whether no bar is missed by what there is."""
    first = first_named([each for each in results if each.kind == SINGLE], 1)
    both = share(both_named(each) for each in results if each.kind == PAIR and both_matter(each))
    alarms = share(each.verdict == "incident" for each in results if each.kind == NONE)
    return (
        (first is None or first >= 0.95)
        and (both is None or both >= 0.90)
        and (alarms is None or alarms <= 0.02)
    )


def read(text: str) -> Result:
    """From its JSON."""
    told: dict[str, Any] = json.loads(text)
    for name, value in told.items():
        if isinstance(value, list):
            told[name] = tuple(value)
    return Result(**told)
