import math
import time
from collections.abc import Iterator

import pytest

from alerts import vocabulary
from dashboards.boards import BOARDS
from dashboards.panels import HIGHEST, PanelKind
from rig.install import ProgramUnavailableError
from rig.panel_queries import PanelAnswer, answers, marked
from rig.prometheus_stack import MonitoredTailspan, monitored_tailspan, wait_for

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

SHOWN_S = 20
RESTART_S = 30
SCRAPES_MISSED = 5


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredTailspan]:
    """Simulate a fleet with minutes of past traffic and new traffic."""
    try:
        with monitored_tailspan(tmp_path_factory.mktemp("watched")) as here:
            here.simulate("--backfill", "5m", "--rate", "10")
            _until_scraped_for(here, 6)
            _until_budgets_are_known(here)
            yield here
    except ProgramUnavailableError as reason:
        pytest.skip(str(reason))


def _until_scraped_for(here: MonitoredTailspan, times: int) -> None:
    """Wait until Prometheus has scraped traffic and engines several times."""
    asked = (
        f"min(resets(tailspan_engine_steps_total[1m]) * 0 +"
        f" changes(tailspan_engine_steps_total[{times * 2}s])) >= {times}"
    )
    wait_for("live traffic", lambda: here.ask("query", query=asked)["result"], 120)


def _until_budgets_are_known(here: MonitoredTailspan) -> None:
    wait_for("budgets", lambda: here.ask("query", query=vocabulary.EXHAUSTED_IN)["result"], 120)


def _wrong(found: PanelAnswer) -> str | None:
    values = [value for series in found.series for _, value in series.values]
    if not values:
        return None if found.query.native else "no data"
    # The cells of a heatmap are requests per second, whatever its axis is.
    highest = math.inf if found.panel.kind is PanelKind.HEATMAP else HIGHEST[found.panel.unit]
    lowest = -math.inf if found.panel.signed else 0.0
    odd = [each for each in values if not (math.isfinite(each) and lowest <= each <= highest)]
    if odd:
        return f"{odd[0]} is no value in {found.panel.unit}"
    if found.panel.kind is not PanelKind.NUMBER:
        newest = max(at for series in found.series for at, _ in series.values)
        if time.time() - newest > 10:
            return f"nothing since {time.time() - newest:.0f} s"
    if any("{" in series.legend or not series.legend for series in found.series):
        return "a series without a name"
    return None


def _all_answers(here: MonitoredTailspan, *, one: bool = False) -> list[PanelAnswer]:
    return [found for board in BOARDS for found in answers(here, board, SHOWN_S, one=one)]


def _complaints(found: list[PanelAnswer]) -> list[str]:
    return [
        f"{each.panel.title} [{each.query.legend}]: {wrong}\n    {each.expr}"
        for each in found
        if (wrong := _wrong(each)) is not None
    ]


def _complete_answers(here: MonitoredTailspan, *, one: bool = False) -> list[PanelAnswer]:
    """Return the results of all panels; fail if a panel has neither a result nor a native query.

    On a busy machine, a scrape may time out. Every gauge is then absent until the next scrape, so
    incomplete results are requested again.
    """
    for _ in range(SCRAPES_MISSED):
        found = _all_answers(here, one=one)
        native = {each.panel.title for each in found if each.query.native and each.series}
        complaints = _complaints([each for each in found if each.panel.title not in native])
        if not complaints:
            return found
        time.sleep(2 * here.scrape_s)
    raise AssertionError("\n".join(complaints))


def test_no_panel_is_without_data_and_buckets_link_to_requests(fleet: MonitoredTailspan) -> None:
    found = _complete_answers(fleet)
    assert len(found) > 40
    _leads_to_requests(fleet, found)


def test_every_dashboard_variable_has_an_effect_and_data(fleet: MonitoredTailspan) -> None:
    found = _complete_answers(fleet, one=True)
    of_probes = [each for each in found if each.panel.page == "outside"]
    of_fleet = [each for each in found if each.panel.page != "outside"]
    for name in ("model", "region", "replica", "tenant", "slo", "endpoint", "prober_region"):
        assert any(name in board.variables for board in BOARDS)
        assert f"${name}" not in "".join(each.expr for each in found)
    for some in (of_probes, of_fleet):
        for name in ("model", "region", "replica", "tenant", "slo", "endpoint"):
            values = {
                series.labels[name]
                for each in some
                for series in each.series
                if name in series.labels
            }
            assert len(values) <= 1, (name, values)
    assert any("region" in each.labels for answer in of_probes for each in answer.series)


def test_a_prometheus_of_native_histograms_has_them_all(fleet: MonitoredTailspan) -> None:
    """This Prometheus stores no classic buckets, so the heatmap uses the native ones."""
    with fleet.prometheus("exemplar-storage,native-histograms") as here:
        _until_scraped_for(here, 6)
        _until_budgets_are_known(here)
        found = _complete_answers(here)
        # Prometheus 2.42 reads only one exemplar of a native histogram, from the lowest bucket with
        # an exemplar. The last request in this bucket may be minutes old.
        _leads_to_requests(here, found, within_s=600)
        assert not here.ask("query", query="tailspan_ttft_seconds_bucket")["result"]
    of_cells = [each for each in found if each.query.native]
    assert of_cells
    assert all(each.series for each in of_cells)


def test_phases_add_up_to_end_to_end(fleet: MonitoredTailspan) -> None:
    phases = "sum(increase(tailspan_phase_seconds_total[15s]))"
    [both] = fleet.ask(
        "query",
        query=f"{phases} / sum(increase(tailspan_phased_requests_total[15s]))",
    )["result"]
    assert 0.05 < float(both["value"][1]) < 60


def _leads_to_requests(
    here: MonitoredTailspan, found: list[PanelAnswer], within_s: int = 60
) -> None:
    now = time.time()
    asking = [each for each in found if each.query.exemplars]
    assert asking
    for each in asking:
        data = here.ask("query_exemplars", query=each.expr, start=now - within_s, end=now)
        labels = [exemplar["labels"] for series in data for exemplar in series["exemplars"]]
        assert labels
        assert all(len(reported["trace_id"]) == 32 for reported in labels)


def test_a_restart_leaves_no_panel_without_data(fleet: MonitoredTailspan) -> None:
    [before] = fleet.ask("query", query="sum(tailspan_engine_steps_total)")["result"]
    fleet.end_simulation()
    # The exporter ignores restarts that take less time, because no server loads a model faster.
    silent = "time() - max(tailspan_engine_last_sample_timestamp_seconds) > 11"
    wait_for("silence", lambda: fleet.ask("query", query=silent)["result"])
    # Half a minute later, one of the two servers is restarted again.
    restarts = ("--fault", f"cold_start@{RESTART_S}s")
    fleet.simulate("--backfill", "0", "--rate", "10", "--seed", "2", *restarts)
    fewer = f"sum(tailspan_engine_steps_total) < {before['value'][1]}"
    wait_for("reset", lambda: fleet.ask("query", query=fewer)["result"])
    _until_scraped_for(fleet, 6)
    _complete_answers(fleet)
    one = f"count(resets(tailspan_engine_steps_total[{RESTART_S // 2}s]) > 0) == 1"
    wait_for("one restart", lambda: fleet.ask("query", query=one)["result"])
    _complete_answers(fleet)


def test_a_deploy_is_marked_on_every_dashboard(fleet: MonitoredTailspan) -> None:
    fleet.end_simulation()
    changing = ("--fault", "config_change@15s")
    fleet.simulate("--backfill", "0", "--rate", "10", "--seed", "3", *changing)

    def everywhere() -> bool:
        return all(marked(fleet, board, shown="20s")["Deploys"] for board in BOARDS)

    wait_for("a mark of the deploy", everywhere, 90)
    for board in BOARDS:
        found = marked(fleet, board, shown="20s")
        assert all(each.keys() == {"replica", "config", "version"} for each in found["Deploys"])
        assert all(each.keys() == {"slo", "severity"} for each in found["Incidents"])
