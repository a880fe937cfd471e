import pytest

from store.database import open_database
from store.predictions import Prediction, store_prediction
from tests.analysis.compare.two_windows import (
    SECONDS,
    START_S,
    store,
    store_canary,
    store_deploy,
)
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
    """Return a database with two windows; the server is 20 % slower in the second one."""
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
    assert "engine steps take 120" in shown
    assert "e+0" not in shown
    assert "<td>99 %</td>" in shown
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


@pytest.fixture(scope="module")
def canary_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a database with a window in which sim-1 is slower and runs another version."""
    found = f"sqlite:///{tmp_path_factory.mktemp('canary') / 'tailspan.db'}"
    store_canary(found)
    return found


RANGE = {
    "page": "compare",
    "from": str(START_S),
    "to": str(START_S + SECONDS),
    "latency": "tpot",
}


@pytest.mark.parametrize(
    ("label", "before", "after"),
    [("replica", "sim-0", "sim-1"), ("version", "0.31.0", "0.32.0")],
)
def test_a_canary_is_chosen_above_the_page(
    page: Open, canary_url: str, label: str, before: str, after: str
) -> None:
    test = page(canary_url, **RANGE)
    test.selectbox(key="comparison").set_value(label).run()
    assert address(test) == {**RANGE, "split": label, "before": before, "after": after}
    said = markup(test)
    assert "TPOT P95 is " in said
    assert "% worse [" in said
    assert f"{label} {after}" in said
    test.selectbox(key="side_before").set_value(after).run()
    test.selectbox(key="side_after").set_value(before).run()
    assert "% better [" in markup(test)
    test.selectbox(key="comparison").set_value("vs. the previous range").run()
    assert address(test) == RANGE


def test_two_values_are_needed(page: Open, canary_url: str) -> None:
    said = markup(page(canary_url, **RANGE, split="replica", before="sim-0", after="sim-0"))
    assert "Nothing to compare." in said
    said = markup(page(canary_url, **RANGE, split="config", before="beef", after=""))
    assert "Nothing to compare." in said
    assert "Choose two values above." in said


def test_a_value_without_requests_is_undecided(page: Open, canary_url: str) -> None:
    """The range has requests, so the page must not report that it has none."""
    said = markup(page(canary_url, **RANGE, split="replica", before="sim-0", after="none"))
    assert "Undecided: 0 requests after" in said
    assert "No requests between" not in said


def test_a_filter_does_not_select_a_side(page: Open, canary_url: str) -> None:
    canary = {"split": "replica", "before": "sim-0", "after": "sim-1"}
    said = markup(page(canary_url, **RANGE, **canary, replica="sim-0"))
    assert "% worse [" in said


@pytest.mark.parametrize("names", [("split",), ("before", "after")])
def test_a_hostile_side_is_text(page: Open, canary_url: str, names: tuple[str, ...]) -> None:
    canary = {"split": "replica", "before": "sim-0", "after": "sim-1"}
    said = markup(page(canary_url, **{**RANGE, **canary, **dict.fromkeys(names, HOSTILE)}))
    assert "<script>" not in said


def test_a_live_page_is_not_replayed(page: Open, url: str) -> None:
    shown = markup(page(url, page="compare", latency="tpot", last="15m"))
    assert "by replay): +" not in shown


@pytest.mark.parametrize("names", [("baseline", "quantile", "latency"), ("tenant",)])
def test_a_hostile_address_is_text(page: Open, url: str, names: tuple[str, ...]) -> None:
    hostile = dict.fromkeys(names, HOSTILE)
    shown = markup(page(url, **{**AFTER, "baseline": BEFORE, **hostile}))
    assert "<script>" not in shown


def test_a_prediction_of_the_change_is_beside_what_came(
    page: Open, tmp_path_factory: pytest.TempPathFactory
) -> None:
    predicted = f"sqlite:///{tmp_path_factory.mktemp('predicted') / 'tailspan.db'}"
    store_deploy(predicted)
    engine = open_database(predicted)
    asked_ns, found = (START_S + 100) * 10**9, '{"tpot": {"p95": [0.2, 0.0, 0.5]}}'
    store_prediction(engine, Prediction(asked_ns, "max_num_seqs=64", 0, 1, found, simulated=True))
    engine.dispose()
    shown = markup(page(predicted, **AFTER, baseline=BEFORE))
    assert (
        "What-if predicted +20.0 % [+0.0, +50.0] for TPOT P95 with max_num_seqs=64 (prediction from"
        in shown
    )
    assert "inside the interval." in shown
    assert "What-if predicted" not in markup(page(predicted, **AFTER, baseline=BEFORE, tenant="a"))
