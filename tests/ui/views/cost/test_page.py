from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline
from tests.ui.conftest import fill, make_start
from tests.ui.opening import HOSTILE, Database, Open, markup

SECOND_NS = 10**9
START_S = 1_763_600_400
RANGE = {"from": str(START_S), "to": str(START_S + 600), "page": "cost"}
H100 = "NVIDIA H100 80GB HBM3"


def samples(replica: str, busy_share: float = 0.6, seconds: int = 600) -> list[EngineSample]:
    """Return samples, 5 s apart, of an engine that is busy this share of the time."""
    return [
        EngineSample(
            replica=replica,
            engine=0,
            process=1,
            at_unix_ns=(START_S + at) * SECOND_NS,
            started_unix_ns=(START_S - 3_600) * SECOND_NS,
            model="llama-3-8b",
            busy_s_total=1_000 + at * busy_share,
        )
        for at in range(0, seconds + 1, 5)
    ]


def charged(one_request: Any, number: int = 100, **common: Any) -> list[RequestTimeline]:
    """Return requests that are billed for 3 s each, of two tenants and two replicas."""
    return [
        one_request(
            place,
            **{
                "received_unix_ns": (START_S + place * 5) * SECOND_NS,
                "tenant": ("acme", "globex")[place % 4 == 0],
                "replica": ("r1", "r2")[place % 2],
                "billed_s": 3.0,
                "wasted_s": 0.1,
                **common,
            },
        )
        for place in range(number)
    ]


@pytest.fixture
def priced(database: Database, one_request: Any) -> Callable[..., str]:
    """Return a function that makes a database with requests and two engines on a device."""

    def make(device: str | None = H100, **common: Any) -> str:
        url = database(charged(one_request, **common), [*samples("r1"), *samples("r2")])
        began_ns = (START_S - 3_600) * SECOND_NS
        starts = [make_start(name, began_ns, device=device, gpus=1) for name in ("r1", "r2")]
        fill(url, [], [], starts)
        return url

    return make


def test_the_bill_is_one_sentence_and_charts(page: Open, priced: Any) -> None:
    """The bill is for 20 engine-minutes of an H100 at its list price."""
    test = page(priced(), **RANGE)
    assert test.title[0].value == "Cost"
    shown = markup(test)
    assert "Serving cost <b>$1.33</b> in 10 min: <b>25 %</b> for 100 requests" in shown
    assert "<b>40 %</b> <abbr" in shown
    assert "per 1,000, without idle time)" in shown
    assert "2 engines at a time, $7.98 per hour" in shown
    assert "The range is widened to whole minutes, or to whole hours" in shown
    assert "Priced at H100" in shown
    assert "Self-hosting becomes cheaper at" in shown
    assert len(test.get("plotly_chart")) == 4


def test_the_idle_engine_of_a_replica_is_listed(page: Open, priced: Any) -> None:
    """Engine 1 of r1 takes no step. Replicas with one engine are not in the table."""
    url = priced()
    start = make_start("r1", (START_S - 3_600) * SECOND_NS, device=H100, gpus=1)
    fill(
        url,
        [],
        [replace(each, engine=1) for each in samples("r1", 0.0)],
        [replace(start, engine=1)],
    )
    shown = markup(page(url, **RANGE))
    assert shown.index("r1, engine 1") < shown.index("r1, engine 0")
    assert "<td>100 %</td>" in shown.partition("r1, engine 1")[2].partition("</tr>")[0]
    assert "r2, engine 0" not in shown


def test_costs_are_listed_by_the_address_label(page: Open, priced: Any) -> None:
    test = page(priced(), **RANGE)
    shown = markup(test)
    assert shown.index(">acme</a>") < shown.index(">globex</a>")
    assert "tenant=acme" in shown
    test.segmented_control("per").set_value("replica").run()
    assert test.query_params["per"] in ("replica", ["replica"])
    assert ">r2</a>" in markup(test)
    assert ">r1</a>" in markup(page(priced(), **RANGE, per="replica"))


def test_filters_select_a_part_of_the_bill(page: Open, priced: Any) -> None:
    shown = markup(page(priced(), **RANGE, tenant="globex"))
    assert "Serving cost <b>$1.33</b>" in shown
    assert "<b>tenant globex</b> cost <b>$0.0859</b> (6.5 %) for 25 requests" in shown
    assert ">acme</a>" not in shown
    alone = markup(page(priced(), **RANGE, replica="r1"))
    assert "Serving on <b>r1</b> cost <b>$0.665</b>" in alone
    assert "1 engine at a time," in alone


def test_an_engine_without_a_price_is_not_free(page: Open, priced: Any) -> None:
    test = page(priced("Abacus <b>9000"), **RANGE)
    shown = markup(test)
    assert "The cost is unknown" in shown
    assert "“Abacus &lt;b&gt;9000”, which has no price, so the bill omits its 50 requests" in shown
    assert "$0" not in shown
    assert 'match: "Abacus <b>9000", usd_per_hour: 1.50' in test.code[0].value
    assert "--prices prices.yaml" in test.code[1].value


def test_a_model_without_a_managed_price_has_an_example(page: Open, priced: Any) -> None:
    test = page(priced(model="house-brew"), **RANGE)
    assert "no managed model is configured for" in markup(test)
    assert 'match: "house-brew"' in test.code[0].value
    assert len(test.get("plotly_chart")) == 3


def test_the_users_prices_take_precedence(
    page: Open, priced: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(f'devices: [{{match: "{H100}", usd_per_hour: 6}}]\n')
    monkeypatch.setenv("TAILSPAN_PRICES", str(file))
    url = priced()
    assert "Serving cost <b>$2.00</b>" in markup(page(url, **RANGE))
    file.write_text("devices: [{match: x, usd_per_hour: free}]\n")
    test = page(url, **RANGE)
    assert "The price file cannot be read" in markup(test)
    assert "usd_per_hour" in markup(test)


def test_a_range_without_engines_has_no_bill(page: Open, priced: Any) -> None:
    later = {"from": str(START_S + 9_000), "to": str(START_S + 9_600), "page": "cost"}
    test = page(priced(), **later)
    assert "No engine reported in this range" in markup(test)
    test.button("show_range").click().run()
    assert not test.exception


def test_long_ranges_are_billed_by_day(page: Open, priced: Any) -> None:
    wide = {"from": str(START_S - 10 * 86_400), "to": str(START_S + 600), "page": "cost"}
    test = page(priced(), **wide)
    assert "Serving cost <b>$1.33</b>" in markup(test)


def test_the_overview_has_the_cost_of_an_hour(page: Open, priced: Any) -> None:
    first = {**RANGE, "page": "overview"}
    shown = markup(page(priced(), **first))
    assert "Serving costs <b>$7.98 per hour</b> (2 engines)." in shown
    assert "href='cost?" in shown
    assert "per hour</b>" not in markup(page(priced("Abacus 9000"), **first))


def test_the_overview_counts_servers_without_engine_samples(
    page: Open, priced: Any, one_request: Any
) -> None:
    url = priced()
    at = (START_S + 590) * SECOND_NS
    unknown = [
        one_request(
            900 + n, replica=f"unknown-{n}", received_unix_ns=at, trace_id=f"{900 + n:032x}"
        )
        for n in range(3)
    ]
    fill(url, unknown, [])
    shown = markup(page(url, **{**RANGE, "page": "overview"}))
    assert "(2 engines, 3 servers without engine samples)" in shown


def test_hostile_labels_are_text(page: Open, priced: Any) -> None:
    url = priced(tenant=HOSTILE, route=HOSTILE, model=HOSTILE)
    test = page(url, **RANGE, tenant=HOSTILE)
    assert "<script" not in markup(test)
    assert "&lt;script&gt;" in markup(test)
