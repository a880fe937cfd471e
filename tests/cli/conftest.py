"""A database with known requests, and the command to ask it with."""

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import tailspan
from telemetry.requests import RequestTimeline

START_S = 1_763_634_000


@pytest.fixture
def run(url: str) -> Callable[..., Result]:
    """Run `tailspan` on the database, about the first ten minutes of its requests."""

    def invoke(*words: str, window: bool = True) -> Result:
        about = ["--from", str(START_S), "--to", str(START_S + 600)] if window else []
        result = CliRunner().invoke(
            tailspan, [*words, *about, "--database", url], catch_exceptions=False
        )
        assert result.exit_code in (0, 1, 2)
        return result

    return invoke


@pytest.fixture
def queued(
    fill: Callable[..., None], request_row: Callable[..., RequestTimeline]
) -> Callable[..., None]:
    """Four hundred requests each before and after the start; the later wait so long for blocks."""

    def put(waited_s: float, **about: Any) -> None:
        rows = []
        for number in range(800):
            late = waited_s if number >= 400 else 0.0
            common: dict[str, Any] = {
                "request_id": f"chatcmpl-{number}",
                "replica": "r0",
                "tenant": ("acme", "globex")[number % 2],
                "streamed": True,
                "frontend_s": 0.01,
                "queue_s": late,
                **dict.fromkeys(
                    ("queue_seats_s", "queue_budget_s", "queue_held_s", "queue_step_s"), 0.0
                ),
                "queue_kv_s": late,
                "prefill_s": 0.05,
                "decode_s": 0.5,
                "delivery_s": 0.01,
                "ttft_s": 0.07 + late + 0.001 * (number % 10),
                "e2e_s": 0.57 + late,
                "prompt_tokens": 100 + number % 50,
                "output_tokens": 20,
            }
            common["received_unix_ns"] = (START_S - 600) * 10**9 + number * 15 * 10**8
            rows.append(request_row(number, **{**common, **about}))
        fill(*rows)

    return put
