"""The bottleneck of each engine: memory, compute, neither, or too little load. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from diagnosis.inputs.arrow import samples_of
from diagnosis.inputs.servers import Samples
from roofline.arrow import engines_of, gpus_of
from roofline.chunks import read_chunks
from roofline.errors import UnknownShapeError
from roofline.peakfile import ENVIRONMENT_KEY
from roofline.peaks import device_named
from roofline.shape import ModelShape
from roofline.shape_from_config import read_shape
from roofline.verdict import RooflineVerdict
from roofline.windows import RooflineWindow, windows_of
from roofline.wording import findings, sentence
from telemetry.starts import EngineStart
from ui.kit import wording
from ui.kit.tables import table
from ui.views.fleet.replicas import STALLING

ENGINE_COLUMNS: Final = (
    *("prefill_attention_total", "context_tokens_total", "decodes_total"),
    *("modelled_flops_total", "modelled_read_bytes_total", "modelled_write_bytes_total"),
)
GPU_COLUMNS: Final = ("dram_bandwidth_bytes_per_s", "sm_active_ratio", "tensor_active_ratio")
MAX_ROWS: Final = 50


@dataclass(frozen=True, slots=True)
class Bound:
    """The bottleneck of one engine over the whole range. If it is unknown, `why` is the reason."""

    replica: str
    engine: int
    device: str | None
    window: RooflineWindow | None
    why: str | None = None
    stall_ratio: float | None = None
    """The share of the step time that the scheduled work does not explain."""
    prompt_ratio: float | None = None
    """The share of prompt tokens among all tokens of the steps."""


def bounds(
    samples: pa.Table,
    gpus: pa.Table,
    starts: Sequence[EngineStart],
    peaks: Mapping[str, Any] | None = None,
) -> list[Bound]:
    """The bottleneck of each engine, for at most `MAX_ROWS` engines.

    Args:
        samples: has the columns `ENGINE_COLUMNS`, `grid.ENGINE_COLUMNS` and `engine`.
        gpus: has the columns `GPU_COLUMNS` and `grid.GPU_COLUMNS`.
        starts: the latest start of each engine.
        peaks: the user's peaks, which override the built-in table.
    """
    if not samples.num_rows:
        return []
    by_engine: Mapping[tuple[str, int], EngineStart] = {
        (each.replica, each.engine): each for each in starts
    }
    found = []
    counters = samples_of(samples)
    engines = engines_of(samples)
    number = Counter(key.replica for key in engines)
    for key, engine in list(engines.items())[:MAX_ROWS]:
        start = by_engine.get((key.replica, key.engine))
        shape, why = _shape(start)
        device = device_named(start.device if start is not None else None, peaks)
        if why is None and device is None:
            named = start.device if start is not None else None
            why = (
                f"the peaks of {named!r} are unknown (set {ENVIRONMENT_KEY})"
                if named
                else "its device is not reported"
            )
        chunks = read_chunks(start.arguments) if start is not None else None
        # GPU samples have no engine number, so they are of one engine only if it is the only one.
        own_gpus = gpus_of(gpus, key.replica) if number[key.replica] == 1 else None
        windows = windows_of(engine, shape, device, own_gpus, None, chunks)
        window = windows[0] if windows and windows[0].verdict is not None else None
        found.append(
            Bound(
                key.replica,
                key.engine,
                start.device if start is not None else None,
                window,
                None if window is not None else why or "its steps are not reported",
                *_of_steps(counters, key.replica, key.engine),
            )
        )
    return found


def _of_steps(counters: Samples, replica: str, engine: int) -> tuple[float | None, float | None]:
    """The engine's stall ratio and prompt ratio."""
    names = counters.replica
    rows = names.is_value(replica) & (counters.number("engine") == engine)
    prompts = counters.rate("scheduled_prefill_tokens_total", rows)
    decodes = counters.rate("decodes_total", rows)
    tokens = (prompts or 0.0) + (decodes or 0.0)
    return (
        counters.ratio("stall_s_total", "busy_s_total", rows),
        prompts / tokens if prompts is not None and tokens else None,
    )


def _shape(start: EngineStart | None) -> tuple[ModelShape | None, str | None]:
    if start is None or start.shape is None:
        return None, "the shape of its model is not reported"
    try:
        return read_shape(start.shape), None
    except UnknownShapeError as error:
        return None, f"the shape of its model is unknown: {error}"


def as_html(found: Sequence[Bound], engines: int) -> str:
    """A table of engines with their bottlenecks. A note has the number of left-out engines, of all
    `engines`."""
    several = {each.replica for each in found if each.engine}
    rows = []
    for each in found:
        name = wording.for_html(each.replica, 24)
        if each.replica in several:
            name += f" <small>engine {each.engine}</small>"
        device = wording.for_html(each.device or "", 40)
        rows.append((name, device, _sentences(each)))
    more = engines - len(found)
    note = (
        f"<p class='note'>… and {wording.counted(more, 'more engine')}. Filter by replica to see"
        " others.</p>"
        if more > 0
        else ""
    )
    return table(("replica", "device", "bottleneck"), rows, "configs") + note


def _sentences(bound: Bound) -> str:
    if bound.window is None:
        return f"Unknown: {wording.for_html(bound.why or '', 200)}."
    sentences = [_sentence(bound, bound.window), *findings(bound.window)]
    return " ".join(wording.for_html(each, 600) for each in sentences)


def _sentence(bound: Bound, window: RooflineWindow) -> str:
    """The verdict. It names the CPU and kernel launches only if work does not explain the step
    time."""
    text = sentence(window)
    if window.verdict is not RooflineVerdict.OVERHEAD_BOUND:
        return text
    text = text.partition(" The rest is ")[0]
    stall, prompts = bound.stall_ratio, bound.prompt_ratio
    if stall is None:
        return f"{text} The cause of the rest of the step time is unknown."
    if stall >= STALLING:
        return (
            f"{text} Scheduled work does not explain {wording.percent(stall)} of the step time:"
            " CPU, kernel launches or communication."
        )
    of_prompts = (
        "" if prompts is None else f", of which {wording.percent(prompts)} are prompt tokens"
    )
    return (
        f"{text} The step time grows with the tokens in a step{of_prompts}; they explain"
        f" {wording.percent(1 - stall)} of it."
    )
