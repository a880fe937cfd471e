"""The definitions of the terms on the pages."""

import html
from typing import Final

TERMS: Final[dict[str, str]] = {
    "ttft_s": "Time to first token: from receipt to the first byte of the response. Responses"
    " that are not streamed are left out, because they arrive as a whole.",
    "first_content_s": "Time to first content: from receipt to the first text that is neither "
    "reasoning nor a tool call.",
    "itl_max_s": "Inter-token latency, longest: the longest gap between two tokens of a response.",
    "tpot_s": (
        "Time per output token: decode time divided by the number of tokens after the first one."
        " Undefined for a single token."
    ),
    "e2e_s": "End to end: from receipt to the last byte or the client's disconnect.",
    "queue_s": "Time in the engine's queue: from queued to first scheduled.",
    "frontend": "Receipt to queue: parsing, chat template, tokenisation.",
    "queue": "Waiting in the engine's queue for a slot in the batch, memory or the token budget.",
    "prefill": "First scheduled to first token: processing the prompt.",
    "decode": "First token to last token: generating the response.",
    "preempted": "Time in prefill and decode after an eviction: waiting again and recomputing.",
    "others": "Time in prefill and decode that other requests added to shared steps.",
    "stall": "Step time in prefill and decode that no scheduled work explains.",
    "delivery": "Last token to last byte: converting tokens to text, sending it to the client.",
    "unaccounted": "Part of the end-to-end time that the source did not split into phases.",
    "waiting": "Requests in the engine's queue.",
    "running": "Requests that the engine was processing.",
    "kv": "Used share of the KV cache: the GPU memory for the contexts of running requests.",
    "budget": "The share of requests that may miss the SLO over its period: 1 % at a target of "
    "99 %. At a burn rate of 1×, the budget lasts exactly as long as the period.",
    "burn": "How fast the error budget is spent. At 1× the budget lasts exactly as long as the "
    "SLO’s period, at 10× a tenth of the period.",
    "recomputed": "Engine time for work that was repeated after an eviction.",
    "idle": "Time in which an engine was up but executed no step.",
    "unbilled": "Busy time that is billed to no request, because the request has not ended or its"
    " step times were not reported. Negative if requests were billed more than their engine's"
    " busy time.",
    "loading": "Time from the start of a process until its engine was ready.",
    "wall": "An engine is billed while it loads and while it is up. It counts as up between two "
    "samples that are at most a minute apart.",
    "p50": "50 of 100 requests were faster.",
    "p95": "95 of 100 requests were faster.",
    "p99": "99 of 100 requests were faster.",
    "stop": "The model ended the response.",
    "length": "The response ended at its token limit.",
    "abort": "The client disconnected before the end of the response.",
    "error": "The server failed.",
    "rejected": "Refused (4xx or 5xx) before the engine received the request.",
}

LATENCY_NAMES: Final[dict[str, str]] = {
    "ttft_s": "TTFT",
    "itl_max_s": "ITL max",
    "tpot_s": "TPOT",
    "e2e_s": "E2E",
    "queue_s": "Queue",
    "first_content_s": "First content",
}


def term(key: str, shown: str) -> str:
    """A term as HTML, with its definition as a tooltip."""
    return f'<abbr title="{html.escape(TERMS[key])}">{html.escape(shown)}</abbr>'
