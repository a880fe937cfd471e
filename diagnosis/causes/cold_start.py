"""A server started or restarted: requests queue until it is warm, and new batch shapes are slow."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from diagnosis.claim import ROOT, Claim, Evidence, Lever
from diagnosis.evidence.restarts import (
    around_starts,
    deploys,
    ends_of_hangs,
    new_config_stays_slow,
    restarts,
)
from diagnosis.evidence.start_delays import start_weights
from diagnosis.evidence.start_parts import LEVERS, WORDS, largest_part
from diagnosis.growth.case import DiagnosisCase
from telemetry.cold_starts import ColdStart, is_cold_start_of
from telemetry.starts import EngineStart

ID = "cold_start"
SUMMARY = "a server (re)started: requests queue until it is warm, and its first batches are slow"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the growth for requests that arrived around an engine start.

    The growth that the changed traffic caused is subtracted.
    """
    # If the restart ended a hang, the detector `engine_hang` claims the restart's effect.
    ended_hangs = ends_of_hangs(case)
    started = [start for start in restarts(case) if start not in ended_hangs]
    # If the servers stay slow after a deploy, the detector `config_change` claims the effect of the
    # deploy's restarts.
    if new_config_stays_slow(case):
        brought = deploys(case)
        started = [start for start in started if start not in brought]
    weights = start_weights(case, started)
    if not weights:
        return None
    felt = max(started, key=lambda start: int(around_starts(case, [start]).sum()))
    brought_up = _cold_start(case, felt)
    fresh = around_starts(case, started)
    return Claim(
        cause=ID,
        weights=weights,
        tier=ROOT,
        evidence=[
            Evidence("engine starts at the slow requests' servers", 0.0, float(len(started))),
            Evidence("share of slow requests received around a start", 0.0, float(fresh.mean())),
            Evidence("requests waiting, mean", *case.mean("waiting")),
            *_parts(brought_up),
        ],
        levers=[
            *_levers_of_largest_part(brought_up),
            Lever("keep the server out of the router until it has answered a few requests"),
            Lever("keep a warm pool, or start the new server before the old one ends"),
            *_LOAD_FASTER[: brought_up is None],
        ],
        where={"replica": felt.replica},
    )


def _cold_start(case: DiagnosisCase, start: EngineStart) -> ColdStart | None:
    """Return the durations of a start's parts, or None if the server did not report them."""
    found = (each for each in case.servers.cold_starts if is_cold_start_of(each, start))
    return max(found, key=lambda each: each.at_unix_ns, default=None)


def _parts(start: ColdStart | None) -> Iterator[Evidence]:
    if start is None:
        return
    yield Evidence("seconds until the started server was ready", None, start.length_s)
    if (largest := largest_part(start)) is not None:
        part, part_s = largest
        yield Evidence(f"seconds of its largest part, {WORDS[part]}", None, part_s)


def _levers_of_largest_part(start: ColdStart | None) -> Iterator[Lever]:
    """Yield the actions (levers) that shorten the longest part of a start. The first lever contains
    the part's name and duration."""
    if start is None or (largest := largest_part(start)) is None:
        return
    part, part_s = largest
    first, *others = LEVERS[part]
    share = f"{WORDS[part]} took {part_s:.3g} s of the start's {start.length_s:.3g} s"
    yield replace(first, action=f"{first.action} ({share})")
    yield from others


_LOAD_FASTER: Final = (Lever("load faster", "--load-format runai_streamer"),)
"""The actions (levers) to propose if the parts of the start are unknown."""
