"""The latest start of each engine, read from the store and cached."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from exporters.totals.engines import EngineKey
from telemetry.starts import EngineStart

CACHE_NS: Final = 30 * 10**9

_log = logging.getLogger(__name__)


class LatestStarts:
    """The latest start of each engine."""

    def __init__(
        self,
        starts: Callable[[Collection[str]], Sequence[EngineStart]],
        clock_unix_ns: Callable[[], int],
    ) -> None:
        self._ask = starts
        self._clock_unix_ns = clock_unix_ns
        self._starts: dict[EngineKey, EngineStart] = {}
        self._asked_unix_ns: int | None = None
        self._lock = threading.Lock()

    def of(self, replicas: Collection[str]) -> Mapping[EngineKey, EngineStart]:
        """The starts of these replicas' engines.

        The result may also contain starts of other engines. Pass only replicas that send samples,
        because any sender can invent engine starts.
        """
        now_unix_ns = self._clock_unix_ns()
        with self._lock:
            read_unix_ns = self._asked_unix_ns
            if replicas and (
                read_unix_ns is None or not 0 <= now_unix_ns - read_unix_ns < CACHE_NS
            ):
                self._asked_unix_ns = now_unix_ns
                try:
                    self._starts = {
                        (start.replica, start.engine): start for start in self._ask(replicas)
                    }
                except Exception:  # the scrape continues with the earlier starts
                    _log.warning("the engine starts could not be read", exc_info=True)
            return self._starts
