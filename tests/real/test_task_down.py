import sqlite3
from pathlib import Path
from typing import Final

import pytest

from rig.install import ProgramUnavailableError
from rig.prometheus_stack import MonitoredTailspan, monitored_tailspan, wait_for

pytestmark = pytest.mark.real

UP: Final = "tailspan_task_up"
DOWN: Final = 'ALERTS{alertname="TailspanTaskDown"}'


def parts(here: MonitoredTailspan, query: str) -> set[str]:
    return {each["metric"]["task"] for each in here.ask("query", query=query)["result"]}


def test_the_alert_fires_for_a_failed_part_and_ends_when_it_works(tmp_path: Path) -> None:
    def rename(before: str, after: str) -> None:
        with sqlite3.connect(tmp_path / "var" / "tailspan.db") as other:
            other.execute(f"ALTER TABLE {before} RENAME TO {after}")
        other.close()

    try:
        with monitored_tailspan(tmp_path) as here:
            wait_for("a scrape", lambda: "evaluator" in parts(here, UP))
            assert parts(here, DOWN) == set()
            rename("slo_marks", "gone")
            wait_for("the alert", lambda: parts(here, DOWN) == {"evaluator"})
            rename("gone", "slo_marks")
            wait_for("its end", lambda: parts(here, DOWN) == set())
    except ProgramUnavailableError as error:
        pytest.skip(str(error))
