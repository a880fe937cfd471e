"""Lock and open the database that `tailspan up` writes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from sqlalchemy import Engine

from store.database import STATE_DATABASE, open_database
from store.writer_lock import check_two_files, sole_writer


@contextmanager
def own_database(
    url: str, state_url: str | None, report: Callable[[str], None]
) -> Iterator[Engine]:
    """Lock the database and a separate state database, open them, and upgrade their schemas.

    Args:
        report: called with notices about locks, modes of files and upgrades.

    Raises:
        StoreError: another process writes the database, or it cannot be used.
    """
    with ExitStack() as locks:
        # Lock the database before it is opened, because opening may upgrade it.
        locks.enter_context(sole_writer(url, report))
        if state_url is not None:
            check_two_files(url, state_url)
            locks.enter_context(sole_writer(state_url, report, STATE_DATABASE))
        engine = open_database(url, state_url, report=report)
        try:
            yield engine
        finally:
            engine.dispose()
