"""Check replicas: hung engines, wrong clocks, shared names, front ends, and owners of GPUs."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Engine

from store.replicas import clock_offsets, hung_replicas, senders
from store.replicas.engine_only_replicas import engine_only_replicas
from store.rollups.sample_rollups import read_counter_spans
from store.rollups.sample_tables import DEVICES, ENGINES
from telemetry.hung_replicas import ReplicaProgress
from telemetry.window import Window

_CLOCKS_NS: Final = 300 * 10**9
_RECENT_NS: Final = 600 * 10**9
_MINUTE_NS: Final = 60 * 10**9


class GpuOwners(NamedTuple):
    """The replicas with engines, and the GPUs (replica, GPU) whose replica has no engine."""

    replicas: Sequence[str]
    strangers: Sequence[tuple[str, str]]


def replica_progress(engine: Engine, now_unix_ns: int) -> ReplicaProgress:
    """The replicas that report now, and those that hang."""
    return hung_replicas.progress(engine, now_unix_ns)


def replica_clock_offsets(engine: Engine, newest_unix_ns: int) -> list[clock_offsets.Offset]:
    """The offset of each server's clock from the clocks of its clients, in the latest 5 min."""
    return clock_offsets.offsets(engine, _latest(newest_unix_ns, _CLOCKS_NS))


def sender_names(engine: Engine, newest_unix_ns: int) -> senders.SenderNames:
    """The names that servers share, in the latest 10 min."""
    return senders.names(engine, _latest(newest_unix_ns, _RECENT_NS))


def replicas_without_python_front_end(engine: Engine, newest_unix_ns: int) -> list[str]:
    """The replicas whose requests only the engine core measures, in the latest 10 min."""
    return engine_only_replicas(engine, _latest(newest_unix_ns, _RECENT_NS))


def gpu_owners(engine: Engine, newest_unix_ns: int, lookback_ns: int) -> GpuOwners:
    """The GPUs that belong to no engine, in the latest `lookback_ns`, in whole minutes."""
    start = max(0, newest_unix_ns - lookback_ns) // _MINUTE_NS * _MINUTE_NS
    window = Window(start, (newest_unix_ns // _MINUTE_NS + 1) * _MINUTE_NS)
    engines, gpus = read_counter_spans(engine, window, (ENGINES, DEVICES))
    replicas = sorted({replica for replica, *_ in engines.owners})
    return GpuOwners(replicas, [each for each in gpus.owners if each[0] not in replicas])


def _latest(newest_unix_ns: int, length_ns: int) -> Window:
    return Window(max(0, newest_unix_ns - length_ns), newest_unix_ns + 1)
