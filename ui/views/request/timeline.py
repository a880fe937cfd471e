"""The timeline of one request: its instants, its phases, and their parts. Pure.

Segments follow each other without gaps. The time at which each part occurred is not known. The
request's own work is drawn first, then delays by other requests, preemption and stalls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from diagnosis.latency.parts import PHASE
from ui.kit.part_names import part_name
from ui.kit.terms import TERMS
from ui.views.request.facts import measured_in_engine_only

SAME: Final = 0.01
"""Two instants count as one if their distance is less than this share of the duration."""


@dataclass(frozen=True, slots=True)
class Instant:
    """A named instant, in seconds since the request's receipt."""

    name: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a phase. Times are seconds since the request's receipt."""

    part: str
    name: str
    meaning: str
    colour: str
    pattern: str
    """The pattern that distinguishes the parts of a phase, which have the same colour."""
    from_s: float
    length_s: float


@dataclass(frozen=True, slots=True)
class TimelineStage:
    """A phase that began, and its parts. Times are seconds since the request's receipt."""

    name: str
    meaning: str
    from_s: float
    segments: Sequence[Segment]

    @property
    def length_s(self) -> float:
        """Duration of the phase."""
        return sum(segment.length_s for segment in self.segments)

    @property
    def to_s(self) -> float:
        """End of the phase."""
        return self.from_s + self.length_s


_NAMES: Final = {"unsplit": "not split"}
_TERMS: Final = {"unsplit": TERMS["unaccounted"]}
_PATTERNS: Final = {
    "handoff": "/",
    "queue_kv": "/",
    "queue_budget": "x",
    "queue_kv_load": "+",
    "queue_grammar": "-",
    "queue_adapter": "|",
    "queue_held": "\\",
    "queue_step": ".",
    "prefill_others_decode": "/",
    "decode_others_decode": "/",
}
_PHASES: Final = ("frontend", "queue", "prefill", "decode", "delivery")
_ENDS: Final = {"abort": "client left", "error": "failed", "rejected": "refused"}


def stages(row: Mapping[str, Any], parts_s: Mapping[str, float]) -> list[TimelineStage]:
    """The phases that began, in order of time. They sum to the end-to-end time.

    `parts_s` is from `diagnosis.one_request.account`.
    """
    found: list[TimelineStage] = []
    reached = 0.0
    for phase in (*_PHASES, "unsplit"):
        inside = {part: seconds for part, seconds in parts_s.items() if PHASE[part] == phase}
        if not inside and row.get(f"{phase}_s") is None:
            continue
        segments, at = [], reached
        for part, seconds in (inside or {_single_part(phase): 0.0}).items():
            name, colour, meaning = part_name(part)
            segments.append(
                Segment(
                    *(part, name, meaning, colour, _PATTERNS.get(part, "")), at, max(0.0, seconds)
                )
            )
            at += max(0.0, seconds)
        meaning = _TERMS.get(phase) or TERMS[phase]
        found.append(TimelineStage(_NAMES.get(phase, phase), meaning, reached, segments))
        reached = at
    return found


def _single_part(phase: str) -> str:
    return f"{phase}_unsplit" if phase in ("queue", "prefill", "decode") else phase


def instants(row: Mapping[str, Any]) -> list[Instant]:
    """The known instants in order of time. The last instant is the end of the request."""
    at = 0.0
    found = [Instant("received" if row["basis"] != "engine" else "arrived", at)]
    phases = [
        ("frontend_s", "queued"),
        ("queue_s", "scheduled"),
        ("prefill_s", "first token"),
        ("decode_s", "last token"),
    ]
    if measured_in_engine_only(row):
        found, phases = [Instant("queued", at)], phases[1:]
    for phase, name in phases:
        if row[phase] is None:
            break
        at += row[phase]
        found.append(Instant(name, at))
    ttft_s, whole_s = row["ttft_s"], row["e2e_s"]
    if ttft_s is not None and row.get("streamed") is not False:
        near = [each for each in found[1:] if abs(each.at_s - ttft_s) <= SAME * whole_s]
        if not any(each.name == "first token" for each in near):
            found.append(Instant("first byte", ttft_s))
    content_s = row.get("first_content_s")
    if content_s is not None and row.get("streamed") is not False:
        begun_s = max((each.at_s for each in found if "first" in each.name), default=0.0)
        if content_s - begun_s > SAME * whole_s:
            found.append(Instant("first content", content_s))
    end = Instant(_ENDS.get(row["outcome"], "delivered"), whole_s)
    # If a request ended early, it ends with its last phase. Draw only one of these two instants.
    if row["outcome"] in _ENDS and found[1:] and whole_s - found[-1].at_s <= 1e-6:
        found.pop()
    return [*sorted(found, key=lambda each: each.at_s), end]
