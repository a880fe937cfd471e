"""Renew the leases of this collector, and take expired leases of other collectors.

If several collectors share a database, only the collector with the lease on a task does the task.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from store.leases import BEAT_S, EXPIRES_S, Leases
from telemetry.store_errors import StoreError
from telemetry.tasks import Task

QUIET_S: Final = 4 * EXPIRES_S
"""Seconds without a renewal after which the task `leases` counts as failed."""
GRACE_S: Final = 2.0

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """Renews leases in a thread, so that a slow evaluation does not delay a renewal.

    Args:
        taken: called from the thread after a lease was taken.
    """

    def __init__(
        self, leases: Leases, taken: Callable[[], None], print_line: Callable[[str, bool], None]
    ) -> None:
        self._leases = leases
        self._taken = taken
        self._print_line = print_line
        self._held: frozenset[str] = frozenset()
        self._problem = ""
        """Why the last renewal failed; empty if it succeeded."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self.task = Task("leases", quiet_s=QUIET_S, alive=self._thread.is_alive)

    def start(self) -> None:
        """Try to take the leases, then start the thread. May block for seconds."""
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and give up the leases.

        Idempotent. Before the call, stop all work that needs the leases.
        """
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(GRACE_S)
        # A thread that is still running waits for the database.
        if not self._thread.is_alive():
            try:
                self._leases.release()
            except StoreError as error:
                _log.warning("the leases were not given up, so they expire: %s", error)

    def held(self) -> dict[str, bool]:
        """Maps each lease to whether this process holds it. The result is {} if leases are not
        needed."""
        if not self._leases.shared:
            return {}
        return {name: self._leases.term(name) is not None for name in self._leases.names}

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            self._beat()

    def _beat(self) -> None:
        try:
            self._leases.beat()
        except StoreError as error:
            self._problem = str(error)
            self.task.failed(error)
            _log.warning("the leases could not be renewed: %s", error)
        except Exception as error:  # a defect
            self.task.failed(error)
            _log.exception("the leases could not be renewed")
        else:
            self._problem = ""
            self.task.succeeded(time.time())
        self._report()

    def _report(self) -> None:
        held = frozenset(name for name, is_held in self.held().items() if is_held)
        before, self._held = self._held, held
        if new := held - before:
            self._print_line(
                f"This collector now does the {_listed(new)} for all collectors.", False
            )
            self._taken()
        if lost := before - held:
            why = f", because {self._problem}" if self._problem else ""
            until = " These tasks pause until it is available." if self._problem else ""
            self._print_line(
                f"This collector has lost the lease on {_listed(lost)}{why}.{until}", True
            )


def _listed(names: frozenset[str]) -> str:
    *rest, last = sorted(names)
    return f"{', '.join(rest)} and {last}" if rest else last
