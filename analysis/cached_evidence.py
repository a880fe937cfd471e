"""Explain latencies from cached columns of requests."""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.access.evidence import explained_where
from analysis.explain import EVIDENCE_COLUMNS, joined_evidence, windows_of
from analysis.thresholds import thresholds
from analysis.unfinished_requests import with_unfinished_requests
from diagnosis.explain import explain
from diagnosis.explanation import Explanation
from diagnosis.inputs.arrow import requests_of, servers_of
from diagnosis.question import Question
from store.access.restricted import with_masked_rows
from store.columns.evidence import EvidenceCache, EvidenceRows
from telemetry.window import Window


class CachedEvidence:
    """The requests from which latency increases are explained.

    Readers with the same rights can share it. Requests that the readers are not allowed to see are
    in the cache without their names.
    """

    def __init__(self, engine: Engine) -> None:
        self._whole = with_masked_rows(engine)
        self._kept = EvidenceCache(self._whole, EVIDENCE_COLUMNS)

    @property
    def requests(self) -> int:
        """Number of cached requests."""
        return self._kept.requests

    def read_ahead(self, window: Window) -> None:
        """Read a window into the cache."""
        self._kept.read(window, {})

    def read(self, question: Question) -> EvidenceRows:
        """The data for a question, with the requests that are in flight on a hung engine."""
        windows = windows_of(question)
        found = joined_evidence([self._kept.read(each, {}) for each in windows])
        return with_unfinished_requests(self._whole, found, windows)

    def explain(
        self, engine: Engine, question: Question, objectives: Sequence[Objective]
    ) -> Explanation:
        """Explain as `analysis.explain.explain_question` does, but without network times.

        Raises:
            NotAllowed: the question is about requests that the reader may not see.
        """
        question = replace(question, where=explained_where(engine, question.where))
        found = self.read(question)
        return explain(
            requests_of(found.requests),
            servers_of(found.engines, found.gpus, found.starts, found.cold_starts),
            question,
            thresholds(objectives, question.metric),
        )
