"""The page "Cost" as Streamlit runs it, without a browser."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store.database import open_database
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart
from tests.ui.opening import Open, markup

Database = Callable[..., str]
SECOND_NS = 10**9
START_S = 1_763_600_400
RANGE = {"from": str(START_S), "to": str(START_S + 600), "page": "cost"}
H100 = "NVIDIA H100 80GB HBM3"
HOSTILE = "<script>alert(1)</script>**b** [x](javascript:y) $q$ \u202e" + "w" * 10_000


def samples(replica: str, busy_share: float = 0.6, seconds: int = 600) -> list[EngineSample]:
    """An engine that is busy so much of the time, each five seconds."""
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
    """Requests that were billed three seconds each, of two tenants and two replicas."""
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
    """A database of two engines on such devices, and requests with such labels."""

    def make(device: str | None = H100, **common: Any) -> str:
        url = database(charged(one_request, **common), [*samples("r1"), *samples("r2")])
        start = EngineStart(
            replica="r1", engine=0, process=1, at_unix_ns=(START_S - 3_600) * SECOND_NS,
            config="c", arguments="{}", device=device, gpus=1,
        )  # fmt: skip
        engine = open_database(url)
        with Writer(engine) as writer:
            writer.submit([], [], [start, replace(start, replica="r2")]).result()
        engine.dispose()
        return url

    return make


def test_the_bill_is_told_in_one_sentence_and_drawn(page: Open, priced: Any) -> None:
    """20 engine-minutes of an H100 at its list price; the parts, over time, whom, break-even."""
    test = page(priced(), **RANGE)
    assert not test.exception
    assert test.title[0].value == "Cost"
    said = markup(test)
    assert "Serving cost <b>$1.33</b> in 10 min: <b>25 %</b> for 100 requests" in said
    assert "<b>40 %</b> <abbr" in said
    assert "2 engines at a time, $7.98 an hour" in said
    assert "Priced at H100" in said
    assert "Self-hosting becomes cheaper at" in said
    assert len(test.get("plotly_chart")) == 4


def test_whom_it_was_for_is_a_table_by_the_label_of_the_address(page: Open, priced: Any) -> None:
    """By tenant first, the dearest on top; by another label at a press."""
    test = page(priced(), **RANGE)
    said = markup(test)
    assert said.index(">acme</a>") < said.index(">globex</a>")
    assert "tenant=acme" in said
    test.segmented_control("per").set_value("replica").run()
    assert not test.exception
    assert test.query_params["per"] in ("replica", ["replica"])
    assert ">r2</a>" in markup(test)
    assert ">r1</a>" in markup(page(priced(), **RANGE, per="replica"))


def test_filters_say_whose_part_of_the_bill_is_in_view(page: Open, priced: Any) -> None:
    """The bill stays that of the engines; of a replica alone it is that replica's."""
    said = markup(page(priced(), **RANGE, tenant="globex"))
    assert "Serving cost <b>$1.33</b>" in said
    assert "<b>tenant globex</b> cost <b>$0.0859</b> (6.5 %) for 25 requests" in said
    assert ">acme</a>" not in said
    alone = markup(page(priced(), **RANGE, replica="r1"))
    assert "Serving on <b>r1</b> cost <b>$0.665</b>" in alone
    assert "1 engine at a time," in alone


def test_what_has_no_price_is_never_free(page: Open, priced: Any) -> None:
    """It says which device, and the file to write."""
    test = page(priced("Abacus <b>9000"), **RANGE)
    assert not test.exception
    said = markup(test)
    assert "The cost is unknown" in said
    assert "“Abacus &lt;b&gt;9000”, which has no price: 50 requests not in the bill" in said
    assert "$0" not in said
    assert 'match: "Abacus <b>9000", usd_per_hour: 1.50' in test.code[0].value
    assert "--prices prices.yaml" in test.code[1].value


def test_a_model_without_a_managed_price_says_what_to_write(page: Open, priced: Any) -> None:
    """And there is no break-even."""
    test = page(priced(model="house-brew"), **RANGE)
    assert not test.exception
    assert "no managed model is configured for" in markup(test)
    assert 'match: "house-brew"' in test.code[0].value
    assert len(test.get("plotly_chart")) == 3


def test_prices_of_ones_own_go_first(
    page: Open, priced: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From the file that the environment names; one that cannot be read is a sentence."""
    file = tmp_path / "prices.yaml"
    file.write_text(f'devices: [{{match: "{H100}", usd_per_hour: 6}}]\n')
    monkeypatch.setenv("TAILSPAN_PRICES", str(file))
    url = priced()
    assert "Serving cost <b>$2.00</b>" in markup(page(url, **RANGE))
    file.write_text("devices: [{match: x, usd_per_hour: free}]\n")
    test = page(url, **RANGE)
    assert not test.exception
    assert "The price file cannot be read" in markup(test)
    assert "usd_per_hour" in markup(test)


def test_without_data_it_says_how_to_connect_a_server(page: Open, database: Database) -> None:
    """No bill of nothing."""
    test = page(database(), page="cost")
    assert not test.exception
    assert "pip install ./instrumentation" in test.code[0].value


def test_a_range_without_engines_has_no_bill(page: Open, priced: Any) -> None:
    """And offers one that has requests."""
    later = {"from": str(START_S + 9_000), "to": str(START_S + 9_600), "page": "cost"}
    test = page(priced(), **later)
    assert not test.exception
    assert "No engine was seen in this range" in markup(test)
    test.button("show_range").click().run()
    assert not test.exception


def test_long_ranges_are_told_by_the_day(page: Open, priced: Any) -> None:
    """The sum is the same."""
    wide = {"from": str(START_S - 10 * 86_400), "to": str(START_S + 600), "page": "cost"}
    test = page(priced(), **wide)
    assert not test.exception
    assert "Serving cost <b>$1.33</b>" in markup(test)


def test_the_first_page_tells_what_an_hour_costs(page: Open, priced: Any) -> None:
    """And leads here; without a price it says nothing of it."""
    first = {**RANGE, "page": "overview"}
    said = markup(page(priced(), **first))
    assert "Serving costs <b>$7.98 an hour</b> (2 engines)." in said
    assert "href='cost?" in said
    assert "an hour</b>" not in markup(page(priced("Abacus 9000"), **first))


def test_hostile_labels_are_text(page: Open, priced: Any) -> None:
    """In tables, charts and links."""
    url = priced(tenant=HOSTILE, route=HOSTILE, model=HOSTILE)
    test = page(url, **RANGE, tenant=HOSTILE)
    assert not test.exception
    assert "<script" not in markup(test)
    assert "&lt;script&gt;" in markup(test)


def test_a_store_that_goes_away_is_a_sentence(page: Open, priced: Any) -> None:
    """The page was open when its tables went."""
    url = priced()
    test = page(url, **RANGE)
    engine = open_database(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE requests")
        connection.exec_driver_sql("DROP TABLE engine_samples")
    engine.dispose()
    test.segmented_control("range").set_value("1h").run()
    assert not test.exception
    assert "cannot be read" in markup(test)
