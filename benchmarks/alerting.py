"""Compare three alerting rules on the same days, by their delays and their false alerts.

    python benchmarks/alerting.py [--pairs 10] [--seed 1]

Each rule fires a paging alert on its own condition:

- burn rate: the paging alerts of the built-in objective, on its burn rate and on absent counters;
- P99: the exact P99 is above the threshold for 5 minutes;
- error rate: more than 5 % of the requests over 5 minutes are bad, for 5 minutes.

While the target is down, the rules on P99 and on the error rate have no data, so they do not alert.

A pair of days is a quiet day and a day with episodes of bad requests. There are three kinds of
days: with ten episodes, with one episode, and with one episode but only one request per minute. The
episodes of days with one episode include hangs and absences of the target. During a hang, no
request ends for 10 minutes, and then all hung requests are bad. docs/benchmarks.md defines which
episodes should page.

- recall: the share of the episodes that should page during which a paging alert fires.
- precision: the share of paging alerts that fire during such an episode, or up to 5 minutes after
  it.
- delay: time from an episode's start to the paging alert, unless it was already firing.

The expected delay is the shortest factor · budget · long window / bad ratio of the policy's window
pairs.
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

from alerts.burnrate import EventCounts, detection_s
from alerts.evaluation.incidents import QUIET_S, Incident, advance
from alerts.history import History, HistoryBucket
from alerts.openslo.reader import load
from alerts.prometheus.burn_rules import absent_for_s
from alerts.prometheus.indicators import of_tailspan

STEP_S = 15
DAY_S = 86_400
SLOT_S = DAY_S // 10
REQUESTS_PER_S = 4.0
AT_REST = 0.003
REQUESTS_PER_S_QUIET = 1 / 60
DOWNTIME = Fraction(1, 10)
DOWNTIME_S = 300
MIN_AFFECTED = 10
WINDOW_S = FOR_S = LATE_S = 300
STATIC = Fraction(1, 20)
BLIPS = 4


class EpisodeKind(NamedTuple):
    """Share of bad requests, duration, and when the counters report the bad requests."""

    name: str
    bad_ratio: float
    minutes: float
    seen: str = "as it happens"
    """A value of "afterwards" means a hang. A value of "never" means that the target is down."""


KINDS = (
    EpisodeKind("all fail, 3 min", 1.0, 3),
    EpisodeKind("all fail, 10 min", 1.0, 10),
    EpisodeKind("all fail, 20 min", 1.0, 20),
    EpisodeKind("half fail, 25 min", 0.5, 25),
    EpisodeKind("30 %, 45 min", 0.3, 45),
    EpisodeKind("20 %, 70 min", 0.2, 70),
    EpisodeKind("15.5 %, 90 min (just above 14.4)", 0.155, 90),
    EpisodeKind("13.5 %, 60 min (just below)", 0.135, 60),
    EpisodeKind("10 %, 20 min", 0.1, 20),
    EpisodeKind("7 %, 130 min (just above 6)", 0.07, 130),
)

OUTAGES = (
    EpisodeKind("hang, 10 min", 1.0, 10, "afterwards"),
    EpisodeKind("target down, 5 min", 1.0, 5, "never"),
    EpisodeKind("target down, 30 min", 1.0, 30, "never"),
)
QUIET = (
    EpisodeKind("all fail, 60 min", 1.0, 60),
    EpisodeKind("half fail, 120 min", 0.5, 120),
    EpisodeKind("all fail, 3 min", 1.0, 3),
    *OUTAGES,
)
"""Episodes of a service that receives one request per minute."""


@dataclass(frozen=True)
class Burn:
    """One episode, in seconds since the first day began."""

    kind: EpisodeKind
    from_s: int
    to_s: int
    deserves: bool
    """Return whether a page should be sent."""


class SentPage(NamedTuple):
    """A page's start and end in seconds."""

    fired_s: int
    last_s: int


@dataclass(frozen=True)
class Days:
    """A quiet day, and a day with one or several episodes."""

    burns: list[Burn]
    events: np.ndarray
    bad: np.ndarray
    """(n,) int64: bad requests per step of 15 s, as the counters report them."""
    absent: np.ndarray
    """(n,) bool: True in steps without counters."""


def two_days(seed: Sequence[int], kinds: Sequence[EpisodeKind], per_s: float) -> Days:
    """Draw two days from a seed. The second day has one episode of each kind, in random order."""
    random = np.random.default_rng(seed)
    steps = 2 * DAY_S // STEP_S
    at_s = (np.arange(steps) + 1) * STEP_S
    rate = per_s * (1 - np.cos(2 * np.pi * at_s / DAY_S) / 3)
    ratio = AT_REST * np.repeat(random.lognormal(0, 0.3, steps // 40), 40)
    for from_s in random.integers(0, 2 * DAY_S, 2 * BLIPS):
        blip = (at_s > from_s) & (at_s <= from_s + random.uniform(120, 600))
        ratio[blip] = np.maximum(ratio[blip], random.uniform(0.02, 0.06))
    times: list[tuple[EpisodeKind, int, int]] = []
    slots = random.permutation(DAY_S // SLOT_S).tolist()
    for kind, slot in zip(kinds, slots, strict=False):
        length_s = round(kind.minutes * 60 * random.uniform(0.97, 1.03))
        from_s = DAY_S + slot * SLOT_S + int(random.integers(0, SLOT_S - length_s))
        burning = (at_s > from_s) & (at_s <= from_s + length_s)
        ratio[burning] = kind.bad_ratio
        times.append((kind, from_s, from_s + length_s))
    events = random.poisson(rate * STEP_S)
    bad = random.binomial(events, ratio)
    arrived, affected = events.copy(), bad.copy()
    absent = np.zeros(steps, dtype=bool)
    burns = []
    for kind, from_s, to_s in times:
        during = (at_s > from_s) & (at_s <= to_s)
        burns.append(Burn(kind, from_s, to_s, users_affected(arrived[during], affected[during])))
        if kind.seen == "as it happens":
            continue
        events[during] = bad[during] = 0
        if kind.seen == "never":
            absent |= during
        else:
            last = np.flatnonzero(during)[-1]
            events[last], bad[last] = arrived[during].sum(), affected[during].sum()
    return Days(burns, events, bad, absent)


def users_affected(arrived: np.ndarray, affected: np.ndarray) -> bool:
    """Return whether an episode should page.

    Google's App Engine SLA of 2015-10-17 defines downtime as an error rate above 10 % for at least
    five minutes. The limit of ten requests is this benchmark's choice.

    Args:
        arrived: requests that arrived in each step of `STEP_S` (n,).
        affected: arriving requests of each step that are bad or become bad (n,).
    """
    width = DOWNTIME_S // STEP_S
    if arrived.size < width or affected.sum() < MIN_AFFECTED:
        return False
    window = np.ones(width, dtype=np.int64)
    of, bad = (np.convolve(each, window, "valid") for each in (arrived, affected))
    return bool((bad * DOWNTIME.denominator > of * DOWNTIME.numerator).any())


class BuiltIn:
    """The built-in objective, with only the window pairs of severity page."""

    def __init__(self) -> None:
        (whole,) = load([Path(__file__).parent.parent / "alerts" / "objectives"]).objectives
        pages = tuple(pair for pair in whole.policy.pairs if pair.severity == "page")
        self.objective = replace(whole, policy=replace(whole.policy, pairs=pages))
        self.absent_for_s = absent_for_s(whole, of_tailspan(whole))

    def detection_s(self, kind: EpisodeKind) -> float | None:
        """The expected delay of the page in seconds; None if the episode ends earlier."""
        if kind.seen != "as it happens":
            return None
        ratio, objective = Fraction(str(kind.bad_ratio)), self.objective
        found = [detection_s(pair, objective.budget, ratio) for pair in objective.policy.pairs]
        return min((float(s) for s in found if s and s <= kind.minutes * 60), default=None)


def by_burn_rate(days: Days, built_in: BuiltIn) -> list[SentPage]:
    """The pages that Tailspan's evaluator sends."""
    pairs = list(zip(days.bad.tolist(), days.events.tolist(), strict=True))
    buckets = [
        HistoryBucket(place * STEP_S, EventCounts(*pair)) for place, pair in enumerate(pairs, 1)
    ]
    history = History(0, buckets, STEP_S)
    pages: list[SentPage] = []
    incident: Incident | None = None
    for at_s in range(STEP_S, len(buckets) * STEP_S + 1, STEP_S):
        incident = advance(incident, built_in.objective, "page", history, at_s)
        if incident is not None and incident.ended_s is not None:
            pages.append(SentPage(incident.fired_s, incident.ended_s))
            incident = None
    if incident is not None:
        pages.append(SentPage(incident.fired_s, incident.last_s))
    # While a page is active, an absence does not send a second page.
    absent = _held(days.absent, built_in.absent_for_s)
    up = [
        each
        for each in absent
        if not any(one.fired_s <= each.fired_s < one.last_s for one in pages)
    ]
    return sorted([*pages, *up])


def by_p99(days: Days, target: Fraction) -> list[SentPage]:
    """The pages that a rule on the P99 sends."""
    bad, events = _over_window(days)
    # The P99 (nearest rank) is above the threshold if there are more bad requests than ranks above
    # ⌈0.99·n⌉.
    rank = -(-events * target.numerator // target.denominator)
    return _held(bad > events - rank, FOR_S)


def by_error_rate(days: Days) -> list[SentPage]:
    """The pages that a rule on the error rate sends."""
    bad, events = _over_window(days)
    return _held(bad * STATIC.denominator > events * STATIC.numerator, FOR_S)


def _over_window(days: Days) -> tuple[np.ndarray, np.ndarray]:
    window = WINDOW_S // STEP_S
    bad, events = (
        np.convolve(each, np.ones(window, dtype=np.int64))[: each.size]
        for each in (days.bad, days.events)
    )
    return bad, events


def _held(condition: np.ndarray, for_s: int) -> list[SentPage]:
    """The pages for a condition that must hold for `for_s` seconds. Pages less than 5 min apart are
    merged."""
    pages: list[SentPage] = []
    since_s: int | None = None
    for place, high in enumerate(condition.tolist(), 1):
        at_s = place * STEP_S
        if not high:
            since_s = None
            continue
        since_s = at_s if since_s is None else since_s
        if at_s - since_s < for_s:
            continue
        if pages and at_s - pages[-1].last_s < QUIET_S:
            pages[-1] = SentPage(pages[-1].fired_s, at_s)
        else:
            pages.append(SentPage(at_s, at_s))
    return pages


@dataclass
class Score:
    """The evaluation of one rule over all days."""

    days: int = 0
    pages: int = 0
    quiet_pages: int = 0
    false_pages: int = 0
    caught: int = 0
    by_kind: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    delays_s: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def take(self, pages: list[SentPage], burns: list[Burn]) -> None:
        """Add the pages of a quiet day and of a day with these episodes to the score."""
        self.days += 2
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


def _during(page: SentPage, burn: Burn) -> bool:
    return page.fired_s <= burn.to_s + LATE_S and page.last_s > burn.from_s


def replay(
    title: str, kinds: Sequence[EpisodeKind], days: Iterable[Days], built_in: BuiltIn
) -> Iterator[str]:
    """Run every rule over all days, and return the lines to print."""
    scores = {
        "burn rate": Score(),
        "P99 > threshold for 5 m": Score(),
        "> 5 % bad for 5 m": Score(),
    }
    ours, p99, static = scores.values()
    burns: list[Burn] = []
    for each in days:
        burns += each.burns
        ours.take(by_burn_rate(each, built_in), each.burns)
        p99.take(by_p99(each, built_in.objective.target), each.burns)
        static.take(by_error_rate(each), each.burns)
    deserving = sum(burn.deserves for burn in burns)
    yield f"{title}: {deserving} of {len(burns)} episodes should page"
    yield f"{'':34} precision  recall  pages  wrong  wrong a day  on quiet days"
    for name, score in scores.items():
        yield (
            f"{name:34}{1 - score.false_pages / max(score.pages, 1):10.3f}"
            f"{score.caught / max(deserving, 1):8.3f}{score.pages:7}{score.false_pages:7}"
            f"{score.false_pages / score.days:13.2f}{score.quiet_pages:15}"
        )
    yield "\nepisodes with a page, and the median delay in minutes:"
    yield f"{'':34} of  deserving    burn rate  formula          P99        > 5 %"
    for kind in kinds:
        these = [burn for burn in burns if burn.kind is kind]
        formula_s = built_in.detection_s(kind)
        yield (
            f"{kind.name:34}{len(these):3}{sum(burn.deserves for burn in these):11}"
            f"{_paged(ours, kind)}"
            f"{f'{formula_s / 60:9.1f}' if formula_s is not None else '        -'}"
            f"{_paged(p99, kind)}{_paged(static, kind)}"
        )


def _paged(score: Score, kind: EpisodeKind) -> str:
    delays_s = score.delays_s[kind.name]
    delay = f"{statistics.median(delays_s) / 60:.1f}" if delays_s else "-"
    return f"{score.by_kind[kind.name]:6}{delay:>7}"


def main() -> int:
    """Replay the days and print the scores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=10,
        help="number of pairs of a quiet day and a day with episodes",
    )
    parser.add_argument("--seed", type=int, default=20_261_122, help="seed of the simulated days")
    arguments = parser.parse_args()
    number, seed = arguments.pairs, arguments.seed
    built_in = BuiltIn()
    begun = time.monotonic()

    def alone(kinds: Sequence[EpisodeKind], per_s: float, run: int) -> Iterator[Days]:
        for place, kind in enumerate(kinds):
            for pair in range(number):
                yield two_days((seed, run, place, pair), [kind], per_s)

    single, busy, quiet = (*KINDS, *OUTAGES), REQUESTS_PER_S, REQUESTS_PER_S_QUIET
    together = (two_days((seed, 0, pair), KINDS, busy) for pair in range(number))
    print(f"seed {seed}, {busy:g} requests/s and {quiet * 60:g} requests per minute")
    for title, kinds, days in (
        (f"\n{number} quiet days and {number} with ten episodes", KINDS, together),
        (
            f"\n{number * len(single)} quiet days and as many with one episode",
            single,
            alone(single, busy, 1),
        ),
        (
            f"\nthe same at one request per minute, {number * len(QUIET)} each",
            QUIET,
            alone(QUIET, quiet, 2),
        ),
    ):
        for line in replay(title, kinds, days, built_in):
            print(line, flush=True)
    print(f"\n{time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
