from dataclasses import replace

import numpy as np
import pytest

from diagnosis.inputs.requests import Requests
from diagnosis.question import Metric
from tests.diagnosis.making import (
    WINDOW,
    S,
    asked,
    busier,
    evidence,
    first_cause,
    labels,
    later,
    quiet,
    shares,
    summed,
)

AGE_S = 8.0


def retried(
    requests: Requests, share: float = 0.5, times: int = 3, age_s: float = AGE_S, spread: float = 0
) -> Requests:
    """Make clients cancel a share of the window's requests after a timeout, and send them again."""
    draw = np.random.default_rng(11)
    chosen = requests.received_unix_ns >= WINDOW.from_unix_ns
    chosen &= draw.random(len(requests)) < share
    rows = np.flatnonzero(chosen)
    age = np.repeat(age_s * np.exp(spread * draw.normal(size=rows.size)), times)
    attempt = np.tile(np.arange(times), rows.size)
    early = np.repeat(rows, times)
    received = requests.received_unix_ns[early] + (attempt * age * S).astype(np.int64)
    shifted = requests.received_unix_ns.copy()
    shifted[rows] += (times * age[::times] * S).astype(np.int64)
    every = np.concatenate([shifted, received])
    found = requests.rows(np.concatenate([np.arange(len(requests)), early]))
    gone = np.arange(every.size) >= len(requests)
    numbers = {name: np.where(gone, np.nan, found.number(name)) for name in requests.numbers}
    numbers["prompt_tokens"] = found.number("prompt_tokens")
    numbers["e2e_s"][gone] = age
    outcome = labels(np.where(gone, "abort", "stop").tolist())
    named = {name: found.label(name) for name in requests.labels}
    in_time = np.argsort(every, kind="stable")
    whole = Requests(every, numbers, {**named, "outcome": outcome}).rows(in_time)
    return replace(whole, numbers=dict(whole.numbers), labels=dict(whole.labels))


def queued() -> Requests:
    return later(quiet(), queue_seats_s=1.0)


def test_requests_that_repeat_aborted_ones_are_a_storm() -> None:
    first = first_cause(asked(retried(queued())), "retry_storm", 0.9)
    before, now = evidence(first, "share of requests that repeat")
    assert before == 0.0
    assert 0.5 < (now or 0) < 0.65  # about three of five requests
    assert evidence(first, "age at which")[1] == AGE_S
    assert evidence(first, "share of repeated requests aborted") == (0.0, 1.0)
    before, now = evidence(first, "requests/s without")
    assert 0.85 * (before or 0) < (now or 0) < 1.15 * (before or 0)
    assert [lever.flag for lever in first.levers] == [None] * 3
    assert first.where == {}


def test_the_tenant_whose_clients_retry_is_named() -> None:
    requests = queued()
    acme = requests.label("tenant").is_value("acme")
    rest = requests.rows(~acme)
    storm = retried(requests.rows(acme), share=1.0, times=6)
    first = first_cause(asked(joined(rest, storm)), "retry_storm", 0.8)
    assert first.where == {"tenant": "acme"}
    assert "tenant_flood" not in shares(asked(joined(rest, storm)))


def test_a_flood_beside_a_storm_is_named_too() -> None:
    """The repeated requests are from all tenants, so they do not show which tenant sends more."""
    storm = retried(busier(queued(), 4, tenant="acme"), share=0.4, times=2)
    answer = asked(storm)
    found = shares(answer)
    assert {"retry_storm", "tenant_flood"} <= set(found)
    (flood,) = [each for each in answer.causes if each.id == "tenant_flood"]
    assert flood.where == {"tenant": "acme"}
    before, now = evidence(flood, "requests/s of acme")
    assert now == pytest.approx(4 * (before or 0), rel=0.15)
    before, now = evidence(flood, "requests/s of the other tenants")
    assert now == pytest.approx(before, rel=0.15)


def joined(one: Requests, other: Requests) -> Requests:
    received = np.concatenate([one.received_unix_ns, other.received_unix_ns])
    numbers = {
        name: np.concatenate([one.number(name), other.number(name)]) for name in other.numbers
    }

    def texts(requests: Requests, name: str) -> list[str]:
        label = requests.label(name)
        return [label.values[code] for code in label.codes]

    named = {name: labels(texts(one, name) + texts(other, name)) for name in other.labels}
    in_time = np.argsort(received, kind="stable")
    found = Requests(received, numbers, named).rows(in_time)
    return replace(found, numbers=dict(found.numbers), labels=dict(found.labels))


def test_more_new_prompts_are_no_storm() -> None:
    found = shares(asked(later(busier(quiet(), 3), queue_seats_s=1.0)))
    assert next(iter(found)) == "load_exceeds_capacity"
    assert "retry_storm" not in found


def test_users_who_leave_and_ask_again_have_no_timeout() -> None:
    """Users leave after different times, and a client's timeout is constant."""
    assert "retry_storm" not in shares(asked(retried(queued(), spread=1.0)))


def test_a_retry_storm_and_a_higher_load_share_the_growth() -> None:
    """The higher load may have caused the retries."""
    more = later(busier(quiet(), 2), queue_seats_s=1.0)
    found = shares(asked(retried(more, share=0.4)))
    assert found["retry_storm"] > 0.2
    assert found["load_exceeds_capacity"] > 0.2


def test_prompts_that_all_have_the_same_length_repeat_nothing() -> None:
    """An evaluation sends prompts of equal length all the time, and cancels some."""
    more = later(busier(quiet(), 5), queue_seats_s=1.0)
    late = more.received_unix_ns >= WINDOW.from_unix_ns
    left = late & (np.random.default_rng(3).random(len(more)) < 0.2)
    same = np.full(len(more), 500.0)
    numbers = {**more.numbers, "prompt_tokens": same}
    changed = summed(replace(more, numbers=numbers))
    numbers = {**changed.numbers, "e2e_s": np.where(left, AGE_S, changed.numbers["e2e_s"])}
    numbers["ttft_s"] = np.where(left, np.nan, numbers["ttft_s"])
    outcome = labels(np.where(left, "abort", "stop").tolist())
    requests = replace(changed, numbers=numbers, labels={**changed.labels, "outcome": outcome})
    assert "retry_storm" not in shares(asked(requests))


def test_repeated_requests_that_delay_no_request_are_not_named() -> None:
    assert not asked(retried(quiet(), share=0.05), Metric.TTFT).causes
