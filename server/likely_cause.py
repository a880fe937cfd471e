"""The likely cause of an incident, as a sentence for whoever is paged, found in the background.

A page never waits for it. The diagnosis reads every request of the stretch, so it runs in a process
of its own with limits of time and memory; whatever happens to that process, the next page goes out.
It is asked again while the incident goes on, but not at each evaluation.
"""

import json
import logging
import pickle
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.incident import incident_verdict
from store.alerting.incidents import IncidentRow
from telemetry import child_process
from telemetry.tasks import Task

AGAIN_S: Final = 300

MOST_S: Final = 60
"""How long the process may take, by the clock and of the processor. A million requests take about a
second (benchmarks/explain.py)."""

MOST_BYTES: Final = 4 * 2**30
"""The limit of its address space. A million requests take about 400 MB."""

_ANSWER_BYTES: Final = 65_536

Ask = Callable[[Objective, IncidentRow, int], str | None]
"""The sentence for an incident as of an instant; None where there is none. May take its time."""

_log = logging.getLogger(__name__)


class AskError(Exception):
    """The process did not answer; the message has its exit status."""


class LikelyCauses:
    """Remembers what was found, and has the rest looked for, one incident at a time.

    Args:
        ask: finds the sentence, on a thread of its own.
        found: called after each answer, from that thread.
    """

    def __init__(self, ask: Ask, found: Callable[[], None] = lambda: None) -> None:
        self.task = Task("likely cause")
        self._ask = ask
        self._found = found
        self._known: dict[tuple[str, str, int], tuple[int, str | None]] = {}
        self._asking = threading.Lock()

    def __call__(self, objective: Objective, incident: IncidentRow, at_s: int) -> str | None:
        """Return the cause that is known by now, without waiting."""
        key = (incident.slo, incident.severity, incident.fired_unix_s)
        asked_s, known = self._known.get(key, (-AGAIN_S, None))
        over = incident.ended_unix_s is not None
        due = at_s - asked_s >= AGAIN_S and not (over and known is not None)
        if due and self._asking.acquire(blocking=False):
            # What was found once is not forgotten because it is passing.
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
        """Forget incidents that were not asked about for a day."""
        for key, (asked_s, _) in list(self._known.items()):
            if at_s - asked_s > 86_400:
                del self._known[key]


def asked_apart(engine: Engine) -> Ask:
    """Ask in a process of its own, which opens the same database for reading."""
    url = engine.url.render_as_string(hide_password=False)

    def ask(objective: Objective, incident: IncidentRow, at_s: int) -> str | None:
        # The address may hold a password: it goes by standard input, not as an argument.
        question = pickle.dumps((url, objective, incident, at_s))
        try:
            done = subprocess.run(
                child_process.command("server.likely_cause"),
                input=question,
                capture_output=True,
                env=child_process.environment(),
                timeout=MOST_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise AskError(f"it took longer than {MOST_S} s") from error
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise AskError(f"its process ended with status {done.returncode}: {' '.join(last)}")
        answer: dict[str, Any] = json.loads(done.stdout[:_ANSWER_BYTES])
        sentence: str | None = answer["sentence"]
        return sentence

    return ask


def find(engine: Engine, objective: Objective, incident: IncidentRow, at_s: int) -> str | None:
    """A sentence; None where the objective is on no latency, or no cause is found."""
    found = incident_verdict(engine, objective, incident, at_s)
    return None if found is None else found.sentence


def main() -> None:
    """Answer the question on standard input, within the limits."""
    from store.database import open_database

    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_S, MOST_S))
    url, objective, incident, at_s = pickle.loads(sys.stdin.buffer.read())
    engine = open_database(url, create=False)
    try:
        print(json.dumps({"sentence": find(engine, objective, incident, at_s)}))
    finally:
        engine.dispose()


if __name__ == "__main__":
    main()
