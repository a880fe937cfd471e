"""The result of a probe as a line."""

from cli.render.text import label, seconds, usd
from telemetry.probes import Probe, ProbeOutcome
from telemetry.time_text import moment

_STEPS = (
    ("late", "late_s"),
    ("dns", "dns_s"),
    ("connect", "connect_s"),
    ("tls", "tls_s"),
    ("first event", "first_event_s"),
    ("first reasoning", "first_reasoning_s"),
    ("first content", "first_content_s"),
    ("longest gap", "itl_max_s"),
    ("e2e", "e2e_s"),
    ("server queue", "server_queue_s"),
    ("server prefill", "server_prefill_s"),
    ("server decode", "server_decode_s"),
)


def text_line(result: Probe) -> str:
    """A line with the instant, the outcome, and the latencies or the failure."""
    start = f"{moment(result.at_unix_ns)}  {label(result.endpoint)}  {result.outcome.value}"
    if result.outcome is ProbeOutcome.CACHED:
        start += f" by {label(result.cache)}, not the model"
    steps = [
        f"{name} {seconds(value)}"
        for name, field in _STEPS
        if (value := getattr(result, field)) is not None
    ]
    if result.error is not None:
        return f"{start}: {result.error}" + (f" ({', '.join(steps)})" if steps else "")
    if result.output_tokens is not None:
        steps.append(f"{result.output_tokens:,} tokens")
    if result.cost_usd is not None:
        steps.append(usd(result.cost_usd))
    return f"{start}: {', '.join(steps)}"
