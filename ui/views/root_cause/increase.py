"""The increase of a latency as a waterfall. Each bar is the growth of a part. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import plotly.graph_objects as go

from diagnosis.explanation import PartGrowth
from ui.kit import charts, colours, wording
from ui.kit.part_names import part_name

SMALL: Final = 0.02
"""One bar combines all parts whose change is less than this share of the growth."""

REST: Final = "all other parts"


@dataclass(frozen=True, slots=True)
class IncreaseBar:
    """The growth of a part, which may be negative. The bar begins at `from_s`."""

    name: str
    colour: str
    meaning: str
    from_s: float
    growth_s: float
    before_s: float
    now_s: float


def steps(parts: Sequence[PartGrowth]) -> list[IncreaseBar]:
    """A bar for each part, in the order of a request's phases. The last bar is for small parts."""
    moved = max((abs(part.excess_s) for part in parts), default=0.0)
    whole = max(moved, abs(sum(part.excess_s for part in parts)))
    large = [part for part in parts if moved > 0 and abs(part.excess_s) >= SMALL * whole]
    small = [part for part in parts if part not in large and (part.baseline_s or part.now_s)]
    found: list[IncreaseBar] = []
    reached = 0.0
    for part in large:
        name, colour, meaning = part_name(part.part)
        found.append(
            IncreaseBar(name, colour, meaning, reached, part.excess_s, part.baseline_s, part.now_s)
        )
        reached += part.excess_s
    if small:
        before_s, now_s = sum(p.baseline_s for p in small), sum(p.now_s for p in small)
        meaning = "each of them changed by less than 2 % of the total"
        found.append(
            IncreaseBar(
                REST, colours.UNACCOUNTED, meaning, reached, now_s - before_s, before_s, now_s
            )
        )
    return found


def figure(found: Sequence[IncreaseBar]) -> go.Figure:
    """Draw the bars from top to bottom, and the total below them."""
    drawn = go.Figure()
    for step in found:
        text = (
            f"{step.name}: {wording.seconds(step.before_s)} before, "
            f"{wording.seconds(step.now_s)} now<br>{step.meaning}"
        )
        drawn.add_trace(_bar(step.name, step.from_s, step.growth_s, step.colour, text))
    total = sum(step.growth_s for step in found)
    drawn.add_trace(_bar("<b>increase</b>", 0.0, total, colours.TOTAL, "the sum of all parts"))
    low = min([0.0, total, *(step.from_s + step.growth_s for step in found)])
    high = max([0.0, total, *(step.from_s + step.growth_s for step in found)])
    width = (high - low) or 1e-3
    ticks = charts.linear_ticks(max(high, width / 2))
    drawn.update_xaxes(
        # Leave space on both sides of the longest bar for its number.
        range=[low - width * (0.30 if low < 0 else 0.02), high + width * 0.34],
        **charts.axis_ticks(ticks, wording.tick_seconds),
        fixedrange=True,
        zeroline=True,
        zerolinecolor=colours.OUTLINE,
        title={"text": "added to the slow requests’ mean", "standoff": 4},
    )
    return charts.waterfall(drawn, len(found) + 1, left=138)


def _bar(name: str, from_s: float, growth_s: float, colour: str, text: str) -> go.Bar:
    label = wording.signed_seconds(growth_s)
    return charts.step_bar(name, from_s, growth_s, colour, label, text)
