import sys
import threading
from collections.abc import Callable

import pytest

from cost.prices import PriceList
from cost.pricing import Pricing
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.request_rows import RequestRows
from telemetry.requests import PricedBy, RequestTimeline
from tests.cost.making import DEVICE, PRICES, start

Requests = Callable[..., RequestTimeline]


def _priced(pricing: Pricing, *requests: RequestTimeline) -> list[RequestTimeline]:
    rows = RequestRows.of(requests)
    pricing.price(rows)
    return list(rows)


def test_a_request_costs_its_seconds_at_its_engines_price(request_row: Requests) -> None:
    """5 s of two GPUs at $3.60 per hour each cost one cent."""
    pricing = Pricing(PRICES)
    pricing.update([start("r", gpus=2)])
    request = request_row(replica="r", engine=0, billed_s=5.0, wasted_s=1.0)
    [request] = _priced(pricing, request)
    assert request.cost_usd == pytest.approx(0.01)
    assert request.priced_by is PricedBy.LEDGER


def test_unknown_values_have_no_cost(request_row: Requests) -> None:
    pricing = Pricing(PRICES)
    pricing.update([start("r"), start("odd", device="Abacus")])
    rows = [
        request_row(1, replica="s", engine=0, billed_s=5.0),
        request_row(2, replica="odd", engine=0, billed_s=5.0),
        request_row(3, replica="r", engine=0),
        request_row(4, billed_s=5.0),
    ]
    priced = [(row.cost_usd, row.priced_by) for row in _priced(pricing, *rows)]
    assert priced == [(None, None)] * 4


def test_a_later_start_prices_later_requests(request_row: Requests) -> None:
    pricing = Pricing(PRICES)
    pricing.update([start("r", gpus=1, at_unix_ns=5)])
    first = request_row(1, replica="r", engine=0, billed_s=1.0)
    [first] = _priced(pricing, first)
    pricing.update([start("r", gpus=2, at_unix_ns=9), start("r", gpus=8, at_unix_ns=7)])
    second = request_row(2, replica="r", engine=0, billed_s=1.0)
    [second] = _priced(pricing, second)
    assert (first.cost_usd, second.cost_usd) == pytest.approx((0.001, 0.002))


def test_gpu_samples_replace_a_missing_device_in_the_start(request_row: Requests) -> None:
    pricing = Pricing(PRICES)
    gpus = [GpuSample(replica="r", gpu=str(n), at_unix_ns=1, model_name=DEVICE) for n in range(4)]
    pricing.update(gpus=gpus)
    request = request_row(replica="r", engine=0, billed_s=1.0)
    [request] = _priced(pricing, request)
    assert request.cost_usd == pytest.approx(0.004)


def test_a_gpu_without_samples_for_a_minute_has_no_price() -> None:
    """The server has restarted on another GPU."""
    pricing = Pricing(PRICES)
    for gpu, at_s in (("a", 0), ("b", 50), ("a", 60), ("b", 111), ("b", 121)):
        sample = GpuSample(replica="r", gpu=gpu, at_unix_ns=at_s * 10**9, model_name=DEVICE)
        pricing.update(gpus=[sample])
        assert pricing.usd_per_s("r", 0) == (0.002 if 50 <= at_s <= 120 else 0.001)


def test_a_lost_account_is_replaced_by_the_step_models_estimate(request_row: Requests) -> None:
    """α·100 computed tokens + δ·10 output tokens = 0.2 s."""
    pricing = Pricing(PRICES)
    sample = EngineSample(
        replica="r",
        engine=0,
        process=1,
        at_unix_ns=1,
        started_unix_ns=0,
        step_model_base_s=0.0,
        step_model_per_prefill_token_s=0.001,
        step_model_per_prefill_attention_s=0.0,
        step_model_per_context_token_s=0.0,
        step_model_per_decode_s=0.01,
    )
    pricing.update([start("r")], [sample])
    request = request_row(
        replica="r", engine=0, prompt_tokens=150, cached_tokens=50, output_tokens=10
    )
    [request] = _priced(pricing, request)
    assert request.cost_usd == pytest.approx(0.0002)
    assert request.priced_by is PricedBy.TOKENS


def test_invented_sender_names_do_not_fill_the_memory(
    request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cost.pricing.MAX_ENGINES", 50)
    pricing = Pricing(PriceList())
    pricing.update(start(f"r{n}") for n in range(55))
    _priced(pricing, *(request_row(n, replica=f"q{n}") for n in range(55)))
    assert len(pricing._starts) == 50
    assert len(pricing._usd_per_s) == 50


def test_new_engines_do_not_replace_an_engine_that_sends_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cost.pricing.MAX_ENGINES", 3)
    pricing = Pricing(PRICES)
    pricing.update([start("r")])
    for number in range(9):
        sample = EngineSample(replica="r", engine=0, process=1, at_unix_ns=1, started_unix_ns=0)
        pricing.update([start(f"new-{number}")], [sample])
    assert pricing.usd_per_s("r", 0) == 0.001


def test_a_scrape_reads_while_messages_add_engines() -> None:
    """Two threads use the prices at the same time."""
    pricing = Pricing(PRICES)
    done = threading.Event()
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            while not done.is_set():
                for n in range(50):
                    pricing.usd_per_s(f"r{n}", None)
        except BaseException as error:
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for n in range(2_000):
            pricing.update([start(f"r{n}", at_unix_ns=n)])
    finally:
        done.set()
        asking.join(30)
        sys.setswitchinterval(before)
    assert failures == []
