from pathlib import Path

from telemetry.attributes_page import markdown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "attributes.md"


def test_the_committed_page_is_the_generated_one() -> None:
    """If this test fails, run make generate."""
    assert PAGE.read_text(encoding="utf-8") == markdown()


def test_no_cell_breaks_its_table() -> None:
    columns = 0
    for line in markdown().splitlines():
        if not line.startswith("|"):
            columns = 0
            continue
        cells = line.count("|") - 1
        columns = columns or cells
        assert cells == columns, line
