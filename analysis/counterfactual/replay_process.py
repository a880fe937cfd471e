"""Replay a window without each cause, in a child process with limits on memory and time.

If the child fails, the explanation keeps its shares without confidence intervals. `not_replayed`
then states the reason.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from sqlalchemy import Engine

from analysis.answer_process import Step, answer_in_child, nothing
from analysis.counterfactual.explain import with_replayed_shares, without_replay
from diagnosis.explanation import Explanation


def replayed(
    engine: Engine,
    explanation: Explanation,
    progress: Step = nothing,
    compiling: Step = nothing,
    nice: int = 0,
) -> Explanation:
    """Run `with_replayed_shares` in a child process, and return its explanation."""
    if (known := without_replay(explanation)) is not None:
        return known
    found, problem, _ = answer_in_child(
        engine, partial(replays, explanation), progress, compiling, nice
    )
    if found is None:
        return replace(explanation, not_replayed=problem)
    tested: Explanation = found
    return tested


def replays(
    explanation: Explanation,
    engine: Engine,
    progress: Callable[[], None],
    compiling: Callable[[], None],
) -> Iterator[Explanation]:
    """Yield the explanation with shares from replays. Runs in the child."""
    from replay.loop import warm

    warm(compiling)
    yield with_replayed_shares(engine, explanation, progress)
