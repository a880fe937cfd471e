"""A part that works for as long as Tailspan runs (a task, a thread, a process), and how it does."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Task:
    """How a part does. One thread or task at a time changes it, any thread may read it.

    Attributes:
        name: what metrics, `/readyz` and `tailspan doctor` call it.
        vital: whether telemetry is lost while it fails, so that senders should go elsewhere.
        quiet_s: the longest time between two successes that is usual; None where it works only
            when there is something to do.
        failures: so many attempts failed.
        problem: the type of what the last attempt failed on; None where it did not.
        begun_unix_s: when it was first started; None before.
        last_success_unix_s: None before the first.
        alive: whether its thread or process runs, where that can be asked.
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
        """An attempt went well."""
        self.problem = None
        self.last_success_unix_s = at_unix_s

    def failed(self, problem: BaseException | str) -> None:
        """An attempt did not. Of an exception only the type is kept: its message may hold data."""
        self.failures += 1
        self.problem = problem if isinstance(problem, str) else type(problem).__name__

    def ailment(self, at_unix_s: float) -> str | None:
        """Why it does not do what it should, in a few words; None where it does."""
        if self.problem is not None:
            return self.problem
        if self.alive is not None and not self.alive():
            return "ended"
        since = self.last_success_unix_s or self.begun_unix_s
        if self.quiet_s is not None and since is not None and at_unix_s - since > self.quiet_s:
            return f"no success for {at_unix_s - since:.0f} s"
        return None
