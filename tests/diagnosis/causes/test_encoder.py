from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis.inputs.requests import FloatArray, Requests
from diagnosis.question import Metric
from tests.diagnosis.causes.test_config_change import fewer_places
from tests.diagnosis.making import (
    asked,
    busier,
    evidence,
    first_cause,
    fleet,
    labelled,
    later,
    quiet,
    shares,
    summed,
)


def encoding(requests: Requests, encoder_s: float | FloatArray) -> Requests:
    """Add the encoder's time to the own prefill of requests in the window."""
    none = {"encoder_s": np.zeros(len(requests))}
    known = replace(requests, numbers={**requests.numbers, **none})
    return later(
        known, encoder_s=encoder_s, prefill_own_s=lambda own_s: np.asarray(own_s) + encoder_s
    )


def test_added_images_are_the_encoders_time() -> None:
    images: dict[str, Any] = {"mm_cache_queries_total": 4.0, "mm_cache_hits_total": 1.0}
    servers = fleet(images, dict.fromkeys(images, 0.0))
    first = first_cause(asked(encoding(quiet(), 0.8), servers=servers), "encoder", 0.8)
    assert evidence(first, "seconds of the encoder") == pytest.approx((0.0, 0.8))
    assert evidence(first, "images and audio clips received") == pytest.approx((0.0, 4.0))


def test_an_unknown_time_of_the_encoder_before_is_not_zero() -> None:
    """The baseline may have rows of an older plugin, which did not report the encoder's time."""
    requests = encoding(quiet(), 0.8)
    encoder_s = requests.number("encoder_s")
    unknown = {"encoder_s": np.where(encoder_s > 0, encoder_s, np.nan)}
    found = asked(replace(requests, numbers={**requests.numbers, **unknown}))
    assert "encoder" not in shares(found)


def test_images_since_a_deploy_are_the_encoders_time() -> None:
    """The deploy makes every prefill slower too, so both causes are named."""
    slower = later(encoding(quiet(), 0.8), prefill_own_s=lambda own_s: own_s + 0.4)
    found = shares(asked(labelled(slower, "config", "c0", "c1"), servers=fewer_places(256, 128)))
    assert 0.3 < found["encoder"] < 0.7
    assert 0.3 < found["config_change"] < 0.5


def test_a_slow_prefill_without_encoder_time_is_not_the_encoder() -> None:
    found = asked(later(encoding(quiet(), 0.0), prefill_own_s=lambda own_s: own_s + 0.8))
    assert "encoder" not in shares(found)


def test_others_wait_for_the_images_of_a_few_requests() -> None:
    """A tenth of the requests have images, which make the steps of the others longer."""
    requests = quiet()
    seen = np.random.default_rng(2).random(len(requests)) < 0.1
    with_images = encoding(requests, np.where(seen, 1.0, 0.0))
    waiting = later(with_images, decode_others_prefill_s=lambda old_s: old_s + 0.5)
    found = asked(waiting, Metric.ITL_MAX)
    first_cause(found, "encoder", 0.8)


def test_a_queue_behind_slower_requests_belongs_to_the_encoder() -> None:
    """With larger images, requests keep their batch slots longer. The request rate is unchanged."""
    queued = later(encoding(quiet(), 2.0), queue_seats_s=lambda old_s: old_s + 20.0)
    first_cause(asked(queued, Metric.QUEUE), "encoder", 0.9)


def test_the_encoder_is_named_beside_a_flood() -> None:
    """The time of a few images is a small part of the added work."""
    seen = np.random.default_rng(2).random(len(quiet())) < 0.4
    flooded = busier(encoding(quiet(), np.where(seen, 0.02, 0.0)), 12, tenant="acme")
    queued = later(flooded, queue_budget_s=lambda old_s: old_s + 20.0)
    found = shares(asked(queued, Metric.QUEUE))
    assert list(found) == ["tenant_flood", "encoder"]
    assert 0.05 < found["encoder"] < 0.3


def test_an_encoder_time_that_grew_by_chance_is_no_cause_of_a_queue() -> None:
    requests = quiet()
    chance_s = np.random.default_rng(3).exponential(0.05, len(requests))
    known = {"encoder_s": chance_s, "prefill_own_s": requests.number("prefill_own_s") + chance_s}
    usual = summed(replace(requests, numbers={**requests.numbers, **known}))
    flooded = busier(usual, 12, tenant="acme")
    queued = later(flooded, queue_seats_s=lambda old_s: old_s + 20.0)
    assert "encoder" not in shares(asked(queued, Metric.QUEUE))
