"""Who is woken, and when: burn rate beside "P99 > threshold for 5 m", over the same days.

    python benchmarks/alerting.py [--pairs 20]

Each pair of days is a quiet one and one with ten burns, in random order and at random times,
from a total failure of three minutes to two hours just above the slow factor. Then again with
each burn alone in its day, for of ten in a day each is seen through the memory of those before.
All days have traffic that doubles by noon, 0.3 % bad requests at rest, and four harmless blips
of some minutes. The promise is 99 % in 30 d, of a latency threshold: P99 is above it exactly
where more than 1 % of the requests of its window are bad, so that the plain rule gets the exact
P99, which no histogram would give it.

What deserves a page: a burn that spends at least 2 % of the month's budget, which is what 14 h
may spend. Whether it does is counted, not taken from its factor; neither rule is asked.

- recall: of the burns that deserve a page, those during which one was up;
- precision: of the pages, those that were up during a burn that deserved one;
- delay: from a burn's start to the page, where none was up already. The formula's is
  factor · budget · long window / bad ratio, of the pair that is soonest.
"""

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from alerts.burnrate import Counts, detection_s
from alerts.history import Bucket, History
from alerts.incidents import QUIET_S, Incident, advance
from alerts.openslo import load

STEP_S = 15
DAY_S = 86_400
SLOT_S = DAY_S // 10
REQUESTS_PER_S = 4.0
AT_REST = 0.003
DESERVES = Fraction(2, 100)
P99_WINDOW_S = P99_FOR_S = 300
BLIPS = 4


class Kind(NamedTuple):
    """A burn: which share of requests is bad, and for how long."""

    name: str
    bad_ratio: float
    minutes: float


KINDS = (
    Kind("all fail, 3 min", 1.0, 3),
    Kind("all fail, 10 min", 1.0, 10),
    Kind("all fail, 20 min", 1.0, 20),
    Kind("half fail, 25 min", 0.5, 25),
    Kind("30 %, 45 min", 0.3, 45),
    Kind("20 %, 70 min", 0.2, 70),
    Kind("15.5 %, 90 min (just above 14.4)", 0.155, 90),
    Kind("13.5 %, 60 min (just below)", 0.135, 60),
    Kind("10 %, 20 min", 0.1, 20),
    Kind("7 %, 130 min (just above 6)", 0.07, 130),
)


@dataclass(frozen=True)
class Burn:
    """One that happened, in seconds since the first day began."""

    kind: Kind
    from_s: int
    to_s: int
    spent: Fraction

    @property
    def deserves(self) -> bool:
        """Whether it should wake someone."""
        return self.spent >= DESERVES


class Page(NamedTuple):
    """Someone was woken."""

    fired_s: int
    last_s: int


@dataclass(frozen=True)
class Days:
    """A quiet day and one with one burn or several."""

    burns: list[Burn]
    events: np.ndarray
    bad: np.ndarray
    """(n,) int64, by steps of 15 s."""


def two_days(seed: int, kinds: Sequence[Kind], budget: Fraction) -> Days:
    """Made anew from a seed, with these burns in the second in any order."""
    random = np.random.default_rng(seed)
    steps = 2 * DAY_S // STEP_S
    at_s = (np.arange(steps) + 1) * STEP_S
    rate = REQUESTS_PER_S * (1 - np.cos(2 * np.pi * at_s / DAY_S) / 3)
    ratio = AT_REST * np.repeat(random.lognormal(0, 0.3, steps // 40), 40)
    for from_s in random.integers(0, 2 * DAY_S, 2 * BLIPS):
        blip = (at_s > from_s) & (at_s <= from_s + random.uniform(120, 600))
        ratio[blip] = np.maximum(ratio[blip], random.uniform(0.02, 0.06))
    times: list[tuple[Kind, int, int]] = []
    slots = random.permutation(DAY_S // SLOT_S).tolist()
    for kind, slot in zip(kinds, slots, strict=False):
        length_s = round(kind.minutes * 60 * random.uniform(0.97, 1.03))
        from_s = DAY_S + slot * SLOT_S + int(random.integers(0, SLOT_S - length_s))
        burning = (at_s > from_s) & (at_s <= from_s + length_s)
        ratio[burning] = kind.bad_ratio
        times.append((kind, from_s, from_s + length_s))
    events = random.poisson(rate * STEP_S)
    bad = random.binomial(events, ratio)
    month = budget * int(events.sum()) * 15
    burns = [
        Burn(kind, from_s, to_s, int(bad[(at_s > from_s) & (at_s <= to_s)].sum()) / month)
        for kind, from_s, to_s in times
    ]
    return Days(burns, events, bad)


class Promise:
    """The objective that comes along, and the policy's pages."""

    def __init__(self) -> None:
        (whole,) = load([Path(__file__).parent.parent / "alerts" / "objectives"]).objectives
        pages = tuple(pair for pair in whole.policy.pairs if pair.severity == "page")
        self.objective = replace(whole, policy=replace(whole.policy, pairs=pages))

    def detection_s(self, kind: Kind) -> float | None:
        """When the formula has a burn page; None where it is over by then."""
        ratio, objective = Fraction(str(kind.bad_ratio)), self.objective
        found = [detection_s(pair, objective.budget, ratio) for pair in objective.policy.pairs]
        return min((float(s) for s in found if s and s <= kind.minutes * 60), default=None)


def by_burn_rate(days: Days, promise: Promise) -> list[Page]:
    """As the live evaluator goes over them."""
    pairs = list(zip(days.bad.tolist(), days.events.tolist(), strict=True))
    buckets = [Bucket(place * STEP_S, Counts(*pair)) for place, pair in enumerate(pairs, 1)]
    history = History(0, buckets, STEP_S)
    pages: list[Page] = []
    incident: Incident | None = None
    for at_s in range(STEP_S, len(buckets) * STEP_S + 1, STEP_S):
        incident = advance(incident, promise.objective, "page", history, at_s)
        if incident is not None and incident.ended_s is not None:
            pages.append(Page(incident.fired_s, incident.ended_s))
            incident = None
    return pages if incident is None else [*pages, Page(incident.fired_s, incident.last_s)]


def by_p99(days: Days, target: Fraction) -> list[Page]:
    """Above the threshold at every evaluation of five minutes; as much flicker is forgiven."""
    window = P99_WINDOW_S // STEP_S
    bad, events = (
        np.convolve(each, np.ones(window, dtype=np.int64))[: each.size]
        for each in (days.bad, days.events)
    )
    # The nearest rank, ⌈0.99·n⌉ of n, is a bad request where more than the rest are.
    rank = -(-events * target.numerator // target.denominator)
    pages: list[Page] = []
    since_s: int | None = None
    for place, high in enumerate((bad > events - rank).tolist(), 1):
        at_s = place * STEP_S
        if not high:
            since_s = None
            continue
        since_s = at_s if since_s is None else since_s
        if at_s - since_s < P99_FOR_S:
            continue
        if pages and at_s - pages[-1].last_s < QUIET_S:
            pages[-1] = Page(pages[-1].fired_s, at_s)
        else:
            pages.append(Page(at_s, at_s))
    return pages


@dataclass
class Score:
    """Of one rule, over all days."""

    pages: int = 0
    quiet_pages: int = 0
    false_pages: int = 0
    caught: int = 0
    by_kind: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    delays_s: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def take(self, pages: list[Page], burns: list[Burn]) -> None:
        """Hold pages against burns."""
        deserving = [burn for burn in burns if burn.deserves]
        self.pages += len(pages)
        self.quiet_pages += sum(page.fired_s <= DAY_S for page in pages)
        self.false_pages += sum(
            not any(_during(page, burn) for burn in deserving) for page in pages
        )
        for burn in burns:
            up = [page for page in pages if _during(page, burn)]
            self.caught += bool(up) and burn.deserves
            self.by_kind[burn.kind.name] += bool(up)
            if up and up[0].fired_s > burn.from_s:
                self.delays_s[burn.kind.name].append(up[0].fired_s - burn.from_s)


def _during(page: Page, burn: Burn) -> bool:
    return page.fired_s <= burn.to_s and page.last_s > burn.from_s


def replay(title: str, days: Iterable[Days], promise: Promise) -> Iterator[str]:
    """Both rules over all days: the lines to print."""
    ours, plain = Score(), Score()
    burns: list[Burn] = []
    for each in days:
        burns += each.burns
        ours.take(by_burn_rate(each, promise), each.burns)
        plain.take(by_p99(each, promise.objective.target), each.burns)
    deserving = sum(burn.deserves for burn in burns)
    yield f"{title}: {deserving} of {len(burns)} burns deserve a page"
    yield f"{'':34} precision  recall  pages  false  on quiet days"
    for name, score in (("burn rate", ours), ("P99 > threshold for 5 m", plain)):
        yield (
            f"{name:34}{1 - score.false_pages / max(score.pages, 1):10.3f}"
            f"{score.caught / deserving:8.3f}{score.pages:7}{score.false_pages:7}"
            f"{score.quiet_pages:15}"
        )
    if plain.false_pages:
        ratio = ours.false_pages / plain.false_pages
        yield f"false pages, burn rate / P99: {ratio:.2f}"
    yield "\npaged during so many, and the median delay in minutes:"
    yield f"{'':34} of  deserving    burn rate  formula        P99"
    for kind in KINDS:
        these = [burn for burn in burns if burn.kind is kind]
        formula_s = promise.detection_s(kind)
        yield (
            f"{kind.name:34}{len(these):3}{sum(burn.deserves for burn in these):11}"
            f"{_told(ours, kind)}"
            f"{f'{formula_s / 60:9.1f}' if formula_s is not None else '        -'}"
            f"{_told(plain, kind)}"
        )


def _told(score: Score, kind: Kind) -> str:
    delays_s = score.delays_s[kind.name]
    delay = f"{statistics.median(delays_s) / 60:.1f}" if delays_s else "-"
    return f"{score.by_kind[kind.name]:6}{delay:>7}"


def main() -> int:
    """Replay, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=20, help="of a quiet day and one with burns")
    number = parser.parse_args().pairs
    alone_number = -(-number // 2)
    promise = Promise()
    budget = promise.objective.budget
    begun = time.monotonic()
    together = (two_days(seed, KINDS, budget) for seed in range(number))
    alone = (
        two_days(1_000 * place + seed, [kind], budget)
        for place, kind in enumerate(KINDS, 1)
        for seed in range(alone_number)
    )
    for title, days in (
        (f"{number} quiet days and {number} with ten burns", together),
        (f"\n{alone_number * 10} quiet days and as many with one", alone),
    ):
        for line in replay(title, days, promise):
            print(line, flush=True)
    print(f"\n{time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
