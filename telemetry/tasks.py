"""The health of a component of Tailspan: an asyncio task, a thread or a process."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Task:
    """The health of one component.

    Only one thread at a time may change the fields. Any thread may read them.

    Attributes:
        name: its name in metrics, `/readyz` and `tailspan doctor`.
        vital: whether telemetry is lost while the component fails. While a vital component fails,
            senders should use a different collector.
        quiet_s: the longest normal time between two successes, or None if the component works on
            demand.
        problem: why the last attempt failed, such as the exception's type.
        begun_unix_s: the time of the first start.
        alive: returns whether the thread or process runs.
    """

    name: str
    vital: bool = False
    quiet_s: float | None = None
    failures: int = 0
    problem: str | None = None
    begun_unix_s: float | None = None
    last_success_unix_s: float | None = None
    alive: Callable[[], bool] | None = None

    def succeeded(self, at_unix_s: float) -> None:
        """Record an attempt that succeeded."""
        self.problem = None
        self.last_success_unix_s = at_unix_s

    def failed(self, problem: BaseException | str) -> None:
        """Record a failed attempt. Only the type of an exception is recorded, because its message
        may contain data."""
        self.failures += 1
        self.problem = problem if isinstance(problem, str) else type(problem).__name__

    def failure_reason(self, at_unix_s: float) -> str | None:
        """Why the component does not work, or None if it works."""
        if self.problem is not None:
            return self.problem
        if self.alive is not None and not self.alive():
            return "ended"
        since = self.last_success_unix_s or self.begun_unix_s
        if self.quiet_s is not None and since is not None and at_unix_s - since > self.quiet_s:
            return f"no success for {at_unix_s - since:.0f} s"
        return None
