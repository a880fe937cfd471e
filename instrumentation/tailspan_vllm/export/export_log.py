"""Write two things to the log: the destination of the data, and each change in the outcome of
sending."""

import logging
import time
from collections.abc import Callable
from typing import Final

from tailspan_vllm.export.destination import Signal
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict
from tailspan_vllm.settings import Settings

REPEAT_S: Final = 600.0
"""Minimum interval between two lines about the same refusal."""

_ITEMS: Final[dict[Signal, str]] = {
    "traces": "spans",
    "metrics": "samples",
    "logs": "events (engine starts, requests in flight)",
}


class ExportLog:
    """Use this only on the sending thread."""

    def __init__(
        self,
        settings: Settings,
        logger: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._logger = logger
        self._clock = clock
        self._unavailable: set[Signal] = set()
        self._logged_at: dict[tuple[str, str], float] = {}
        self._begun = False

    @property
    def unavailable(self) -> frozenset[Signal]:
        """The signals whose collector does not respond or asks to wait."""
        return frozenset(self._unavailable)

    def begin(self) -> None:
        """Log where data is sent, and which variables are malformed. Idempotent."""
        if self._begun:
            return
        self._begun = True
        self._logger.info(
            "tailspan: capturing; spans and samples go to %s (%s)",
            self._settings.destinations["traces"].shown,
            self._settings.protocol,
        )
        for complaint in self._settings.complaints:
            self._logger.warning("tailspan: %s", complaint)

    def note(self, signal: Signal, outcome: ExportResponse) -> None:
        """Process the outcome of one message, and log a change."""
        was_unavailable = self.unavailable
        if outcome.retryable:
            self._unavailable.add(signal)
        else:
            self._unavailable.discard(signal)
        shown = self._settings.destinations[signal].shown
        if self.unavailable and not was_unavailable:
            unreachable = outcome.verdict is ExportVerdict.UNREACHABLE
            self._logger.warning(
                "tailspan: %s (%s): %s; keeping up to %d spans and trying again",
                f"no collector at {shown}"
                if unreachable
                else f"the collector at {shown} asks to wait",
                self._settings.protocol,
                outcome.reason,
                self._settings.queue_limit,
            )
        elif was_unavailable and not self.unavailable:
            self._logger.warning("tailspan: the collector at %s is back", shown)
        if outcome.verdict in (ExportVerdict.REFUSED, ExportVerdict.DENIED) or outcome.rejected:
            self._refused(signal, shown, outcome.reason)

    def _refused(self, signal: Signal, shown: str, reason: str) -> None:
        # The text after the status code can vary.
        group, now = (signal, reason.partition(":")[0]), self._clock()
        if now - self._logged_at.get(group, -REPEAT_S) < REPEAT_S:
            return
        self._logged_at[group] = now
        self._logger.warning(
            "tailspan: the collector at %s refuses %s: %s; refused items are dropped and counted,"
            " other items are sent",
            shown,
            _ITEMS[signal],
            reason,
        )
