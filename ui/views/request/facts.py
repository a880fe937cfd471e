"""The facts about one request that its phases do not show. Pure."""

from collections.abc import Mapping
from typing import Any

from ui.kit import wording
from ui.kit.terms import TERMS


def facts(row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The facts as (name, value, explanation).

    The values are external text, which the caller must escape.
    """
    basis = {
        "http": "receipt and delivery were measured in the HTTP layer",
        "engine": "HTTP was not measured: receipt and delivery were measured in the engine's "
        "front end",
    }
    if measured_in_engine_only(row):
        basis["engine"] = (
            "only in the engine core, from the queue to the last token, because the"
            " front end is not Python. The time before the queue and the delivery time are unknown"
        )
    rows = (
        ("Trace", row["trace_id"], "The OpenTelemetry trace of the request."),
        ("Outcome", _outcome(row), TERMS.get(row["outcome"], "")),
        ("TTFT", wording.seconds(row["ttft_s"]), TERMS["ttft_s"]),
        ("First content", wording.seconds(row["first_content_s"]), TERMS["first_content_s"]),
        ("TPOT", wording.seconds(row["tpot_s"]), TERMS["tpot_s"]),
        ("ITL max", wording.seconds(row["itl_max_s"]), TERMS["itl_max_s"]),
        ("E2E", wording.seconds(row["e2e_s"]), TERMS["e2e_s"]),
        (
            "Prompt",
            _tokens(row),
            "Number of prompt tokens, and how many of these were found in the prefix cache, or were"
            " computed and written to it.",
        ),
        (
            "Answer",
            _answer(row),
            "Number of output tokens, and how many of these are reasoning or tool calls.",
        ),
        (
            "Cost",
            _cost(row),
            "The request's share of the GPUs’ price, by the GPU time that it used.",
        ),
        (
            "GPU time",
            _billed(row),
            "Engine time billed to the request. Recomputed work counts as wasted.",
        ),
        ("Preemptions", wording.count(row["preemptions"]), TERMS["preempted"]),
        ("On arrival", _arrival(row), "The engine's state when the request arrived."),
        ("Model", row["model"], ""),
        ("LoRA", row["lora"], "The requested adapter."),
        ("Tenant", row["tenant"], ""),
        ("Route", row["route"], ""),
        ("Replica", row["replica"], ""),
        ("Region", row["region"], ""),
        ("Configuration", row["config"], "Fingerprint of the engine's arguments."),
        ("Measured", basis.get(row["basis"], row["basis"]), ""),
        (
            "Clock",
            _clock(row),
            "The sender’s clock was ahead of this machine’s; see tailspan doctor.",
        ),
    )
    return [(what, value, why) for what, value, why in rows if value and value != wording.UNKNOWN]


def measured_in_engine_only(row: Mapping[str, Any]) -> bool:
    """Whether only the engine core measured the request. The front end then reported nothing."""
    return row["basis"] == "engine" and row["frontend_s"] is None and row["queue_s"] is not None


def _clock(row: Mapping[str, Any]) -> str:
    ahead_s = row["clock_ahead_s"]
    return f"{wording.seconds(ahead_s)} ahead; corrected" if ahead_s else ""


def _outcome(row: Mapping[str, Any]) -> str:
    parts = [row["outcome"]]
    if row["http_status"] is not None:
        parts.append(f"HTTP {row['http_status']}")
    if row["error_type"]:
        parts.append(row["error_type"])
    return " · ".join(parts)


def _arrival(row: Mapping[str, Any]) -> str:
    counts = (
        (row["waiting_at_arrival"], "{} waiting", wording.count),
        (row["running_at_arrival"], "{} running", wording.count),
        (row["kv_usage_at_arrival"], "KV {} full", wording.percent),
    )
    return ", ".join(
        text.format(format_value(value))
        for value, text, format_value in counts
        if value is not None
    )


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


def _token_count(tokens: int | None) -> str:
    return "" if tokens is None else wording.counted(tokens, "token")


def _answer(row: Mapping[str, Any]) -> str:
    kinds = ((row["reasoning_tokens"], "reasoning"), (row["tool_call_tokens"], "in tool calls"))
    kinds_text = "".join(f", {wording.count(tokens)} {kind}" for tokens, kind in kinds if tokens)
    return f"{_token_count(row['output_tokens'])}{kinds_text}"


def _tokens(row: Mapping[str, Any]) -> str:
    cached = row["cached_tokens"]
    cache_text = "" if cached is None else f", {wording.count(cached)} cached"
    written = row.get("cache_write_tokens")
    cache_text += f", {wording.count(written)} written to the cache" if written else ""
    return (
        f"{_token_count(row['prompt_tokens'])}{cache_text}"
        if row["prompt_tokens"] is not None
        else ""
    )
