"""The servers run with other arguments since a deploy."""

import numpy as np

from diagnosis.case import Case
from diagnosis.causes.claim import ROOT, Claim, Evidence, Lever
from diagnosis.causes.cold_start import TERMS
from diagnosis.causes.restarts import around_starts, lasting, new_configs, restarts
from telemetry.starts import Difference, differences

ID = "config_change"
SUMMARY = "the servers run with other arguments since a deploy"

_PREEMPTED = ("prefill_preempted", "decode_preempted")


def detect(case: Case) -> Claim | None:
    """Claims all but the workload's own growth of the requests that bear a new configuration."""
    configs = new_configs(case)
    if not configs or not lasting(case):
        return None
    new = np.zeros(len(case.slow), dtype=np.bool_)
    for config in configs:
        new |= case.slow.label("config").is_value(config)
    if not new.any():
        return None
    # Its own restart is part of the deploy.
    deployed = new | around_starts(
        case, [start for start in restarts(case) if start.config in configs]
    )
    changed = _changed(case, configs)
    named = ", ".join(f"{name}: {before} → {after}" for name, before, after in changed[:4])
    return Claim(
        cause=ID,
        weights=dict.fromkeys((*TERMS, *_PREEMPTED), np.where(deployed, 1.0, 0.0)),
        tier=ROOT,
        evidence=[
            Evidence("share of slow requests with the new configuration", 0.0, float(new.mean())),
            *(Evidence(name, _number(before), _number(after)) for name, before, after in changed),
        ],
        levers=[Lever(f"go back to what was ({named})" if named else "go back to what was")],
        where={"config": configs[0]},
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _changed(case: Case, configs: tuple[str, ...]) -> list[Difference]:
    starts = sorted(case.servers.starts, key=lambda start: start.at_unix_ns)
    after = next((start for start in reversed(starts) if start.config in configs), None)
    if after is None:
        return []
    before = next(
        (
            start
            for start in reversed(starts)
            if start.config not in configs and start.replica == after.replica
        ),
        None,
    )
    if before is None:
        return []
    return differences(before.arguments, after.arguments)
