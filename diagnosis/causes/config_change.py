"""Since a deploy, the servers run with different arguments."""

from math import log
from typing import Final

import numpy as np

from diagnosis.claim import ROOT, Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.held_requests import WHILE_LOADING, adapters_are_loading
from diagnosis.evidence.restarts import around_starts, deploys, new_config_stays_slow, new_configs
from diagnosis.evidence.start_delays import TERMS
from diagnosis.evidence.waits import shared_with_traffic, wait_weights
from diagnosis.growth.case import DiagnosisCase
from diagnosis.inputs.requests import FloatArray
from telemetry.starts import Difference, differences

ID = "config_change"
SUMMARY = "since a deploy, the servers run with different arguments"

_PREEMPTED = ("prefill_preempted", "decode_preempted")
_OF_CACHE: Final = ("cache.", "parallel.", "kv_transfer.", "lora.")
_AFFECTED: Final = (
    (("prefill_uncached",), _OF_CACHE),
    (
        ("queue_kv", *_PREEMPTED),
        (
            *("cache.", "parallel.", "kv_transfer.", "lora.", "speculative."),
            *("model.max_model_len", "scheduler.max_num_seqs"),
        ),
    ),
)
"""Pairs of terms (parts of the latency) and prefixes of argument names. Arguments with these
prefixes can lengthen these terms."""


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the growth of the latency at servers with a new configuration.

    The growth that the changed traffic caused is subtracted.
    """
    configs = new_configs(case)
    if not configs or not new_config_stays_slow(case):
        return None
    new = case.slow.label("config").is_any(configs)
    if not new.any():
        return None
    # A deploy needs a restart, so this claim includes the effect of the restart.
    restarted = around_starts(case, deploys(case))
    deployed = new | restarted
    changed = _changed_arguments(case, configs)
    named = ", ".join(f"{name}: {before} → {after}" for name, before, after in changed[:4])
    weights: dict[str, float | FloatArray] = dict.fromkeys(
        (*TERMS, *_PREEMPTED), np.where(deployed, 1.0, 0.0)
    )
    # For requests that no restart delayed, claim only the terms that the new arguments affect.
    # Subtract the growth that the traffic caused.
    warm = deployed & ~restarted
    others = [*drivers.TRAFFIC, drivers.ENCODER]
    if changed and not any(_difference_affects(difference, _OF_CACHE) for difference in changed):
        others.append(drivers.MISSES)
    for term, by_traffic in shared_with_traffic(case).items():
        if term in weights:
            weights[term] = np.where(restarted, 1.0 - by_traffic, weights[term])
    demand_share = drivers.demand_share(case, _log_of_fewer_seats(case, changed))
    for term, share in wait_weights(case, *others).items():
        if term in weights:
            weights[term] = np.where(warm, 1.0 - share * demand_share, weights[term])
    # No reported argument changes the images that the encoder processes.
    without_encoder = np.where(warm, 1.0 - drivers.encoder_share(case), 1.0)
    for term in drivers.OWN_PREFILL:
        if term in weights:
            weights[term] = weights[term] * without_encoder
    if adapters_are_loading(case) and not any(
        _difference_affects(difference, ("lora.",)) for difference in changed
    ):
        # All requests wait while the engine loads an adapter.
        weights |= {term: np.where(warm, 0.0, weights[term]) for term in WHILE_LOADING}
    for terms, parts in _AFFECTED:
        if changed and not any(_difference_affects(difference, parts) for difference in changed):
            weights |= {term: np.where(warm, 0.0, weights[term]) for term in terms}
    return Claim(
        cause=ID,
        weights=weights,
        tier=ROOT,
        evidence=[
            Evidence("share of slow requests with the new configuration", 0.0, float(new.mean())),
            *(Evidence(name, _number(before), _number(after)) for name, before, after in changed),
        ],
        levers=[Lever(f"roll back ({named})" if named else "roll back the deploy")],
        where={"config": configs[0]},
    )


def _log_of_fewer_seats(case: DiagnosisCase, changed: list[Difference]) -> float:
    """Return log(running / allowed), at least 0.

    `running` is the 99th percentile of concurrent requests in the baseline. `allowed` is the new
    max_num_seqs. The result is 0 if `max_num_seqs` did not change."""
    seats = next(
        (each.after for each in changed if each.argument == "scheduler.max_num_seqs"), None
    )
    running, _ = case.p99("running")
    now = _number(seats)
    return max(log(running / now), 0.0) if running and now else 0.0


def _difference_affects(difference: Difference, parts: tuple[str, ...]) -> bool:
    name, before, after = difference
    if name == "scheduler.max_num_seqs" and (_number(after) or 0.0) < (_number(before) or 0.0):
        # a smaller batch needs less KV memory, so it does not lengthen waits for memory
        return False
    return name.startswith(parts)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _changed_arguments(case: DiagnosisCase, configs: tuple[str, ...]) -> list[Difference]:
    starts = sorted(case.servers.starts, key=lambda start: start.at_unix_ns)
    after = next((start for start in reversed(starts) if start.config in configs), None)
    if after is None:
        return []
    others = [start for start in reversed(starts) if start.config not in configs]
    own = [start for start in others if start.replica == after.replica]
    own.sort(key=lambda start: start.engine != after.engine)
    # If the deploy gave the replica a new name, the replica has no earlier start. Then compare its
    # arguments with those of other replicas of the same model.
    old = [
        each for each in others if each.model == after.model and each.at_unix_ns < after.at_unix_ns
    ]
    before = next(iter(own or old), None)
    return differences(before.arguments, after.arguments) if before is not None else []
