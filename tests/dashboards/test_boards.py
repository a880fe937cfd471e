import re

import pytest

from alerts import vocabulary
from alerts.fields import GROUPING, PROBE_GROUPING
from dashboards.boards import BOARDS
from dashboards.cost import BOARD
from dashboards.grafana_json import build, text
from dashboards.panels import Board, GrafanaUnit, PanelKind
from dashboards.variables import VARIABLES
from exporters.definitions.cost_series import ENGINE_COST, ENGINE_IDLE_COST, WASTED
from exporters.definitions.series import ALL, COSTS
from exporters.definitions.series_types import LatencyHistogram
from exporters.self_metrics import tasks
from exporters.self_metrics.alerting import EVALUATED, OLDEST_PENDING
from exporters.self_metrics.clocks import BEHIND

NAMES = {
    *(each.name for each in ALL),
    *(f"{each.name}_bucket" for each in ALL if isinstance(each, LatencyHistogram)),
    *(vocabulary.burn_rate(window) for window in ("5m", "1h", "6h", "3d")),
    *(each.name for each in (EVALUATED, OLDEST_PENDING, BEHIND, tasks.UP, tasks.FAILURES)),
    vocabulary.BUDGET_LEFT,
    vocabulary.EXHAUSTED_IN,
}

each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)


def test_an_answer_of_a_gateways_cache_is_a_complete_answer() -> None:
    board = next(each for each in BOARDS if each.uid == "tailspan-probes")
    assert r"outcome=~\"stop|length|cached\"" in text(board)
    assert r"outcome=~\"stop|length\"" not in text(board)


@each_board
def test_every_panel_explains_itself(board: Board) -> None:
    assert board.description.endswith(".")
    for panel in board.panels:
        assert panel.description.endswith("."), panel.title
        assert len(panel.description) >= 9, panel.title
        assert isinstance(panel.unit, GrafanaUnit)
        assert panel.queries
        assert all(query.legend for query in panel.queries)


@each_board
def test_panel_titles_are_unique(board: Board) -> None:
    """Links and docs name panels by title."""
    titles = [panel.title for panel in board.panels]
    assert len(titles) == len(set(titles))


def test_each_group_of_an_objective_has_its_own_legend() -> None:
    [board] = [each for each in BOARDS if each.uid == "tailspan-objectives"]
    queries = [query for panel in board.panels for query in panel.queries]
    recorded = [query for query in queries if query.expr.startswith("slo:")]
    assert recorded
    for query in recorded:
        for label in ("slo", *GROUPING, *PROBE_GROUPING):
            assert f"{{{{{label}}}}}" in query.legend


@each_board
def test_only_exported_and_recorded_series_are_queried(board: Board) -> None:
    for panel in board.panels:
        for query in panel.queries:
            asked = set(re.findall(r"(?:slo:)?tailspan_\w+(?::\w+)?", query.expr))
            assert asked <= NAMES, panel.title


@each_board
def test_no_panel_shows_an_average_since_boot(board: Board) -> None:
    for panel in board.panels:
        for query in panel.queries:
            counters = re.findall(r"\w+_(?:total|bucket)\b(?:{[^}]*})?(\[?)", query.expr)
            assert all(counters), f"{panel.title}: {query.expr}"
            assert not re.search(r"(sum|avg)\w*\s*(by \([^)]*\) )?\(tailspan_recent", query.expr)


@each_board
def test_each_panel_has_the_variables_that_it_uses(board: Board) -> None:
    ours = {*board.variables, "__rate_interval", "__range"}
    for panel in board.panels:
        for query in panel.queries:
            assert set(re.findall(r"\$(\w+)", query.expr)) <= ours, panel.title
    for name in board.variables:
        before = board.variables[: board.variables.index(name)]
        assert set(re.findall(r"\$(\w+)", VARIABLES[name].query)) <= set(before)


@each_board
def test_grafana_gets_each_panel_of_the_board(board: Board) -> None:
    document = build(board)
    panels = [each for each in document["panels"] if each["type"] != "row"]
    assert [each["title"] for each in panels] == [panel.title for panel in board.panels]
    assert len({each["id"] for each in panels}) == len(panels)
    for built, panel in zip(panels, board.panels, strict=True):
        assert built["description"] == panel.description
        assert "latency=" in built["links"][0]["url"]
        assert built["gridPos"]["x"] + built["gridPos"]["w"] <= 24
        if panel.kind is not PanelKind.HEATMAP:
            assert built["fieldConfig"]["defaults"]["unit"] == panel.unit.grafana
    assert "id" not in document
    assert "version" not in document


def test_a_native_histogram_is_drawn_as_it_comes() -> None:
    """Grafana makes heatmap cells from series with the label `le`. Native histograms already have
    cells."""
    formats = {}
    for board in BOARDS:
        built = {each["title"]: each for each in build(board)["panels"]}
        for panel in board.panels:
            for query, target in zip(
                panel.queries, built[panel.title].get("targets", ()), strict=True
            ):
                if panel.kind is PanelKind.HEATMAP:
                    formats[query.native] = target.get("format")
    assert formats[False] == "heatmap"
    assert formats[True] != "heatmap"


def test_dashboards_link_to_each_other() -> None:
    for board in BOARDS:
        links = build(board)["links"]
        assert [link["type"] for link in links] == ["dashboards", "link"]
        assert links[0]["tags"] == ["tailspan"]


def _parts_of_the_bill(figures: dict[str, float]) -> dict[str, float]:
    """The value of each part of the bill whose counters are known."""
    [panel] = [each for each in BOARD.panels if "by part" in each.title]
    assert panel.signed
    total = r"sum \(rate\((\w+){[^}]*}\[[^]]*\]\)\)"
    parts = {}
    for each in panel.queries:
        terms = re.sub(
            rf"\({total} or vector\(0\)\)", lambda found: f"{figures.get(found[1], 0)}", each.expr
        )
        names = re.findall(total, terms)
        if set(names) <= set(figures):
            terms = re.sub(total, r" \1 ", terms)
            parts[each.legend] = float(eval(terms, {"__builtins__": {}}, figures))
    return parts


def test_the_parts_of_the_bill_sum_to_it_even_if_one_is_negative() -> None:
    parts = _parts_of_the_bill(
        {
            ENGINE_COST.name: 10.0,
            COSTS["cost_usd"].name: 9.0,
            WASTED.name: 0.5,
            ENGINE_IDLE_COST.name: 2.0,
        }
    )
    assert parts["unbilled"] == pytest.approx(-1.5 * 3_600)
    assert sum(parts.values()) == pytest.approx(10.0 * 3_600)


def test_the_parts_of_the_bill_sum_to_it_even_if_no_idle_time_is_reported() -> None:
    """A scraped engine does not report its busy time, and no request may have ended yet."""
    bill = {ENGINE_COST.name: 10.0}
    assert _parts_of_the_bill(bill) == {"unbilled": pytest.approx(10.0 * 3_600)}
    parts = _parts_of_the_bill({**bill, COSTS["cost_usd"].name: 4.0, WASTED.name: 0.5})
    assert sum(parts.values()) == pytest.approx(10.0 * 3_600)


def test_a_share_near_100_percent_has_three_decimals() -> None:
    """A target of 99.95 % with one decimal would be shown as 100.0 %."""
    exact = {panel.title for board in BOARDS for panel in board.panels if panel.decimals == 3}
    assert {"Requests that met the objective", "Target", "Failed or rejected"} <= exact
    board = next(each for each in BOARDS if each.uid == "tailspan-objectives")
    assert '"decimals": 3' in text(board)
