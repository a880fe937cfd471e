"""Fixtures: databases of a seeded fleet with an incident, for tests of pages."""

import itertools
import os
import pickle
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from analysis.counterfactual import replay_process
from rig.ports import free_port
from server.explorer_launch import launch
from store.alerting.incidents import store_evaluation
from store.database import open_database
from store.queries import request_table
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.incidents import IncidentRow
from telemetry.requests import DECODE_PARTS, PREFILL_PARTS, Basis, Outcome, RequestTimeline, Source
from telemetry.starts import EngineStart, written
from telemetry.window import Window
from tests.replaying import answer_here
from tests.ui.opening import APP, Open, packages_are_scanned_once

__all__ = ["packages_are_scanned_once"]

SECOND_NS = 1_000_000_000


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return a function that opens the explorer on a database, and replays in this process."""
    monkeypatch.setattr(replay_process, "answer_in_child", answer_here)

    def open_page(url: str, **parameters: str) -> AppTest:
        monkeypatch.setenv("TAILSPAN_DATABASE_URL", url)
        test = AppTest.from_file(str(APP), default_timeout=60)
        for name, value in parameters.items():
            test.query_params[name] = value
        assert not test.run().exception
        return test

    return open_page


def make_request(number: int = 1, **changes: Any) -> RequestTimeline:
    """Return a request whose phases sum to its end-to-end time."""
    known: dict[str, Any] = {
        "trace_id": f"{number:032x}",
        "span_id": f"{number:016x}",
        "request_id": f"chatcmpl-{number:08x}",
        "received_unix_ns": 1_763_600_000 * SECOND_NS + number * SECOND_NS,
        "outcome": Outcome.STOP,
        "source": Source.INSTRUMENTATION,
        "basis": Basis.HTTP,
        "frontend_s": 0.004,
        "queue_s": 0.02,
        "prefill_s": 0.08,
        "decode_s": 1.5,
        "delivery_s": 0.002,
        "ttft_s": 0.105,
        "itl_max_s": 0.03,
        "model": "llama-3-8b",
        "route": "/v1/chat/completions",
        "tenant": "acme",
        "replica": "r1",
        "engine": 0,
        "prompt_tokens": 400,
        "cached_tokens": 128,
        "output_tokens": 150,
    }
    known.update(changes)
    phases = ("frontend_s", "queue_s", "prefill_s", "decode_s", "delivery_s")
    known.setdefault("e2e_s", sum(known[name] or 0.0 for name in phases))
    return RequestTimeline(**known)


def make_fleet(
    requests: int, from_unix_ns: int, length_s: float, *, seed: int = 7, simulated: bool = False
) -> tuple[list[RequestTimeline], list[EngineSample]]:
    """Return requests and samples of three replicas; the queue of one grows in the last third."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.uniform(0, length_s, requests))
    replica = rng.integers(0, 3, requests)
    incident = np.clip((at / length_s - 0.62) * 6, 0, 1) * np.where(replica == 1, 1.0, 0.25)
    frontend = rng.lognormal(-5.6, 0.4, requests)
    queue = rng.lognormal(-4.5, 0.8, requests) + incident * rng.gamma(2.0, 0.5, requests)
    prompt = np.clip(rng.lognormal(6.2, 1.0, requests), 5, 30_000).astype(int)
    prefill = 0.02 + prompt * 6e-5 * rng.lognormal(0, 0.2, requests)
    output = np.clip(rng.geometric(1 / 130, requests), 1, 1024)
    gap = 0.011 * rng.lognormal(0, 0.15, requests) * (1 + 0.8 * incident)
    decode = gap * (output - 1)
    others = decode * 0.35 * np.clip(incident, 0, 1)
    preempted = np.where(rng.random(requests) < 0.02 + 0.05 * incident, decode * 0.3, 0.0)
    stall = np.where(rng.random(requests) < 0.01, decode * 0.15, 0.0)
    delivery = rng.lognormal(-6.5, 0.5, requests)
    fate = rng.random(requests)
    rows = []
    for i in range(requests):
        outcome = Outcome.STOP if fate[i] < 0.86 else Outcome.LENGTH
        changes: dict[str, Any] = {}
        if fate[i] > 0.995:
            outcome = Outcome.REJECTED
            changes = dict.fromkeys(
                (
                    *("queue_s", "prefill_s", "decode_s", "delivery_s", "ttft_s", "itl_max_s"),
                    *(*PREFILL_PARTS, *DECODE_PARTS),
                ),
                None,
            )
            changes |= {"output_tokens": None, "cached_tokens": None, "http_status": 429}
        elif fate[i] > 0.98:
            outcome = Outcome.ABORT
        rows.append(
            make_request(
                i,
                **{
                    "received_unix_ns": from_unix_ns + int(at[i] * SECOND_NS),
                    "trace_id": f"{seed:08x}{i:024x}",
                    "request_id": f"chatcmpl-{rng.integers(2**62):016x}",
                    "source": Source.SIMULATOR if simulated else Source.INSTRUMENTATION,
                    "outcome": outcome,
                    "frontend_s": float(frontend[i]),
                    "queue_s": float(queue[i]),
                    "prefill_s": float(prefill[i]),
                    "decode_s": float(decode[i]),
                    "delivery_s": float(delivery[i]),
                    **dict.fromkeys(PREFILL_PARTS, 0.0),
                    "prefill_own_s": float(prefill[i]),
                    "decode_own_s": float(decode[i] - preempted[i] - others[i] - stall[i]),
                    "decode_others_prefill_s": float(others[i]),
                    "decode_others_decode_s": 0.0,
                    "decode_preempted_s": float(preempted[i]),
                    "decode_stall_s": float(stall[i]),
                    "ttft_s": float(frontend[i] + queue[i] + prefill[i]) + 0.001,
                    "itl_max_s": float(gap[i] * 3),
                    "replica": f"r{replica[i] + 1}",
                    "tenant": ("acme", "blue", "corp", "delta")[i % 4],
                    "prompt_tokens": int(prompt[i]),
                    "cached_tokens": int(prompt[i] * 0.3),
                    "output_tokens": int(output[i]),
                    "waiting_at_arrival": int(incident[i] * 30),
                    "running_at_arrival": 20,
                    "kv_usage_at_arrival": 0.5 + 0.4 * float(incident[i]),
                    **changes,
                },
            )
        )
    return rows, _samples(rng, from_unix_ns, length_s, simulated)


def make_incident(
    from_unix_ns: int, *, waited_s: float = 2.0, number: int = 400, **common: Any
) -> list[RequestTimeline]:
    """Return twenty minutes of requests; in the last ten, they wait for KV cache blocks."""
    rows = []
    for place in range(2 * number):
        late = waited_s if place >= number else 0.0
        known: dict[str, Any] = {
            "received_unix_ns": from_unix_ns + place * 600 * SECOND_NS // number,
            "source": Source.SIMULATOR,
            "streamed": True,
            "frontend_s": 0.01,
            "queue_s": late,
            **dict.fromkeys(("queue_seats_s", "queue_budget_s"), 0.0),
            **dict.fromkeys(("queue_held_s", "queue_step_s"), 0.0),
            "queue_kv_s": late,
            "prefill_s": 0.05,
            "decode_s": 0.5,
            "delivery_s": 0.01,
            "ttft_s": 0.07 + late + 0.001 * (place % 10),
            "prompt_tokens": 100 + place % 50,
            "output_tokens": 20,
            "replica": ("r1", "r2")[place % 2],
            **common,
        }
        rows.append(make_request(place, **known))
    return rows


def _samples(
    rng: np.random.Generator, from_unix_ns: int, length_s: float, simulated: bool
) -> list[EngineSample]:
    step_s = max(1, int(length_s // 1200))
    return [
        EngineSample(
            replica=f"r{replica + 1}",
            engine=0,
            process=1,
            at_unix_ns=from_unix_ns + second * SECOND_NS,
            started_unix_ns=from_unix_ns,
            simulated=simulated,
            waiting=int(rng.poisson(1 + 25 * max(0.0, second / length_s - 0.65) * (replica == 1))),
            running=int(rng.poisson(18)),
            kv_usage_ratio=min(
                max(0.45 + 0.4 * second / length_s + float(rng.normal(0, 0.03)), 0.0), 1.0
            ),
        )
        for second in range(0, int(length_s), step_s)
        for replica in range(3)
    ]


def incident_row(slo: str, began_s: int, ended_s: int | None = None) -> IncidentRow:
    return IncidentRow(
        *(slo, "page", began_s + 60, began_s, ended_s or began_s + 60, ended_s),
        *(began_s + 60, "20", None),
    )


def burned(url: str, slo: str, *stretches: tuple[int, int | None]) -> None:
    """Store incidents of an objective; each alerted 1 min after its start."""
    engine = open_database(url)
    rows = [incident_row(slo, *stretch) for stretch in stretches]
    store_evaluation(engine, slo, stretches[-1][0] + 2_000, rows)
    engine.dispose()


def make_start(replica: str, at_unix_ns: int, **about: Any) -> EngineStart:
    known: dict[str, Any] = {"config": "c", "arguments": written({}), **about}
    return EngineStart(replica=replica, engine=0, process=1, at_unix_ns=at_unix_ns, **known)


def fill_pools(url: str, at_unix_ns: int, prefills: str, decodes: str) -> None:
    """Store starts that make these replicas the prefill and the decode pool."""
    roles = ((prefills, "kv_producer"), (decodes, "kv_consumer"))
    fill(
        url,
        [],
        [],
        [
            make_start(name, at_unix_ns, arguments=written({"kv_transfer.kv_role": role}))
            for name, role in roles
        ],
    )


def fill(url: str, *rows: Sequence[Any]) -> None:
    """Store requests, engine samples, starts and GPU samples, in this order."""
    engine = open_database(url)
    with Writer(engine) as writer:
        writer.submit(*rows).result()
    engine.dispose()


@pytest.fixture
def one_request() -> Callable[..., RequestTimeline]:
    return make_request


@pytest.fixture
def fleet() -> Callable[..., tuple[list[RequestTimeline], list[EngineSample]]]:
    return make_fleet


@pytest.fixture
def incident() -> Callable[..., list[RequestTimeline]]:
    return make_incident


@pytest.fixture(scope="session")
def stored_rows(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that stores the same rows once in a session, and returns the file."""
    folder, files = tmp_path_factory.mktemp("stored"), dict[bytes, Path]()

    def store(*rows: Sequence[Any]) -> Path:
        key = pickle.dumps(rows)
        if key not in files:
            files[key] = folder / f"{len(files)}.db"
            fill(f"sqlite:///{files[key]}", *rows)
        return files[key]

    return store


@pytest.fixture
def database(tmp_path: Path, stored_rows: Callable[..., Path]) -> Callable[..., str]:
    """Return a function that creates a database with these rows and returns its URL."""
    numbers = itertools.count()

    def make(requests: Sequence[RequestTimeline] = (), samples: Sequence[EngineSample] = ()) -> str:
        path = tmp_path / f"made-{next(numbers)}.db"
        shutil.copy(stored_rows(list(requests), list(samples)), path)
        return f"sqlite:///{path}"

    return make


@pytest.fixture
def request_rows(database: Callable[..., str]) -> Callable[..., pa.Table]:
    """Return a function that converts requests to the store's Arrow table, with all columns."""

    def read(requests: list[RequestTimeline]) -> pa.Table:
        engine = open_database(database(requests))
        found = request_table(engine, Window(0, 2**63 - 1))
        engine.dispose()
        return found

    return read


@pytest.fixture
def browse(
    explorer: Callable[..., str], tab: Callable[..., Any], database: Callable[..., str]
) -> Callable[..., tuple[str, Any]]:
    """Return a function that starts an explorer on rows, and returns its address and a tab."""

    def start(
        requests: Sequence[RequestTimeline] = (),
        samples: Sequence[EngineSample] = (),
        *,
        width: int = 1280,
        height: int = 900,
        **more: Any,
    ) -> tuple[str, Any]:
        address = explorer(database(requests, samples))
        return address, tab(viewport={"width": width, "height": height}, **more)

    return start


@contextmanager
def running_explorer(folder: Path, database_url: str, **more: Any) -> Iterator[str]:
    """Run the explorer on a database as `tailspan up` does, and yield its address.

    Args:
        folder: the working directory, in which the log is written.
        more: further arguments of `launch`.
    """
    wanted = launch(database_url=database_url, **{"port": free_port(), **more})
    (port,) = (word.partition("=")[2] for word in wanted.command if "server.port" in word)
    with (folder / "explorer.log").open("wb") as log:
        process = subprocess.Popen(
            wanted.command,
            env={**os.environ, **wanted.environment},
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    under = f"/{more['base_path']}" if more.get("base_path") else ""
    address = f"http://127.0.0.1:{port}{under}"
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            try:
                with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5):
                    break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        else:
            pytest.fail((folder / "explorer.log").read_text())
        yield address
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def explorer(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return a function that starts the explorer on a database and returns its address."""
    with ExitStack() as running:
        yield lambda url, **more: running.enter_context(running_explorer(tmp_path, url, **more))
