"""Divides the encoder inputs (images and audio) of a step among its requests."""

from typing import Any

from tailspan_vllm import guard


def encoder_ratios(scheduler: Any, output: Any) -> dict[str, float]:
    """Each request's share of the encoder's work, in proportion to the prompt tokens of its inputs.
    If these tokens are unknown, the shares are equal."""
    inputs = getattr(output, "scheduled_encoder_inputs", None)
    if not inputs:
        return {}
    try:
        tokens = {
            request_id: sum(
                scheduler.requests[request_id].mm_features[place].mm_position.length
                for place in places
            )
            for request_id, places in inputs.items()
        }
    except Exception:
        guard.note_failure("encoder")
        tokens = dict.fromkeys(inputs, 1)
    whole = sum(tokens.values())
    return {request_id: number / whole for request_id, number in tokens.items()} if whole else {}
