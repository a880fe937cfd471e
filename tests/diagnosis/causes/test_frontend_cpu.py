from dataclasses import replace

import numpy as np
import pytest

from diagnosis.inputs.requests import Requests
from diagnosis.question import Metric
from tests.diagnosis.making import (
    asked,
    busier,
    evidence,
    first_cause,
    flags,
    fleet,
    later,
    quiet,
    shares,
)

CPU = "process_cpu_s_total"


def by_the_token(requests: Requests) -> Requests:
    """Return requests with these front-end times per token, before and now."""
    frontend_s = 2e-6 * requests.numbers["prompt_tokens"]
    return replace(requests, numbers={**requests.numbers, "frontend_s": frontend_s})


def test_a_slower_front_end_for_the_same_prompts_is_the_cause() -> None:
    servers = fleet({CPU: 1.0}, {CPU: 0.2})
    slower = later(by_the_token(quiet()), frontend_s=lambda old: old * 300)
    first = first_cause(asked(slower, servers=servers), "frontend_cpu", 0.9)
    assert evidence(first, "CPUs that the API server uses") == pytest.approx((0.2, 1.0))
    before, now = evidence(first, "seconds before the engine")
    assert (now or 0) > 50 * (before or 1)
    assert "--api-server-count 2" in flags(first)


def test_a_front_end_with_more_requests_is_not_the_cause() -> None:
    """The front end's time per token did not change."""
    requests = busier(by_the_token(quiet()), 3)
    waits_s = np.random.default_rng(3).exponential(0.5, len(requests))
    waits_s *= waits_s > 0.1
    found = shares(asked(later(requests, frontend_s=lambda old: old + waits_s)))
    assert next(iter(found)) == "load_exceeds_capacity"
    assert "frontend_cpu" not in found


def test_a_slow_client_is_no_slow_front_end() -> None:
    """Front-end time ends before the last token is delivered."""
    found = shares(asked(later(quiet(), delivery_s=30.0), Metric.E2E))
    assert "frontend_cpu" not in found
