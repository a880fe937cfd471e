import shutil
from fractions import Fraction
from pathlib import Path
from typing import Final

import pytest
import yaml

from benchmarks._sloth import sloth_pages
from benchmarks.timelines import STEP_S, cells, counter, faults, gauge, shown, timeline

DOCS: Final = Path(__file__).parents[2] / "docs" / "benchmarks.md"


LOOKED_AT_S: Final = {
    "1. Everything fails; bad events are `rate(…) or vector(0)`": 600,
    "2. Everything fails, 95 % over 30 d": 2_700,
    "3. A clock falls 6 min behind: every request is late": 2_820,
    "4. The counters disappear, 99.9 %": 180,
    "5. The engine hangs; clients give up after 10 min": 1_140,
}
"""One fault of each kind, which both rule sets report in the first hour or never."""


@pytest.mark.real
@pytest.mark.parametrize("name", LOOKED_AT_S, ids=lambda name: name[:40])
def test_the_table_is_current_and_sloth_never_pages_first(name: str) -> None:
    """If this test fails, run python benchmarks/timelines.py --table, and copy the output."""
    if shutil.which("promtool") is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    (fault,) = (each for each in faults() if each.name == name)
    found = timeline(fault, LOOKED_AT_S[name])
    assert f"| {' | '.join(cells(fault, found))} |" in DOCS.read_text().splitlines()
    if found.sloth_s is not None:
        assert found.page_s is not None
        assert found.page_s <= found.sloth_s + STEP_S


def test_every_fault_has_its_row() -> None:
    rows = {
        line.split(" | ")[0].removeprefix("| ")
        for line in DOCS.read_text().splitlines()
        if line.startswith(tuple(f"| {number}. " for number in range(1, 6)))
    }
    assert rows == {fault.name for fault in faults()}


def test_series_are_written_as_promtool_reads_them() -> None:
    assert counter((2 * STEP_S, 10), (STEP_S, 0), (2 * STEP_S, None)) == ("0+10x1 20+0x0 stale _x1")
    assert gauge((STEP_S, 3), (3 * STEP_S, 300)) == "3x0 300x2"


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [(None, "never"), (0, "at once"), (90, "1 min 30 s"), (7_200, "2 h"), (4_500, "1 h 15 min")],
)
def test_a_time_is_written_for_people(seconds: int | None, wanted: str) -> None:
    assert shown(seconds) == wanted


def test_sloths_page_has_its_windows_and_factors() -> None:
    """The factors for 30 days are 14.4 (5 min and 1 h) and 6 (30 min and 6 h)."""
    (group,) = yaml.safe_load(sloth_pages("a or b[{{.window}}]", "c # d\n", Fraction(99, 100)))[
        "groups"
    ]
    *recorded, alert = group["rules"]
    assert [rule["expr"] for rule in recorded[:1]] == ["(a or b[5m])\n/\n(c # d\n)\n"]
    assert alert["expr"].count("> (14.4 * 0.01)") == 2
    assert alert["expr"].count("> (6 * 0.01)") == 2
    with pytest.raises(ValueError, match=r"days is 14; allowed: 7, 28, 30"):
        sloth_pages("a", "b", Fraction(99, 100), 14)
