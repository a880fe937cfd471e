import re

import pytest

from dashboards.annotations import annotations
from dashboards.boards import BOARDS
from dashboards.grafana_json import build
from dashboards.panels import Board
from tests.dashboards.conftest import Ask

each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)


def _expr(name: str, board: Board = BOARDS[0]) -> str:
    (found,) = [each for each in annotations(board) if each.name == name]
    return found.expr


def _info(replica: str, config: str, version: str = "0.32.0") -> str:
    server = f'model="m",replica="{replica}",engine="0"'
    return f'tailspan_engine_info{{{server},config="{config}",version="{version}"}}'


def test_a_deploy_is_marked_for_five_minutes(ask: Ask) -> None:
    began = '{replica="r0",config="b",version="0.32.0"}'
    ask(
        _expr("Deploys"),
        {_info("r0", "a"): "1x20 stale", _info("r0", "b"): "_x22 1x30", _info("r1", "a"): "1x60"},
        {"3m": [], "15m": [], "23m": [began], "26m": [began], "29m": [], "40m": []},
    )


def test_a_new_replica_is_marked_and_the_start_of_tailspan_is_not(ask: Ask) -> None:
    series = {_info("r0", "a"): "1x60", _info("r1", "a"): "_x30 1x30"}
    new = '{replica="r1",config="a",version="0.32.0"}'
    ask(_expr("Deploys"), series, {"0m": [], "2m": [], "6m": [], "31m": [new], "38m": []})


def test_a_new_version_is_marked_and_the_start_of_its_label_is_not(ask: Ask) -> None:
    """Series of an older Tailspan have no version."""
    series = {
        _info("r0", "a", ""): "1x10 stale",
        _info("r0", "a"): "_x11 1x19 stale",
        _info("r0", "a", "0.33.0"): "_x32 1x30",
    }
    began = '{replica="r0",config="a",version="0.33.0"}'
    ask(_expr("Deploys"), series, {"12m": [], "15m": [], "20m": [], "33m": [began], "40m": []})


def test_a_restart_and_a_missed_scrape_are_not_marked(ask: Ask) -> None:
    series = {
        _info("r0", "a"): "1x20 stale _x7 1x30",
        _info("r1", "a"): "1x10 stale 1x50",
        _info("scraped", ""): "_x10 1x50",
    }
    ask(_expr("Deploys"), series, {f"{at}m": [] for at in range(5, 50)})


def test_a_return_to_the_former_configuration_is_marked(ask: Ask) -> None:
    series = {_info("r0", "a"): "1x20 stale _x19 1x30", _info("r0", "b"): "_x20 1x20 stale"}
    ask(
        _expr("Deploys"),
        series,
        {
            "21m": ['{replica="r0",config="b",version="0.32.0"}'],
            "42m": ['{replica="r0",config="a",version="0.32.0"}'],
            "50m": [],
        },
    )


@each_board
def test_an_incident_is_marked_while_its_alert_fires(board: Board, ask: Ask) -> None:
    alert = 'ALERTS{alertname="TailspanBudgetBurn",slo="chat",severity="page",long="1h"'
    other = 'ALERTS{alertname="TailspanErrors",alertstate="firing",severity="page"}'
    series = {
        f'{alert},alertstate="pending"}}': "1x5 stale",
        f'{alert},alertstate="firing"}}': "_x6 1x10 stale",
        other: "1x30",
    }
    marked = ['{slo="chat",severity="page"}']
    ask(_expr("Incidents", board), series, {"3m": [], "7m": marked, "16m": marked, "18m": []})


@each_board
def test_grafana_gets_the_marks_with_texts_that_have_no_unknown_label(board: Board) -> None:
    written = build(board)["annotations"]["list"]
    assert [each["name"] for each in written] == ["Deploys", "Incidents"]
    for mark, each in zip(annotations(board), written, strict=True):
        assert each["datasource"] == {"type": "prometheus", "uid": "${source}"}
        assert each["enable"] is True
        assert each["expr"] == mark.expr
        kept = re.match(r"max by \(([^)]*)\)", mark.expr)
        assert kept is not None
        labels = set(kept[1].split(", "))
        assert set(re.findall(r"{{(\w+)}}", each["titleFormat"] + each["textFormat"])) <= labels
        assert set(each["tagKeys"].split(",")) <= labels
        assert set(re.findall(r"\$(\w+)", mark.expr)) <= set(board.variables)
