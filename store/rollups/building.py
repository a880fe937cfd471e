"""Makes the marked buckets: minutes from rows, hours from minutes.

A bucket is made as a whole from the existing data, and replaces the previous one. So a repeated row
counts once, a late row causes its minute to be made again, and an interrupted run is repeated:
nothing is ever added to a stored number.

If two processes make the same bucket, neither undoes the other's work: a process that finds that a
mark it read is gone discards its own result. (ClickHouse has no transactions, and one maker at a
time.)
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Engine

from store.connections import writing
from store.rollups.marks import Rolled, begin, mark, marked, unmark, whole_from_unix_s
from store.rollups.request_rollups import RequestRollups
from store.rollups.sample_rollups import SampleRollups
from store.rollups.tables import HOUR_S, MINUTE_S, WIDTHS_S

LAG_S: Final = 60
"""The wait after a bucket's end for rows that are still under way."""


class _Overtaken(Exception):  # noqa: N818 -- it names the condition
    """Another made the bucket meanwhile."""


class Maker(Protocol):
    """Makes the buckets of one kind of rows."""

    of: Rolled

    def made(self, width_s: int, start_unix_s: int) -> Any:
        """A bucket of what is there."""

    def keep(self, connection: Connection, width_s: int, start_unix_s: int, made: Any) -> None:
        """Keep it in place of what was there of it; the transaction is the caller's."""

    def kept(self) -> None:
        """It was committed."""


@dataclass(frozen=True, slots=True)
class Settled:
    """How many buckets were made, and how many marked buckets are over and not made yet."""

    made: int
    left: int


def settle(engine: Engine, now_unix_s: int, most: int | None = None) -> Settled:
    """Make the buckets that are marked and over, the oldest first, minutes before hours.

    Args:
        engine: from `open_database`; the first time, what is there is marked.
        now_unix_s: the present.
        most: how many to make at most, so that one who waits for it can stop.

    Raises:
        StoreUnavailable: the database does not answer; what was made is kept.
    """
    begin(engine)
    made = left = 0
    makers: tuple[Maker, ...] = (RequestRollups(engine), SampleRollups(engine))
    for maker in makers:
        for width_s in WIDTHS_S:
            whole_from = whole_from_unix_s(engine, width_s, maker.of) or 0
            for start, marks in marked(engine, width_s, maker.of).items():
                if start + width_s + LAG_S > now_unix_s:
                    continue
                if most is not None and made >= most:
                    left += 1
                    continue
                _make(engine, maker, width_s, start, marks, whole=start >= whole_from)
                made += 1
    return Settled(made, left)


def _make(
    engine: Engine, maker: Maker, width_s: int, start: int, marks: list[int], *, whole: bool
) -> None:
    bucket = maker.made(width_s, start) if whole else None
    try:
        with writing(engine) as connection:
            if whole:
                maker.keep(connection, width_s, start, bucket)
                if width_s == MINUTE_S:
                    mark(connection, HOUR_S, [start // HOUR_S * HOUR_S], maker.of)
            if unmark(connection, width_s, start, marks, maker.of) != len(marks):
                raise _Overtaken
    except _Overtaken:
        return
    maker.kept()
