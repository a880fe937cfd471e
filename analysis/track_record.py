"""Count the stored predictions whose interval contains the change that was measured after the
deploy.

The requests before and after each deploy must still be stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from analysis.compare.deploys import QUANTILE, Deploy, compare_deploy, latest_deploy
from analysis.compare.question import CompareError
from analysis.stored_predictions import deployed, expected, of_change, replicas_of
from store.predictions import Prediction, predictions
from store.queries import request_table
from telemetry.store_errors import NotAllowed
from telemetry.window import Window

METRICS: Final = ("ttft", "tpot", "e2e")
MAX_DEPLOYS: Final = 10
"""Maximum number of deploys, the latest first."""


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """The number of predicted percentiles, and how many of their confidence intervals contain the
    measured change."""

    deploys: int
    percentiles: int
    contained: int

    @property
    def sentence(self) -> str:
        """A sentence that states for how many predictions the confidence interval contained the
        measured change."""
        deploys = "1 deploy" if self.deploys == 1 else f"{self.deploys} deploys"
        return (
            f"The intervals of {self.contained} of {self.percentiles} predictions contained the"
            f" measured change (P99 of TTFT, TPOT and E2E; {deploys})."
        )


def track_record(engine: Engine, now_unix_ns: int) -> TrackRecord | None:
    """Return the track record of the latest deploys, or None if none of their changes was
    predicted."""
    # A prediction can be from the future, if the clock was set back.
    known = [each for each in predictions(engine) if each.asked_unix_ns <= now_unix_ns]
    if not known:
        return None
    window = Window(min(each.asked_unix_ns for each in known), now_unix_ns)
    deploys = percentiles = contained = 0
    for _ in range(MAX_DEPLOYS):
        deploy = latest_deploy(engine, window)
        if deploy is None or deploy.change.from_unix_ns <= window.from_unix_ns:
            break
        found = _contained(engine, deploy, known, window.to_unix_ns)
        deploys += bool(found)
        percentiles += len(found)
        contained += sum(found)
        window = Window(window.from_unix_ns, deploy.change.from_unix_ns)
    return TrackRecord(deploys, percentiles, contained) if deploys else None


def _contained(
    engine: Engine, deploy: Deploy, known: Sequence[Prediction], to_unix_ns: int
) -> list[bool]:
    """Return whether the confidence interval of each predicted percentile contains the measured
    change. `to_unix_ns` is the start of the next deploy, or the current time."""
    after = deploy.after(to_unix_ns)
    if after is None:
        return []
    served = [
        replicas_of(request_table(engine, each, columns=["replica"])["replica"])
        for each in (deploy.before, after)
    ]
    made = deployed(engine, deploy.before, after, served)
    if not of_change(known, made):
        return []
    try:
        answer = compare_deploy(engine, deploy, after, METRICS)
    except (CompareError, NotAllowed):
        return []
    predicted = (
        expected(known, made, each.question.metric, QUANTILE, each.decision.parts)
        for each in answer.found
    )
    return [each.contained for each in predicted if each is not None]
