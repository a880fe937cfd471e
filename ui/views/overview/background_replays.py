"""Replay the causes of an open incident in the background, so that the Overview page waits for no
replay.

The page shows the newest replay, or the shares by accounting in words as long as there is none.
"""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Final

import streamlit as st
from sqlalchemy import Engine

from analysis.counterfactual.replay_process import replayed
from diagnosis.explanation import Explanation, Method

AFTER_S: Final = 60.0
"""Seconds from the first incident that the page shows until the first replay. Before then, the
explorer compiles the replay (ui/serving/compiling.py), and the first page must not be slower."""
AGAIN_S: Final = 300.0
"""Seconds between two replays, the same as for notifications (server/likely_cause.py)."""
NICE: Final = 10

Replay = Callable[[Engine, Explanation], Explanation]


def _replay(engine: Engine, explanation: Explanation) -> Explanation:
    return replayed(engine, explanation, nice=NICE)


class BackgroundReplays:
    """The newest replay of one incident. Only one replay runs at a time.

    Args:
        replay: replays the causes of an explanation. Called in a separate thread.
        first_s: the earliest monotonic time of a replay, in seconds.
    """

    def __init__(self, replay: Replay, first_s: float) -> None:
        self._replay = replay
        self._first_s = first_s
        self._known: dict[Hashable, tuple[float, Explanation | None]] = {}
        self._running = threading.Lock()

    def newest(
        self, engine: Engine, key: Hashable, explanation: Explanation, now_s: float
    ) -> Explanation:
        """Return the newest replay of an incident, or the explanation itself if there is none.

        If a replay is due, start it.

        Args:
            engine: from `open_database`.
            key: identifies the incident.
            explanation: the present explanation by accounting.
            now_s: the present monotonic time in seconds.
        """
        due_s, found = self._known.get(key, (self._first_s, None))
        if now_s >= due_s and self._running.acquire(blocking=False):
            again_s = now_s + AGAIN_S
            self._known = {key: (again_s, found)}  # other incidents are no longer shown
            threading.Thread(
                target=self._run, args=(engine, key, explanation, again_s), daemon=True
            ).start()
        return explanation if found is None else found

    def _run(self, engine: Engine, key: Hashable, explanation: Explanation, again_s: float) -> None:
        try:
            found = self._replay(engine, explanation)
            tested = found if found.method is Method.COUNTERFACTUAL else None
            self._known = {key: (again_s, tested)}
        finally:
            self._running.release()


@st.cache_resource(show_spinner=False)
def background_replays(url: str) -> BackgroundReplays:
    """Return the replays of one database, which all viewers share."""
    del url  # part of Streamlit's cache key
    return BackgroundReplays(_replay, time.monotonic() + AFTER_S)
