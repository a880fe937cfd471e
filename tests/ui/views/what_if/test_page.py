import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from analysis.track_record import TrackRecord
from simulator.dataset import Dataset
from simulator.dataset import run as simulate
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.database import open_database
from store.predictions import predictions
from telemetry.store_errors import StoreUnavailable
from tests.ui.conftest import fill
from tests.ui.opening import HOSTILE, Open, address, markup
from ui.views.what_if import read, record

SECONDS = 120
CONFIG = FleetConfig(
    duration_s=float(SECONDS),
    seed=5,
    replicas=1,
    workload=Workload(rate_per_s=3.0),
    started_unix_ns=1_763_600_400 * 10**9,
)
START_S = CONFIG.started_unix_ns // 10**9
RANGE = {"from": str(START_S), "to": str(START_S + SECONDS), "page": "what-if"}


@cache
def data() -> Dataset:
    return simulate(CONFIG)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with a simulated replica."""
    path = tmp_path_factory.mktemp("what-if") / "tailspan.db"
    fill(f"sqlite:///{path}", data().requests, data().samples, data().starts)
    return path


@pytest.fixture
def url(tmp_path: Path, stored: Path) -> str:
    """Return a database of this test with a simulated replica."""
    return f"sqlite:///{shutil.copy(stored, tmp_path)}"


@pytest.fixture(autouse=True)
def quick_predictions(few_draws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "RESAMPLED", 8)


def test_without_a_change_the_controls_have_the_present_values(page: Open, url: str) -> None:
    test = page(url, **RANGE)
    assert "Choose a change" in markup(test)
    assert test.number_input(key="what_if_max_num_seqs").value == 256
    assert test.slider(key="what_if_rate").value == 1.0


def test_engines_of_one_server_are_one_replica(page: Open, url: str) -> None:
    """A change of the replicas counts servers. With --data-parallel-size 2, a server has two
    engines."""
    second: dict[str, Any] = {"engine": 1, "replica": data().starts[0].replica}
    fill(
        url,
        [
            replace(each, **second, span_id=f"{number:016x}")
            for number, each in enumerate(data().requests, 1)
        ],
        [replace(each, **second) for each in data().samples],
        [replace(each, **second) for each in data().starts],
    )
    assert page(url, **RANGE).number_input(key="what_if_replicas").value == 1


def test_without_a_change_the_page_ranks_changes_to_try(page: Open, url: str) -> None:
    shown = markup(page(url, **RANGE, latency="ttft"))
    assert "one more replica" in shown
    assert "Not judged: smaller model" in shown
    change = re.search(r"what-if\?[^']*change=(replicas%3D2)[^']*'", shown)
    assert change is not None
    assert "With replicas=2" in markup(page(url, **RANGE, change="replicas=2"))


def test_a_change_in_the_address_is_predicted(page: Open, url: str) -> None:
    test = page(url, **RANGE, change="max_num_seqs=64,rate=1.2x")
    shown = markup(test)
    assert "With max_num_seqs=64, rate=1.2x, P99 of TTFT would be" in shown
    assert "SLO chat" in shown
    assert test.number_input(key="what_if_max_num_seqs").value == 64
    assert test.slider(key="what_if_rate").value == 1.2


def test_the_controls_show_every_allowed_form_of_a_change(page: Open, url: str) -> None:
    # The unknown tenant prevents the prediction, because a replay of 1,001 replicas takes 10 s.
    unknown = "rate=tenant=nobody-here:2x"
    test = page(url, **RANGE, change=f"enable_prefix_caching=on,replicas=1001,{unknown}")
    assert test.toggle(key="what_if_enable_prefix_caching").value is True
    assert test.number_input(key="what_if_replicas").value == 1_001


def test_the_page_names_a_replica_that_is_left_out(page: Open, url: str) -> None:
    row = next(each for each in data().requests if each.decode_s is not None)
    fill(url, [replace(row, replica="evil-0", span_id="1" * 16)], [])
    shown = markup(page(url, **RANGE, change="max_num_seqs=64"))
    assert "1 request left out: replica evil-0: its engine" in shown


def test_the_page_states_how_many_requests_remain_after_a_deploy(page: Open, url: str) -> None:
    (before,) = data().starts
    at_ns = before.at_unix_ns + 20 * 10**9
    fill(url, [], [], [replace(before, at_unix_ns=at_ns, config="0a1b2c3d")])
    shown = markup(page(url, **RANGE, change="max_num_seqs=64"))
    assert "requests left out: received until 60 s after replica sim-0 restarted" in shown
    assert re.search(r"about the other \d+ requests, received in 40s", shown)


@pytest.mark.parametrize(
    ("view", "predicted"),
    [
        ({"change": "max_num_seqs=64"}, True),
        ({"sweep": "max_num_seqs=32,64"}, True),
        ({"change": "replicas=2"}, False),
        ({"sweep": "replicas=1,2"}, False),
        ({}, False),
    ],
)
def test_a_filter_by_replica_needs_only_this_replica_unless_requests_move(
    page: Open, url: str, view: dict[str, str], predicted: bool
) -> None:
    rows = [each for each in data().requests if each.decode_s is not None][::3]
    fill(
        url,
        [replace(row, replica="evil-0", span_id=f"{n:016x}") for n, row in enumerate(rows, 1)],
        [],
    )
    shown = markup(page(url, **RANGE, **view, replica=data().starts[0].replica))
    assert ("No prediction" not in shown) is predicted
    assert "replica evil-0: its engine" in shown


def test_a_huge_batch_takes_no_memory(page: Open, url: str) -> None:
    most = "max_num_seqs=2147483647,max_num_batched_tokens=2147483647"
    assert "P99 of TTFT would be" in markup(page(url, **RANGE, change=most))


def test_too_few_slots_are_called_saturated(page: Open, url: str) -> None:
    assert "cannot keep up" in markup(page(url, **RANGE, change="max_num_seqs=1"))


def test_predict_writes_the_change_to_the_address(page: Open, url: str) -> None:
    test = page(url, **RANGE)
    test.number_input(key="what_if_max_num_seqs").set_value(64)
    test.text_input(key="what_if_more").set_value("rate=tenant=acme:2x")
    test.button(key="what_if_predict").click().run()
    assert address(test)["change"] == "max_num_seqs=64,rate=tenant=acme:2x"
    assert "would be" in markup(test)
    assert test.text_input(key="what_if_more").value == "rate=tenant=acme:2x"
    test.button(key="what_if_reset").click().run()
    assert "change" not in address(test)


def test_a_wrong_change_is_named(page: Open, url: str) -> None:
    test = page(url, **RANGE)
    test.text_input(key="what_if_more").set_value("warp=9")
    test.button(key="what_if_predict").click().run()
    assert "warp: not modelled" in markup(test)
    assert test.text_input(key="what_if_more").value == "warp=9", "it can be corrected"
    test.button(key="what_if_reset").click().run()
    assert test.text_input(key="what_if_more").value == ""


def test_a_sweep_in_the_address_shows_a_row_for_each_value(page: Open, url: str) -> None:
    test = page(url, **RANGE, sweep="max_num_seqs=1,64,128", change="output=1.2x")
    shown = markup(test)
    assert "max_num_seqs" in shown
    assert "256 (now, measured)" in shown
    assert shown.count("cannot keep up") >= 2, "one seat: in its row and in a note"
    assert re.search(r"change=max_num_seqs%3D64%2Coutput%3D1.2x'", shown), (
        "a link to its prediction"
    )
    assert test.text_input(key="what_if_sweep").value == "max_num_seqs=1,64,128"
    assert test.slider(key="what_if_output").value == 1.2
    assert "Changes to try" not in shown


def test_predict_writes_the_sweep_to_the_address(page: Open, url: str) -> None:
    test = page(url, **RANGE)
    test.text_input(key="what_if_sweep").set_value("replicas=1..2")
    test.button(key="what_if_predict").click().run()
    assert address(test)["sweep"] == "replicas=1..2"
    assert "change" not in address(test)
    assert "1 (now, measured)" in markup(test)
    test.button(key="what_if_reset").click().run()
    assert "sweep" not in address(test)


def test_a_wrong_sweep_is_named(page: Open, url: str) -> None:
    test = page(url, **RANGE)
    test.text_input(key="what_if_sweep").set_value("router=a,b")
    test.button(key="what_if_predict").click().run()
    assert "sweep of &#x27;router&#x27;; allowed: max_num_seqs" in markup(test)
    assert "sweep" not in address(test)


def test_a_sweep_of_many_requests_has_no_intervals(
    page: Open, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MAX_REPLAYED", 1_000)
    shown = markup(page(url, **RANGE, sweep="max_num_seqs=64,128"))
    assert "There are no intervals" in shown


@pytest.mark.parametrize(
    "asked",
    [
        *({"sweep": each} for each in (HOSTILE, "max_num_seqs", "rate=1.." + "9" * 400)),
        {"sweep": "replicas=1..99999999999"},
        *(
            {"change": each}
            for each in (
                HOSTILE,
                "max_num_seqs=,,=",
                "max_num_seqs=0",
                "rate=1e400x",
                "replicas=-3",
            )
        ),
    ],
)
def test_a_hostile_address_asks_for_nothing(page: Open, url: str, asked: dict[str, str]) -> None:
    shown = markup(page(url, **RANGE, **asked))
    assert "Choose a change" in shown
    assert "<script>" not in shown


def test_a_change_that_this_range_does_not_allow_is_a_reason(page: Open, url: str) -> None:
    shown = markup(page(url, **RANGE, change="rate=tenant=nobody-here:2x"))
    assert "No prediction" in shown
    assert "has no requests" in shown


@pytest.mark.parametrize("value", ["abc", "1.5", "9" * 12])
def test_a_value_that_is_not_a_number_is_named_in_a_notice(
    page: Open, url: str, value: str
) -> None:
    change = f"max_num_seqs={value}"
    shown = markup(page(url, **RANGE, change=change))
    assert f"max_num_seqs: &#x27;{value}&#x27;; allowed: a whole number of at least 1 and" in shown
    test = page(url, **RANGE)
    test.text_input(key="what_if_more").set_value(change)
    test.button(key="what_if_predict").click().run()
    assert f"max_num_seqs: &#x27;{value}&#x27;; allowed: a whole number" in markup(test)
    assert test.text_input(key="what_if_more").value == change, "it can be corrected"


def test_too_few_requests_are_a_reason(page: Open, url: str) -> None:
    short = {**RANGE, "to": str(START_S + 10)}
    assert "needed: at least 100" in markup(page(url, **short, change="prompt=2x"))


def test_a_hostile_filter_is_text(page: Open, url: str) -> None:
    shown = markup(page(url, **RANGE, tenant="<script>x</script>", change="prompt=2x"))
    assert "<script>x" not in shown


def test_a_prediction_is_kept_and_the_page_has_the_track_record(
    page: Open, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {**RANGE, "change": "max_num_seqs=64"}
    assert "contained the measured change" not in markup(page(url, **asked))
    engine = open_database(url)
    assert [each.change for each in predictions(engine)] == ["max_num_seqs=64"]
    engine.dispose()
    monkeypatch.setattr(record, "EVERY_S", 0.001)
    monkeypatch.setattr(record, "track_record", lambda *_: TrackRecord(2, 6, 5))
    shown = markup(page(url, **asked, latency="tpot"))
    assert "The intervals of 5 of 6 predictions contained the measured change" in shown


def test_a_database_that_cannot_be_written_gives_a_prediction_all_the_same(
    page: Open, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreUnavailable("read-only")

    monkeypatch.setattr("analysis.stored_predictions.store_prediction", refuse)
    assert "With max_num_seqs=64" in markup(page(url, **RANGE, change="max_num_seqs=64"))
