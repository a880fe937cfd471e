"""Find the likely cause of an incident in the background, as a sentence for notifications.

A notification never waits for the cause. The diagnosis reads every request of the time range, and
the replay of the causes takes seconds, so both run in a separate process with limits on time and
memory. If that process fails, notifications are still sent. If only the replay fails, the sentence
describes the share by accounting in words. While the incident is open, the diagnosis is repeated
from time to time.
"""

import json
import logging
import os
import pickle
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.counterfactual.explain import with_replayed_shares
from analysis.incident import incident_verdict
from store.alerting.incidents import IncidentRow
from telemetry import child_process
from telemetry.tasks import Task

AGAIN_S: Final = 300

MOST_S: Final = 120
"""Limit on the elapsed time and the processor time of the diagnosis process, in seconds.

The diagnosis of a million requests takes about a second (benchmarks/explain.py). On a busy machine,
the replay takes up to 36 s, and its first compilation about 15 s
(docs/benchmarks.md#shares-by-replay).
"""

MOST_BYTES: Final = 4 * 2**30
"""Limit on the address space of the diagnosis process. The diagnosis of 1.4 million requests takes
2.6 GB, of which it uses 1.6 GB. The replay takes less (docs/benchmarks.md#shares-by-replay)."""

NICE: Final = 10
"""The replay gets CPU time only if the processes that receive telemetry leave some."""

_ANSWER_BYTES: Final = 65_536

Ask = Callable[[Objective, IncidentRow, int], str | None]
"""A slow function that returns the sentence for an incident at an instant, or None without a
cause."""

_log = logging.getLogger(__name__)


class AskError(Exception):
    """The diagnosis process failed or took too long. The message has the reason."""


class LikelyCauses:
    """A cache of the causes of incidents. Searches run one after the other, in a separate thread.

    Args:
        ask: finds the sentence. Called in a separate thread.
        found: called after each search, in the same thread.
    """

    def __init__(self, ask: Ask, found: Callable[[], None] = lambda: None) -> None:
        self.task = Task("likely cause")
        self._ask = ask
        self._found = found
        self._known: dict[tuple[str, str, int], tuple[int, str | None]] = {}
        self._asking = threading.Lock()

    def __call__(self, objective: Objective, incident: IncidentRow, at_s: int) -> str | None:
        """Return the cause if it is already known, without waiting for a search."""
        key = (incident.slo, incident.severity, incident.fired_unix_s)
        asked_s, known = self._known.get(key, (-AGAIN_S, None))
        over = incident.ended_unix_s is not None
        due = at_s - asked_s >= AGAIN_S and not (over and known is not None)
        if due and self._asking.acquire(blocking=False):
            # Keep a known cause while the new search runs.
            self._known[key] = at_s, known
            self._forget(at_s)
            threading.Thread(
                target=self._look,
                args=(key, objective, incident, at_s),
                name="likely-cause",
                daemon=True,
            ).start()
        return known

    def _look(
        self, key: tuple[str, str, int], objective: Objective, incident: IncidentRow, at_s: int
    ) -> None:
        try:
            sentence = self._ask(objective, incident, at_s)
        except Exception as error:
            self.task.failed(error)
            _log.warning("the cause of %s's incident cannot be found: %s", incident.slo, error)
        else:
            self.task.succeeded(time.time())
            if sentence is not None:
                self._known[key] = at_s, sentence
        finally:
            self._asking.release()
        self._found()

    def _forget(self, at_s: int) -> None:
        """Remove incidents whose cause was not requested for a day."""
        for key, (asked_s, _) in list(self._known.items()):
            if at_s - asked_s > 86_400:
                del self._known[key]


def asked_apart(engine: Engine) -> Ask:
    """Return a function that runs the diagnosis in a separate process, on the same database."""
    url = engine.url.render_as_string(hide_password=False)

    def ask(objective: Objective, incident: IncidentRow, at_s: int) -> str | None:
        # The database URL may contain a password, so it is sent on standard input, not as an
        # argument.
        question = pickle.dumps((url, objective, incident, at_s))
        problem = None
        try:
            done = subprocess.run(
                child_process.command("server.likely_cause"),
                input=question,
                capture_output=True,
                env=child_process.environment(),
                timeout=MOST_S,
                check=False,
            )
            printed = done.stdout
            if done.returncode:
                last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
                problem = f"its process ended with status {done.returncode}: {' '.join(last)}"
        except subprocess.TimeoutExpired as error:
            printed, problem = error.stdout or b"", f"it took longer than {MOST_S} s"
        # A process that ended while it wrote may have left a part of a line.
        *answers, _ = printed[:_ANSWER_BYTES].split(b"\n")
        if not answers:
            raise AskError(problem or "its process printed no answer")
        if problem is not None:
            _log.warning("the causes of %s's incident were not replayed: %s", incident.slo, problem)
        answer: dict[str, Any] = json.loads(answers[-1])
        sentence: str | None = answer["sentence"]
        return sentence

    return ask


def find(
    engine: Engine, objective: Objective, incident: IncidentRow, at_s: int
) -> Iterator[str | None]:
    """Yield a sentence about the likely cause, or None if the objective has no latency target or no
    cause is found. Then replay the causes, and yield the sentence with the share by replay."""
    found = incident_verdict(engine, objective, incident, at_s)
    yield None if found is None else found.sentence
    if found is not None:
        os.nice(NICE)
        yield replace(found, first=with_replayed_shares(engine, found.first)).sentence


def main() -> None:
    """Read the pickled question from standard input, and print each sentence as one line of JSON.

    The process has limits of memory and time.
    """
    from store.database import open_database

    child_process.limit_memory(MOST_BYTES)
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_S, MOST_S))
    url, objective, incident, at_s = pickle.loads(sys.stdin.buffer.read())
    engine = open_database(url, create=False)
    try:
        for sentence in find(engine, objective, incident, at_s):
            print(json.dumps({"sentence": sentence}), flush=True)
    finally:
        engine.dispose()


if __name__ == "__main__":
    main()
