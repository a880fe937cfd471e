"""Find when engines sent their last samples."""

from collections.abc import Iterable

from sqlalchemy import Engine, select

from store.connections import reading
from store.schema import SAMPLES
from telemetry.starts import EngineStart
from telemetry.window import Window


def last_samples(engine: Engine, starts: Iterable[EngineStart], window: Window) -> dict[str, int]:
    """The time of each replica's last sample in a window. Each query reads one process's last entry
    in the index, which is fast."""
    at = SAMPLES.c.at_unix_ns
    found: dict[str, int] = {}
    with reading(engine) as connection:
        for replica, number, process in {(e.replica, e.engine, e.process) for e in starts}:
            newest = (
                select(at)
                .where(SAMPLES.c.replica == replica)
                .where(SAMPLES.c.engine == number, SAMPLES.c.process == process)
                .where(at >= window.from_unix_ns, at < window.to_unix_ns)
                .order_by(at.desc())
                .limit(1)
            )
            last: int | None = connection.scalar(newest)
            if last is not None:
                found[replica] = max(last, found.get(replica, 0))
    return found
