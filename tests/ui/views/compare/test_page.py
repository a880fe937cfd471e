import pytest

from store.database import open_database
from store.predictions import Prediction, keep_prediction
from tests.analysis.compare.two_windows import SECONDS, START_S, store, store_deploy
from tests.ui.opening import HOSTILE, Open, address, markup

AFTER = {
    "page": "compare",
    "from": str(START_S + 600),
    "to": str(START_S + 600 + SECONDS),
    "latency": "tpot",
}
BEFORE = f"{START_S}/{START_S + SECONDS}"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a database with two windows; in the second, the server is 20 % slower."""
    found = f"sqlite:///{tmp_path_factory.mktemp('compare') / 'tailspan.db'}"
    store(found)
    return found


def test_the_finding_precedes_its_parts(page: Open, url: str) -> None:
    shown = markup(page(url, **AFTER, baseline=BEFORE))
    assert "TPOT P95 is 20 % worse [" in shown
    for part in ("mix: other requests", "load: other work", "change at the same mix and load"):
        assert part in shown
    for value in ("= before, at the mix and load after", "= after, comparable requests"):
        assert value in shown
    assert "Engine steps take 120" in shown
    assert "e+0" not in shown
    assert "<td>99%</td>" in shown
    assert "Total change, with the load that the change itself caused (by replay)" in shown
    assert "SLO" in shown


def test_the_percentile_is_part_of_the_address(page: Open, url: str) -> None:
    test = page(url, **AFTER, baseline=BEFORE)
    assert test.segmented_control(key="quantile").value == "p95"
    test.segmented_control(key="quantile").set_value("p50").run()
    assert "TPOT P50 is" in markup(test)
    assert address(test)["quantile"] == "p50"
    again = page(url, **AFTER, baseline=BEFORE, quantile="p50")
    assert again.segmented_control(key="quantile").value == "p50"


def test_without_earlier_requests_the_page_shows_what_to_do(page: Open, url: str) -> None:
    shown = markup(page(url, **AFTER))
    assert "Undecided: 0 requests before" in shown
    assert "Choose “vs. a custom range” above" in shown


def test_overlapping_ranges_are_refused(page: Open, url: str) -> None:
    both = f"{START_S}/{START_S + 700}"
    shown = markup(page(url, **AFTER, baseline=both))
    assert "Nothing to compare." in shown
    assert "the ranges before and after overlap" in shown


def test_a_live_page_is_not_replayed(page: Open, url: str) -> None:
    asked = {**AFTER, "to": ""}
    del asked["from"], asked["to"]
    shown = markup(page(url, **asked, last="15m"))
    assert "by replay): +" not in shown


@pytest.mark.parametrize("name", ["baseline", "quantile", "latency", "tenant"])
def test_a_hostile_address_is_text(page: Open, url: str, name: str) -> None:
    shown = markup(page(url, **{**AFTER, "baseline": BEFORE, name: HOSTILE}))
    assert "<script>" not in shown


def test_a_prediction_of_the_change_is_beside_what_came(
    page: Open, tmp_path_factory: pytest.TempPathFactory
) -> None:
    predicted = f"sqlite:///{tmp_path_factory.mktemp('predicted') / 'tailspan.db'}"
    store_deploy(predicted)
    engine = open_database(predicted)
    asked_ns, found = (START_S + 100) * 10**9, '{"tpot": {"p95": [0.2, 0.0, 0.5]}}'
    keep_prediction(engine, Prediction(asked_ns, "max_num_seqs=64", 0, 1, found, simulated=True))
    engine.dispose()
    shown = markup(page(predicted, **AFTER, baseline=BEFORE))
    assert (
        "What-if predicted +20.0 % [+0.0, +50.0] for TPOT P95 with max_num_seqs=64, asked" in shown
    )
    assert "inside the interval." in shown
    assert "What-if predicted" not in markup(page(predicted, **AFTER, baseline=BEFORE, tenant="a"))
