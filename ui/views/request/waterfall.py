"""One request from received to delivered. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go

from ui.kit import charts, colours, wording
from ui.kit.phases import LAYERS
from ui.kit.terms import TERMS


@dataclass(frozen=True, slots=True)
class Bar:
    """A phase on the request's own time axis, in seconds since its receipt."""

    name: str
    colour: str
    from_s: float
    length_s: float


_BY_KEY = {layer.key: layer for layer in LAYERS}
_PHASES = ("frontend", "queue", "prefill", "decode", "delivery")
_PARTS = (
    ("others_prefill_s", "others", "others’ prefill"),
    ("others_decode_s", "others", "others’ decode"),
    ("preempted_s", "preempted", "preempted"),
    ("stall_s", "stall", "stall"),
)
"""A part's column without its phase, its layer, and its name."""


def bars(row: Mapping[str, Any]) -> list[Bar]:
    """The phases that began, end to end; what they leave of the whole comes last.

    Where the ledger split prefill and decode, a phase's own work comes first and what others,
    preemption and stalls took of it after that: how much is known, not when in the phase.
    """
    found: list[Bar] = []
    reached = 0.0
    for key in _PHASES:
        length = row[f"{key}_s"]
        if length is None:
            continue
        taken = [(_BY_KEY[layer], row.get(f"{key}_{part}") or 0.0) for part, layer, _ in _PARTS]
        own = (_BY_KEY[key], max(0.0, length - sum(seconds for _, seconds in taken)))
        for layer, seconds in (own, *taken):
            if seconds > 1e-6 or (layer is own[0] and not any(s for _, s in taken)):
                _extend(found, Bar(layer.name, layer.colour, reached, seconds))
                reached += seconds
    rest = row["e2e_s"] - reached
    if rest > 1e-6:
        layer = _BY_KEY["unaccounted"]
        found.append(Bar(layer.name, layer.colour, reached, rest))
    return found


def _extend(found: list[Bar], bar: Bar) -> None:
    """Append a bar, or lengthen the last one where it is of the same kind."""
    if found and found[-1].name == bar.name:
        found[-1] = replace(found[-1], length_s=found[-1].length_s + bar.length_s)
    else:
        found.append(bar)


def parts(row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(name, colour, duration) of what lay inside prefill and decode, where it is known."""
    found = []
    for part, key, name in _PARTS:
        told = [row[f"{phase}_{part}"] for phase in ("prefill", "decode")]
        known = [seconds for seconds in told if seconds is not None]
        if known:
            found.append((name, _BY_KEY[key].colour, wording.seconds(sum(known))))
    return found


def facts(row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(what, value, explanation) of a request; the values are foreign text, not yet escaped."""
    basis = {
        "http": "receipt and delivery seen at the HTTP edge",
        "engine": "HTTP unseen: receipt and delivery as the engine's front end saw them",
    }
    told = (
        ("Trace", row["trace_id"], "The OpenTelemetry trace it belongs to."),
        ("Outcome", _outcome(row), TERMS.get(row["outcome"], "")),
        ("TTFT", wording.seconds(row["ttft_s"]), TERMS["ttft_s"]),
        ("TPOT", wording.seconds(row["tpot_s"]), TERMS["tpot_s"]),
        ("ITL max", wording.seconds(row["itl_max_s"]), TERMS["itl_max_s"]),
        ("E2E", wording.seconds(row["e2e_s"]), TERMS["e2e_s"]),
        ("Prompt", _tokens(row), "Tokens of the prompt; those the prefix cache already held."),
        ("Answer", _counted(row["output_tokens"]), "Tokens of the answer."),
        ("Cost", _cost(row), "Its share of the GPUs’ price, by the time they worked for it."),
        ("GPU time", _billed(row), "Seconds of the engine billed to it; wasted: computed twice."),
        ("Preemptions", wording.count(row["preemptions"]), TERMS["preempted"]),
        ("On arrival", _arrival(row), "The engine's state when the request came."),
        ("Model", row["model"], ""),
        ("LoRA", row["lora"], "The adapter asked for."),
        ("Tenant", row["tenant"], ""),
        ("Route", row["route"], ""),
        ("Replica", row["replica"], ""),
        ("Region", row["region"], ""),
        ("Configuration", row["config"], "Fingerprint of the engine's arguments."),
        ("Measured", basis.get(row["basis"], row["basis"]), ""),
        ("Clock", _clock(row), "Its sender told of what had not been yet; see tailspan doctor."),
    )
    return [(what, value, why) for what, value, why in told if value and value != wording.UNKNOWN]


def _clock(row: Mapping[str, Any]) -> str:
    """By how much its instants are not the sender's own."""
    ahead_s = row["clock_ahead_s"]
    return f"{wording.seconds(ahead_s)} ahead; set back" if ahead_s else ""


def _outcome(row: Mapping[str, Any]) -> str:
    parts = [row["outcome"]]
    if row["http_status"] is not None:
        parts.append(f"HTTP {row['http_status']}")
    if row["error_type"]:
        parts.append(row["error_type"])
    return " · ".join(parts)


def _arrival(row: Mapping[str, Any]) -> str:
    told = (
        (row["waiting_at_arrival"], "{} waiting", wording.count),
        (row["running_at_arrival"], "{} running", wording.count),
        (row["kv_usage_at_arrival"], "KV {} full", wording.percent),
    )
    return ", ".join(text.format(say(value)) for value, text, say in told if value is not None)


def _cost(row: Mapping[str, Any]) -> str:
    cost_usd = row.get("cost_usd")
    if cost_usd is None:
        return ""
    by_tokens = ", by its tokens" if row.get("priced_by") == "tokens" else ""
    return f"{wording.usd(cost_usd)}{by_tokens}"


def _billed(row: Mapping[str, Any]) -> str:
    billed_s, wasted_s = row.get("billed_s"), row.get("wasted_s")
    if billed_s is None:
        return ""
    wasted = f", {wording.seconds(wasted_s)} more wasted" if wasted_s else ""
    return f"{wording.seconds(billed_s)}{wasted}"


def _counted(tokens: int | None) -> str:
    return "" if tokens is None else wording.counted(tokens, "token")


def _tokens(row: Mapping[str, Any]) -> str:
    cached = row["cached_tokens"]
    held = "" if cached is None else f", {wording.count(cached)} of them cached"
    return f"{_counted(row['prompt_tokens'])}{held}" if row["prompt_tokens"] is not None else ""


def figure(bars: Sequence[Bar], first_byte_s: float | None) -> go.Figure:
    """One request from received to delivered, a row for each phase."""
    figure = go.Figure()
    for bar in bars:
        figure.add_trace(
            go.Bar(
                y=[bar.name],
                x=[bar.length_s],
                base=[bar.from_s],
                orientation="h",
                marker={
                    "color": bar.colour,
                    "line": {"width": 1, "color": colours.OUTLINE},
                },
                text=[wording.seconds(bar.length_s)],
                textposition="auto",
                insidetextanchor="end",
                insidetextfont={"color": colours.on(bar.colour)},
                cliponaxis=False,
                hovertemplate=(
                    f"{bar.name}: {wording.seconds(bar.from_s)} to "
                    f"{wording.seconds(bar.from_s + bar.length_s)}<extra></extra>"
                ),
                showlegend=False,
            )
        )
    end = max((bar.from_s + bar.length_s for bar in bars), default=1.0)
    if first_byte_s is not None:
        figure.add_vline(
            x=first_byte_s,
            line={"width": 1, "dash": "dot", "color": colours.OUTLINE},
            annotation={
                "text": f"first byte {wording.seconds(first_byte_s)}",
                "yref": "paper",
                "y": 1.0,
                "yanchor": "bottom",
                "font": {"size": 11},
                "xanchor": "left" if first_byte_s < end * 0.7 else "right",
            },
        )
    ticks = charts.linear_ticks(end)
    figure.update_xaxes(
        range=[0, end * 1.14],
        tickvals=ticks,
        ticktext=[wording.tick_seconds(tick) for tick in ticks],
        fixedrange=True,
        title={"text": "since received", "standoff": 4},
    )
    figure.update_yaxes(autorange="reversed", fixedrange=True, showgrid=False)
    figure.update_layout(
        height=74 + 30 * max(1, len(bars)),
        margin={**charts.MARGIN, "l": 78, "t": 22, "b": 40},
        bargap=0.35,
        dragmode=False,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    return figure
