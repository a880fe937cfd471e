"""Replays without a process of their own, for tests about something else."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine

from analysis.counterfactual.explain import with_replayed_shares
from diagnosis.explanation import Explanation


def replayed_here(
    engine: Engine, explanation: Explanation, progress: Callable[[], None], *_: Any
) -> Explanation:
    """Replay in this process. Takes the place of `replay_process._from_child`."""
    return with_replayed_shares(engine, explanation, progress)
