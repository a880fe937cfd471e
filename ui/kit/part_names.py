"""The name, colour and explanation of each part of a latency. Pure."""

from typing import Final

from ui.kit import colours

_PHASES: Final = {
    "frontend": ("frontend", colours.FRONTEND, "parsing, chat template, tokenising"),
    "handoff": (
        "frontend: next step",
        colours.FRONTEND,
        "waiting for the current step; the engine accepts new requests between steps",
    ),
    "queue_seats": ("queued: batch full", colours.QUEUE, "waiting for a slot in the batch"),
    "queue_kv": ("queued: KV cache full", colours.QUEUE, "waiting for blocks of the KV cache"),
    "queue_budget": (
        "queued: batch step full",
        colours.QUEUE,
        "waiting, because earlier requests used the token budget of each step",
    ),
    "queue_held": (
        "queued: held back",
        colours.QUEUE,
        "waiting for its adapter, cache or grammar",
    ),
    "queue_kv_load": (
        "queued: KV cache loading",
        colours.QUEUE,
        "waiting for its KV cache, which is loaded from outside the engine",
    ),
    "queue_grammar": (
        "queued: grammar",
        colours.QUEUE,
        "waiting until the grammar of its structured output is compiled",
    ),
    "queue_adapter": (
        "queued: adapter",
        colours.QUEUE,
        "waiting for a slot for its adapter, because other adapters use all slots",
    ),
    "queue_step": ("queued: next step", colours.QUEUE, "waiting for the current step to end"),
    "queue_unsplit": ("queue", colours.QUEUE, "waiting; the source does not report the reason"),
    "delivery": ("delivery", colours.DELIVERY, "from the last token to the last byte"),
    "unsplit": ("not split", colours.UNACCOUNTED, "the source does not report its parts"),
}

_INSIDE: Final = {
    "own": ("own work", None, "time that the request would have taken without other requests"),
    "others_prefill": (
        "others’ prompts",
        colours.OTHERS,
        "prompts of other requests in the same steps",
    ),
    "others_decode": (
        "others’ tokens",
        colours.OTHERS,
        "output tokens of other requests in the same steps",
    ),
    "preempted": (
        "evicted",
        colours.PREEMPTED,
        "evicted because memory was full, then computed again",
    ),
    "stall": ("stall", colours.STALL, "step time that no scheduled work explains"),
    "unsplit": ("not split", None, "the source does not report its parts"),
}


def part_name(part: str) -> tuple[str, str, str]:
    """A part's name, the colour of its phase, and its explanation."""
    if part in _PHASES:
        return _PHASES[part]
    phase, _, inside = part.partition("_")
    name, colour, meaning = _INSIDE[inside]
    own = {"prefill": colours.PREFILL}.get(phase, colours.DECODE)
    return f"{phase}: {name}", colour or own, meaning
