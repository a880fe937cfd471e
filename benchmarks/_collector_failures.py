"""Kill and stop collectors while error budgets burn, and count missing and repeated
notifications."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import psycopg
from sqlalchemy import select

from benchmarks._collector_traffic import CollectorTraffic
from benchmarks._collectors import Collectors, running
from rig.http_servers import HttpServer, running_http_server
from store.connections import reading
from store.database import open_database
from store.schema import REQUESTS


class LeaseWatch:
    """A thread that records which collector holds each lease, for a `with` statement."""

    def __init__(self, dsn: str) -> None:
        self.changes: list[tuple[float, str, str]] = []
        """The monotonic time, the lease and the new holder of each change."""
        self._dsn = dsn
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "LeaseWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def holders(self) -> dict[str, str]:
        """The current holder of each lease."""
        return {name: holder for _, name, holder in list(self.changes)}

    def takeovers_s(self, lost: Sequence[tuple[float, str]]) -> list[float]:
        """For each lease that a failed collector held, the seconds until a second collector held
        the lease.

        Args:
            lost: the time of each failure, and the text that identifies the failed collector as the
                holder of a lease (`Collectors.holder`).
        """
        found = []
        changes = list(self.changes)
        for at_s, who in lost:
            held = {name: holder for when, name, holder in changes if when <= at_s}
            for lease, holder in held.items():
                if who not in holder:
                    continue
                next_s = [when for when, name, _ in changes if name == lease and when > at_s]
                found.append(min(next_s) - at_s if next_s else float("inf"))
        return found

    def _run(self) -> None:
        known: dict[str, str] = {}
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._stop.wait(0.1):
                rows = connection.execute("SELECT name, holder FROM leases").fetchall()
                for name, holder in rows:
                    if known.get(name) != holder:
                        known[name] = holder
                        self.changes.append((time.monotonic(), name, holder))


@dataclass
class RunOutcome:
    """The counts of a run."""

    burns: int
    messages: Counter[str]
    """The number of received messages for each incident and transition. Updates are counted
    separately."""
    acknowledged: int
    lost: int
    doubled: int
    kills: int
    stops: int
    takeovers_s: list[float]


def disturb(
    collectors: Collectors,
    traffic: CollectorTraffic,
    watch: LeaseWatch,
    models: Sequence[str],
    chance: random.Random,
    seconds: float,
) -> list[tuple[float, str, str]]:
    """Burn the error budget of each objective, and kill or stop collectors at random moments.

    Half of the failures hit the collector that sends notifications. Return the time and the kind of
    each failure, and the text that identifies the failed collector (`Collectors.holder`).
    """
    began_s = time.monotonic()
    failures: list[tuple[float, str, str]] = []
    ready_s: dict[int, float] = {}
    """For each failed collector: the monotonic time from which it works again."""
    next_s = began_s + 5
    starting: list[threading.Thread] = []
    while (now_s := time.monotonic()) < began_s + seconds:
        age_s = now_s - began_s
        for number, model in enumerate(models):
            slow = 5 + 5 * number <= age_s < 40 + 5 * number
            (traffic.slow.add if slow else traffic.slow.discard)(model)
        if now_s >= next_s:
            next_s = now_s + chance.uniform(6, 12)
            whole = [each for each in range(len(collectors.ports)) if ready_s.get(each, 0) < now_s]
            leader = watch.holders().get("notification", "")
            leading = [each for each in whole if collectors.holder(each) in leader]
            at = chance.choice(leading if leading and chance.random() < 0.5 else whole)
            if len(whole) > 1:
                holder, process = collectors.holder(at), collectors.programs[at].process
                kind = chance.choice(["kill", "stop"])
                failures.append((now_s, kind, holder))
                ready_s[at] = now_s + 30
                if kind == "kill":
                    process.send_signal(SIGKILL)
                    process.wait()
                    starting.append(threading.Thread(target=collectors.restart, args=(at,)))
                    starting[-1].start()
                else:
                    process.send_signal(SIGSTOP)
                    resume = threading.Timer(25, process.send_signal, (SIGCONT,))
                    starting.append(resume)
                    resume.start()
        time.sleep(0.1)
    for each in starting:
        each.join()
    return failures


def run(
    folder: Path,
    dsn: str,
    url: str,
    state_url: str | None = None,
    *,
    seed: int,
    seconds: float,
    burns: int = 6,
) -> RunOutcome:
    """Run three collectors, burn error budgets, and kill and stop collectors.

    Args:
        dsn: the database with the leases, in the driver's format.
        seconds: the duration of the failures. The run takes up to two minutes longer.
    """
    models = [f"m{number}" for number in range(burns)]
    with ExitStack() as stack:
        webhook = stack.enter_context(running_http_server())
        hook = f"{webhook.url}/hook"
        collectors = stack.enter_context(running(folder, url, models, hook, 3, state_url))
        watch = stack.enter_context(LeaseWatch(dsn))
        traffic = stack.enter_context(CollectorTraffic(collectors, models))
        time.sleep(2)
        failures = disturb(collectors, traffic, watch, models, random.Random(seed), seconds)
        deadline_s = time.monotonic() + 120
        while _resolved(webhook) < burns and time.monotonic() < deadline_s:
            time.sleep(1)
        time.sleep(20)  # if a notification were sent without a need, it would arrive now
        traffic.__exit__()
        messages = Counter(key for key, _ in _messages(webhook))
        engine = open_database(url, state_url, create=False)
        with reading(engine) as connection:
            stored = connection.scalars(select(REQUESTS.c.trace_id)).all()
        engine.dispose()
        return RunOutcome(
            burns,
            messages,
            len(traffic.acknowledged),
            len(traffic.acknowledged - set(stored)),
            len(stored) - len(set(stored)),
            sum(kind == "kill" for _, kind, _ in failures),
            sum(kind == "stop" for _, kind, _ in failures),
            watch.takeovers_s([(at_s, who) for at_s, _, who in failures]),
        )


def _messages(webhook: HttpServer) -> list[tuple[str, str]]:
    found = []
    for request in list(webhook.received):
        found.append((request.headers["idempotency-key"], json.loads(request.body)["transition"]))
    return found


def _resolved(webhook: HttpServer) -> int:
    return len({key for key, transition in _messages(webhook) if transition == "resolved"})
