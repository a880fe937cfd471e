from sqlalchemy import Engine

from store.alerting.incidents import read_overlapping, store_evaluation
from telemetry.incidents import IncidentRow


def incident(slo: str, began_s: int, ended_s: int | None) -> IncidentRow:
    return IncidentRow(slo, "page", began_s + 60, began_s, began_s, ended_s, began_s, "20", None)


def test_the_incidents_of_a_range_are_those_of_all_objectives(engine: Engine) -> None:
    early, over, open_ = incident("a", 100, 200), incident("a", 300, 500), incident("b", 400, None)
    store_evaluation(engine, "a", 600, [early, over])
    store_evaluation(engine, "b", 600, [open_])
    assert read_overlapping(engine, 450, 600) == [over, open_]
    assert read_overlapping(engine, 200, 300) == []
    assert read_overlapping(engine, 0, 350) == [early, over]
    assert read_overlapping(engine, 9_000, 9_100) == [open_]
