"""The observer does no harm: nothing of ours raises into vLLM, and each failure is counted."""

import logging
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

logger = logging.getLogger("vllm.tailspan")

P = ParamSpec("P")

failures: Counter[str] = Counter()
"""Failures of our own code by hook name, told with every engine sample."""


def note_failure(hook: str) -> None:
    """Count the exception that is being handled; the first of each hook is logged."""
    failures[hook] += 1
    if failures[hook] == 1:
        logger.exception("tailspan: %s failed; serving goes on without it", hook)


def harmless(hook: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a procedure swallow and count whatever it raises; the first of each hook is logged.

    Args:
        hook: the name under which failures are counted.
    """

    def decorate(procedure: Callable[P, None]) -> Callable[P, None]:
        @wraps(procedure)
        def safe(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                procedure(*args, **kwargs)
            except Exception:
                note_failure(hook)

        return safe

    return decorate
