from pathlib import Path

from telemetry.cache_aliases import CACHES, STATUSES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "caches.md").read_text(encoding="utf-8")


def test_the_page_has_every_name_and_its_source() -> None:
    rows = {
        row.split("|")[1].strip(" `"): row for row in PAGE.splitlines() if row.startswith("| `")
    }
    assert set(rows) == {each.cache for each in CACHES}
    for each in CACHES:
        names = (
            *(each.attributes + each.headers + each.milliseconds),
            *(each.similarity_attributes + each.similarity_headers),
        )
        assert [name for name in names if f"`{name}`" not in rows[each.cache]] == []
        assert each.source in rows[each.cache]
        assert each.kind is None or each.kind in rows[each.cache]


def test_the_page_has_every_status() -> None:
    shown = PAGE.partition("Documented statuses are")[2].lower().replace("-", " ")
    assert [status for status in STATUSES if f"`{status}`" not in shown] == []
