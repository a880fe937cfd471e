"""Compare the cause of a simulated fault with and without a filter for one group of requests.

The groups are the requests of each tenant, each model and each replica. For groups that the fault
did not slow down, the correct result is "no incident", which is counted separately.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks._diagnosis_draws import drawn
from diagnosis.explain import explain
from diagnosis.explanation import Explanation, ExplanationVerdict
from diagnosis.inputs.arrow import requests_of, servers_of
from diagnosis.question import Metric, Question
from simulator import dataset
from simulator.faults import INJECTIONS

LABELS = ("tenant", "model", "replica")
SAME, QUIET, OTHER = "same", "no incident", "other"


@dataclass(frozen=True, slots=True)
class Everyone:
    """One simulated fault, and the cause with the largest share: without a filter, and with each
    filter."""

    cause: str
    first: str
    answers: tuple[tuple[str, str, str], ...]
    """For each filter: the label, its value, and the cause with the largest share. If there is no
    cause, "no incident" or "unexplained" replaces the cause."""


def asked_by_everyone(number: int, seed: int, kind: str, causes: tuple[str, ...]) -> Everyone:
    """Simulate one fault. Find the cause that the diagnosis names without a filter and with each
    filter."""
    case = drawn(number, seed, kind, causes)
    data = dataset.run(case.config)
    requests = requests_of(data.request_table())
    servers = servers_of(data.sample_table(), data.gpu_table(), data.starts)
    affected = INJECTIONS[causes[0]].affected_latency(case.config.faults[0], case.config)
    metric = Metric(affected.removesuffix("_s"))

    def first(**where: str) -> str:
        question = Question(metric, case.window, case.baseline, where)
        return _first(explain(requests, servers, question))

    return Everyone(
        causes[0],
        first(),
        tuple(
            (label, value, first(**{label: value}))
            for label in LABELS
            for value in requests.label(label).values
        ),
    )


def _first(answer: Explanation) -> str:
    if answer.verdict is not ExplanationVerdict.INCIDENT:
        return QUIET
    return answer.causes[0].id if answer.causes else "unexplained"


def compared(of: Everyone) -> Counter[str]:
    """Count the filters by result: the same cause as without a filter, no incident, or another
    cause."""
    return Counter(
        SAME if first == of.first else QUIET if first == QUIET else OTHER
        for _, _, first in of.answers
    )


def table(found: Sequence[Everyone]) -> Iterator[str]:
    """Yield lines with the counts for each cause and label.

    Cases without slow requests are omitted.
    """
    seen = [each for each in found if each.first != QUIET]
    heading = f"{'one fault':22} {'cases':>5} {'asked':>6} {SAME:>6} {QUIET:>11} {OTHER:>6}"
    yield f"{heading}  other answers"
    for cause in sorted({each.cause for each in seen}):
        mine = [each for each in seen if each.cause == cause]
        sums = sum((compared(each) for each in mine), Counter[str]())
        others = Counter(
            f"{label} {first}"
            for each in mine
            for label, _, first in each.answers
            if first not in (each.first, QUIET)
        )
        instead = ", ".join(f"{name} {count}" for name, count in others.most_common())
        yield (
            f"{cause:22} {len(mine):5} {sums.total():6} {sums[SAME]:6} {sums[QUIET]:11}"
            f" {sums[OTHER]:6}  {instead}"
        ).rstrip()
    yield ""
    for label in LABELS:
        answers = [
            (first, each.first) for each in seen for name, _, first in each.answers if name == label
        ]
        named = [pair for pair in answers if pair[0] != QUIET]
        same = sum(first == everybody for first, everybody in named)
        rate = f"{same / len(named):.1%}" if named else "–"
        yield (
            f"asked as every {label}: the first cause equals the cause without a filter in "
            f"{same} of {len(named)} incidents ({rate}); {len(answers) - len(named)} of "
            f"{len(answers)} have no incident"
        )
    yield f"{len(found) - len(seen)} of {len(found)} faults slowed no request visibly."
