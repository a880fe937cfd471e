from pathlib import Path

import pytest

from analysis.database import cache_key, hides_rows, open_to_read, opened_to_read, reading_as
from store.access.restricted import with_masked_rows
from store.database import open_database
from telemetry.access import Access, Grant
from telemetry.store_errors import DatabaseMissing

ACCESSES = (
    Access.of([Grant(frozenset({"acme"}), costs=False)]),
    Access.of([Grant()]),
    Access.of([Grant(frozenset({"acme"}))]),
    Access.of([Grant(None, frozenset({"acme"}))]),
)


def test_readers_with_different_rights_have_different_cache_keys(tmp_path: Path) -> None:
    """A reader must not see a result that was computed for a reader with other rights."""
    url = f"sqlite:///{tmp_path}/t.db"
    open_database(url).dispose()
    keys = set()
    for each in (*ACCESSES, None):
        with reading_as(each), opened_to_read(url) as engine:
            keys |= {cache_key(engine), cache_key(with_masked_rows(engine))}
            assert hides_rows(engine) == (each is not None and each.limits_rows)
    assert len(keys) == 6  # two readers may see some tenants only, and masked rows for explanations


def test_a_missing_database_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(DatabaseMissing):
        open_to_read(f"sqlite:///{tmp_path}/t.db")
    assert not list(tmp_path.iterdir())
