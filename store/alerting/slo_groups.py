"""Store which groups of an objective's requests are counted separately.

Each group has a row in `slo_counted`, with the objective's digest and the group's key
(`alerts.groups`). The requests outside these groups have one common row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from sqlalchemy import Engine, distinct, func, select

from store import dialects
from store.alerting.slo_counts import (
    COUNTED_RANGES,
    COUNTS,
    NUMBERS,
    SIMULATED_COUNTS,
    CountedRange,
)
from store.connections import reading, writing
from store.state import state_of

HOUR_S: Final = 3600


def groups_with_slots(engine: Engine, definition: str) -> dict[str, CountedRange]:
    """Maps the key of each group to the time range for which the group is counted."""
    own = COUNTED_RANGES.c.definition.startswith(f"{definition}.")
    with reading(state_of(engine)) as connection:
        rows = connection.execute(select(COUNTED_RANGES).where(own)).all()
    return {
        row.definition.removeprefix(definition): CountedRange(row.from_unix_s, row.until_unix_s)
        for row in rows
    }


def give_slots(engine: Engine, definition: str, groups: Mapping[str, CountedRange]) -> None:
    """Store that these groups are counted separately."""
    rows = [{"definition": definition + key, **asdict(each)} for key, each in groups.items()]
    with writing(state_of(engine)) as connection:
        dialects.of(connection.engine).upsert(connection, COUNTED_RANGES, rows)


def active_hours(
    engine: Engine, definition: str, groups: Sequence[str], from_s: int
) -> dict[str, int]:
    """The number of hours with requests since a time, for each group."""
    found = dict.fromkeys(groups, 0)
    with reading(state_of(engine)) as connection:
        for table in (COUNTS, SIMULATED_COUNTS):
            until = table.c.until_unix_s - 1
            hours = func.count(distinct(until - until % HOUR_S))
            for key in groups:
                own = table.c.definition == definition + key
                number = connection.scalar(select(hours).where(own, table.c.until_unix_s > from_s))
                found[key] = max(found[key], int(number or 0))
    return found


def merge_group(engine: Engine, definition: str, group: str, into: str) -> None:
    """Stop counting a group separately, and add its counts to the group `into`."""
    state = state_of(engine)
    upsert, remove = dialects.of(state).upsert, dialects.of(state).remove
    with writing(state) as connection:
        for table in (COUNTS, SIMULATED_COUNTS):
            own = table.c.definition == definition + group
            rows = connection.execute(select(table).where(own)).mappings().all()
            if not rows:
                continue
            instants = [row["until_unix_s"] for row in rows]
            others = {
                row["until_unix_s"]: row
                for row in connection.execute(
                    select(table).where(
                        table.c.definition == definition + into,
                        table.c.until_unix_s >= min(instants),
                        table.c.until_unix_s <= max(instants),
                    )
                ).mappings()
            }
            added = [
                {
                    "definition": definition + into,
                    "until_unix_s": row["until_unix_s"],
                    **{
                        name: row[name] + (other[name] if other else 0)
                        for other in [others.get(row["until_unix_s"])]
                        for name in NUMBERS
                    },
                }
                for row in rows
            ]
            upsert(connection, table, added)
            remove(connection, table, own)
        remove(connection, COUNTED_RANGES, COUNTED_RANGES.c.definition == definition + group)
