"""The data for `ui.py`: a day with a million requests in SQLite, as `tailspan up` stores them."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import stores  # type: ignore[import-not-found]  # noqa: E402  # found through sys.path

from alerts.evaluation.counting import store_tally  # noqa: E402
from alerts.objectives import counted  # noqa: E402
from store import dialects  # noqa: E402
from store.connections import writing  # noqa: E402
from store.database import open_database  # noqa: E402
from store.rollups.bucket_builder import build_marked  # noqa: E402
from store.rollups.marks import REQUEST_ROLLUPS, begin, mark_minutes  # noqa: E402
from store.row_values import sample_values  # noqa: E402
from store.schema import REQUESTS, SAMPLES  # noqa: E402
from telemetry.engines import EngineSample  # noqa: E402
from telemetry.request_rows import row_of  # noqa: E402
from telemetry.requests import DECODE_PARTS, PREFILL_PARTS, Outcome  # noqa: E402
from ui.frame.objectives import read_objectives  # noqa: E402

DAY_S = 86_400
BATCH_ROWS = 5_000
SAMPLE_EVERY_S = 5
REPLICAS = 4


def fill(url: str, number: int, end_s: int) -> None:
    """Write the engines' samples and a day of requests.

    The requests of the last hour are slower.
    """
    rng = np.random.default_rng(7)
    engine = open_database(url)
    begin(engine)
    parts: dict[str, Any] = dict.fromkeys((*PREFILL_PARTS, *DECODE_PARTS), 0.0)
    step_ns = DAY_S * 10**9 // number
    first_ns = (end_s - DAY_S) * 10**9
    for first in range(0, number, BATCH_ROWS):
        many = min(BATCH_ROWS, number - first)
        at_ns = first_ns + (first + np.arange(many)) * step_ns
        late = at_ns > (end_s - 3_600) * 10**9
        queue = rng.lognormal(-4.5, 1.0, many) + late * rng.gamma(2.0, 0.3, many)
        prefill = 0.03 + rng.lognormal(-2.6, 0.6, many)
        output = np.clip(rng.geometric(1 / 120, many), 2, 1_000)
        decode = 0.012 * rng.lognormal(0, 0.2, many) * (output - 1)
        fate = rng.random(many)
        rows = [
            replace(
                stores.request(first + i),
                received_unix_ns=int(at_ns[i]),
                outcome=Outcome.ERROR if fate[i] < 0.002 else Outcome.STOP,
                **{**parts, "prefill_own_s": float(prefill[i]), "decode_own_s": float(decode[i])},
                frontend_s=0.004,
                queue_s=float(queue[i]),
                prefill_s=float(prefill[i]),
                decode_s=float(decode[i]),
                delivery_s=0.002,
                ttft_s=float(0.004 + queue[i] + prefill[i]),
                itl_max_s=float(0.04 + late[i] * 0.05),
                e2e_s=float(0.006 + queue[i] + prefill[i] + decode[i]),
                output_tokens=int(output[i]),
            )
            for i in range(many)
        ]
        values = [row_of(row) for row in rows]
        with writing(engine) as connection:
            dialects.of(engine).inserting(engine, REQUESTS)(connection, values)
            mark_minutes(connection, REQUEST_ROLLUPS, values)
    _samples(engine, end_s)
    build_marked(engine, end_s)
    for goodput in counted(read_objectives().parsed).values():
        store_tally(engine, goodput, end_s)
    engine.dispose()


def _samples(engine: Engine, end_s: int) -> None:
    rng = np.random.default_rng(8)
    for start in range(end_s - DAY_S, end_s, 3_600):
        values = [
            sample_values(
                EngineSample(
                    replica=f"replica-{replica}",
                    engine=0,
                    process=1,
                    at_unix_ns=at * 10**9,
                    started_unix_ns=(end_s - DAY_S) * 10**9,
                    waiting=int(rng.poisson(3)),
                    running=int(rng.poisson(18)),
                    kv_usage_ratio=float(rng.uniform(0.4, 0.8)),
                )
            )
            for at in range(start, start + 3_600, SAMPLE_EVERY_S)
            for replica in range(REPLICAS)
        ]
        with writing(engine) as connection:
            dialects.of(engine).inserting(engine, SAMPLES)(connection, values)
