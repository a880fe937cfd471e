"""The terms on the pages, each with its start, its end and its unit."""

import html
from typing import Final

TERMS: Final[dict[str, str]] = {
    "ttft_s": "Time to first token: from the request's receipt to the first byte of the answer. "
    "An answer sent whole has none apart from its end, and is left out here.",
    "itl_max_s": "Inter-token latency, longest: the longest gap between two tokens of an answer.",
    "tpot_s": (
        "Time per output token: decode time divided by the tokens after the first; "
        "undefined for an answer of one token."
    ),
    "e2e_s": "End to end: from the request's receipt to the last byte, or the client's leaving.",
    "queue_s": "Time in the engine's waiting line: from queued to first scheduled.",
    "frontend": "Receipt to queue: parsing, chat template, tokenisation.",
    "queue": "Waiting in the engine's line for a seat, memory or the step's token budget.",
    "prefill": "First scheduled to first token: reading the prompt.",
    "decode": "First token to last token: writing the answer.",
    "preempted": "Inside prefill and decode: evicted, waiting again, recomputing.",
    "others": "Inside prefill and decode: what others' work added to shared steps.",
    "stall": "Inside prefill and decode: step time that no scheduled work explains.",
    "delivery": "Last token to last byte: turning tokens into text, writing it to the client.",
    "unaccounted": "Part of the end-to-end time that the source of this row did not split.",
    "waiting": "Requests in the engine's waiting line.",
    "running": "Requests the engine was working on.",
    "kv": "Share of the KV cache, the GPU memory that holds the contexts, in use.",
    "budget": "The share of requests that may miss the SLO over its period: 1 % at a target of "
    "99 %. At a burn rate of 1× it lasts exactly as long as the period.",
    "burn": "How fast the error budget is spent: at 1× it lasts exactly as long as the SLO’s "
    "period, at 10× a tenth of that.",
    "recomputed": "Engine time that went into computing again what an eviction threw away.",
    "idle": "Time in which an engine was up and between steps: paid for, and used for nothing.",
    "unbilled": "Busy time that no request pays for: of requests that have not ended, or whose "
    "account was lost. Below zero where requests were billed more time than their engine reports "
    "busy.",
    "loading": "Time from the start of a process until its engine was ready: paid for, and serving "
    "no request yet.",
    "wall": "An engine is billed while it is up: between two of its samples at most a minute "
    "apart, and while it loads.",
    "p50": "Half of the requests were faster.",
    "p95": "95 of 100 requests were faster.",
    "p99": "99 of 100 requests were faster.",
    "stop": "The answer ended by itself.",
    "length": "The answer ended at its token limit.",
    "abort": "The client left before the end.",
    "error": "The server failed.",
    "rejected": "Refused (4xx or 5xx) before the engine saw it.",
}

LATENCY_NAMES: Final[dict[str, str]] = {
    "ttft_s": "TTFT",
    "itl_max_s": "ITL max",
    "tpot_s": "TPOT",
    "e2e_s": "E2E",
    "queue_s": "Queue",
}
"""The latencies that a reader can choose, in the order offered."""


def term(key: str, shown: str) -> str:
    """Return a word with its definition as a tooltip."""
    return f'<abbr title="{html.escape(TERMS[key])}">{html.escape(shown)}</abbr>'
