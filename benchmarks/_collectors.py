"""Several collectors on one PostgreSQL, which are killed and stopped while objectives burn.

The collectors are separate processes with all leases (`store.leases`). Senders distribute messages
over the collectors as a load balancer does, and send a message again, to the next collector, until
it is acknowledged. A webhook records the notifications.
"""

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import psycopg
import requests
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.otlp.encoder import encode
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.record import RequestRecord

from rig.answering import HttpServer, answering
from rig.program import FREE_PORTS, PATIENCE_S, Tailspan

QUICK = Path(__file__).with_name("_quick_collector.py")
QUIET_S = 15
"""An incident is over after this many seconds without an alert; 300 s in Tailspan."""
TIMEOUT_S = 2.0
"""Maximum time that a sender waits for a collector."""
EACH = 6
"""The number of requests of each model in a message."""

OBJECTIVE = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: MODEL}
spec:
  service: MODEL
  budgetingMethod: Occurrences
  timeWindow: [{duration: 30d, isRolling: true}]
  objectives: [{target: 0.99}]
  indicator: {spec: {ratioMetric: {counter: true,
    total: {metricSource: {type: tailspan, spec: {where: model == "MODEL"}}},
    good: {metricSource: {type: tailspan, spec: {good: ttft_s <= 0.5}}}}}}
  alertPolicies:
    - kind: AlertPolicy
      metadata: {name: quick}
      spec:
        alertWhenNoData: false
        conditions:
          - kind: AlertCondition
            metadata: {name: quick}
            spec:
              severity: page
              condition: {kind: burnrate, op: gt, threshold: 5, lookbackWindow: 2m, alertAfter: 1m}
"""


class QuickTailspan(Tailspan):
    """A running `tailspan up` whose incidents end after `QUIET_S`."""

    def __init__(self, folder: Path, *words: str) -> None:
        quick = (sys.executable, str(QUICK), str(QUIET_S))
        super(Tailspan, self).__init__(folder, *quick, *words, *FREE_PORTS)


@dataclass
class Collectors:
    """The running collectors. Use `running`."""

    folder: Path
    url: str
    words: Sequence[str]
    programs: list[QuickTailspan] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    """The port of OTLP over HTTP of each collector."""
    _running: ExitStack = field(default_factory=ExitStack)

    def start(self, number: int) -> None:
        """Start further collectors at the same time, and wait until they are up."""
        began = [self._begin(len(self.programs) + each) for each in range(number)]
        for program in began:
            self.ports.append(program.is_up().port("http"))
            self.programs.append(program)

    def restart(self, at: int) -> None:
        """Replace a collector that was killed."""
        program = self._begin(at)
        self.ports[at] = program.is_up().port("http")
        self.programs[at] = program

    def holder(self, at: int) -> str:
        """Return the part of a holder of a lease that names this collector."""
        return f":{self.programs[at].process.pid}:"

    def _begin(self, at: int) -> QuickTailspan:
        folder = self.folder / f"collector-{at}"
        folder.mkdir(exist_ok=True)
        words = ("up", "--no-explorer", "--gpus=off", f"--database={self.url}", *self.words)
        return self._running.enter_context(QuickTailspan(folder, *words))


@contextmanager
def running(
    folder: Path, url: str, models: Sequence[str], webhook: str, number: int
) -> Iterator[Collectors]:
    """Run collectors that evaluate an objective for each model, and that all notify a webhook."""
    objectives = folder / "objectives"
    objectives.mkdir()
    for model in models:
        (objectives / f"{model}.yaml").write_text(OBJECTIVE.replace("MODEL", model))
    notify = folder / "notify.yaml"
    notify.write_text(f"channels:\n  - {{name: hook, type: webhook, url: '{webhook}'}}\n")
    words = (f"--objectives={objectives}", f"--notify={notify}")
    collectors = Collectors(folder, url, words)
    with collectors._running:
        collectors.start(number)
        yield collectors
        for program in collectors.programs:
            program.process.send_signal(SIGCONT)


class Traffic:
    """Threads that send requests. A `with` statement starts and ends them.

    Args:
        collectors: the collectors.
        models: the models of the requests.
        every_s: the pause of each thread between two messages.
    """

    def __init__(self, collectors: Collectors, models: Sequence[str], every_s: float = 0.2) -> None:
        self.slow: set[str] = set()
        """The models whose requests miss their objective."""
        self.acknowledged: set[str] = set()
        """Trace ids that were acknowledged."""
        self._collectors = collectors
        self._models = models
        self._every_s = every_s
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(3)]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        with requests.Session() as session:
            session.trust_env = False
            while not self._stop.wait(self._every_s):
                body, ids = self._message(chance)
                at = chance.randrange(len(self._collectors.ports))
                deadline_s = time.monotonic() + PATIENCE_S
                while not (sent := self._sent(session, body, at)) and time.monotonic() < deadline_s:
                    at = (at + 1) % len(self._collectors.ports)
                if sent:
                    self.acknowledged.update(ids)

    def _sent(self, session: requests.Session, body: bytes, at: int) -> bool:
        url = f"http://127.0.0.1:{self._collectors.ports[at]}/v1/traces"
        headers = {"Content-Type": "application/x-protobuf"}
        try:
            return session.post(url, body, headers=headers, timeout=TIMEOUT_S).status_code == 200
        except requests.RequestException:
            return False

    def _message(self, chance: random.Random) -> tuple[bytes, set[str]]:
        resource = Resource({names.SERVICE_NAME: "vllm", names.SERVICE_INSTANCE_ID: "vllm-0"})
        records = [
            record(chance, model, 2.0 if model in self.slow else 0.1)
            for model in self._models
            for _ in range(EACH)
        ]
        ids = {f"{each.trace_id:032x}" for each in records}
        return bytes(encode([span_of(each, resource) for each in records])), ids


def record(chance: random.Random, model: str, ttft_s: float) -> RequestRecord:
    """Return a request that ends now."""
    now = time.monotonic()
    began = now - ttft_s - 0.1
    return RequestRecord(
        received=began,
        queued=began + 0.01,
        scheduled=began + 0.02,
        first_token=now - 0.1,
        first_byte=now - 0.1,
        last_token=now,
        delivered=now,
        wall_offset_ns=time.time_ns() - time.monotonic_ns(),
        outcome="stop",
        basis="http",
        trace_id=chance.getrandbits(128) or 1,
        span_id=chance.getrandbits(64) or 1,
        request_id=f"chatcmpl-{chance.getrandbits(64):016x}",
        model=model,
        output_tokens=10,
        streamed=True,
    )


class LeaseWatch:
    """A thread that records the holder of each lease. A `with` statement starts and ends it."""

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
        """Return the current holder of each lease."""
        return {name: holder for _, name, holder in list(self.changes)}

    def takeovers_s(self, lost: Sequence[tuple[float, str]]) -> list[float]:
        """Return the time until each lease of each failed collector had another holder.

        Args:
            lost: the time of each failure, and the part of the holder that names the collector.
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
class Outcome:
    """What happened during a run."""

    burns: int
    messages: Counter[str]
    """The number of received messages by key: incident, transition and whether it is an update."""
    acknowledged: int
    lost: int
    doubled: int
    kills: int
    stops: int
    takeovers_s: list[float]


def disturb(
    collectors: Collectors,
    traffic: Traffic,
    watch: LeaseWatch,
    models: Sequence[str],
    chance: random.Random,
    seconds: float,
) -> list[tuple[float, str, str]]:
    """Let each objective burn for a while, and kill or stop collectors at random moments.

    Half of the failures hit the collector that sends notifications.

    Returns:
        The time, the kind and the holder of each failure.
    """
    began_s = time.monotonic()
    failures: list[tuple[float, str, str]] = []
    ready_s: dict[int, float] = {}
    """When a collector that failed works again."""
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


def run(folder: Path, dsn: str, url: str, *, seed: int, seconds: float, burns: int = 6) -> Outcome:
    """Run three collectors, let objectives burn, and kill and stop collectors for some seconds.

    Args:
        folder: an empty folder for the collectors' files.
        dsn: the database's address in the format of the driver.
        url: the same for Tailspan.
        seed: determines the failures.
        seconds: the duration of the failures. The run takes up to two minutes longer.
        burns: the number of objectives that burn.
    """
    models = [f"m{number}" for number in range(burns)]
    with ExitStack() as stack:
        webhook = stack.enter_context(answering())
        collectors = stack.enter_context(running(folder, url, models, f"{webhook.url}/hook", 3))
        watch = stack.enter_context(LeaseWatch(dsn))
        traffic = stack.enter_context(Traffic(collectors, models))
        time.sleep(2)
        failures = disturb(collectors, traffic, watch, models, random.Random(seed), seconds)
        deadline_s = time.monotonic() + 120
        while _resolved(webhook) < burns and time.monotonic() < deadline_s:
            time.sleep(1)
        time.sleep(20)  # a further message would come with the next evaluation
        traffic.__exit__()
        messages = Counter(key for key, _ in _messages(webhook))
        with psycopg.connect(dsn) as connection:
            stored = [row[0] for row in connection.execute("SELECT trace_id FROM requests")]
        return Outcome(
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
    """Return the key and the transition of each received message."""
    found = []
    for asked in list(webhook.asked):
        found.append((asked.headers["idempotency-key"], json.loads(asked.body)["transition"]))
    return found


def _resolved(webhook: HttpServer) -> int:
    return len({key for key, transition in _messages(webhook) if transition == "resolved"})
