"""A window's verdict as a sentence, with both terms in it. Pure.

Every sentence gives what the step took and what memory and arithmetic ask of it at their best,
so that a reader can disagree.
"""

from roofline.verdict import Finding, Terms, Verdict
from roofline.windows import Window


def sentence(window: Window) -> str:
    """What bound the window, and what follows from that."""
    if window.verdict is Verdict.IDLE:
        return _idle(window)
    terms = window.terms
    if window.verdict is None or terms is None:
        return "Not known: the model's shape, the device's peaks or the step ledger is not told."
    told = _terms(terms)
    if window.verdict is Verdict.MEMORY_BOUND:
        if Finding.LOW_UTILISATION_LONG_STEPS in window.findings:
            return _trap(window, terms)
        return f"Bound by memory: {told}. More requests a step cost little."
    if window.verdict is Verdict.COMPUTE_BOUND:
        return f"Bound by arithmetic: {told}. More requests a step make each step longer."
    return (
        f"Bound by neither memory nor arithmetic: {told}. The rest is CPU, launches of kernels"
        " or communication."
    )


def findings(window: Window) -> list[str]:
    """What else is to be said, a sentence each."""
    told = []
    for finding in window.findings:
        if finding is Finding.BEYOND_THE_PEAK:
            told.append(
                "More than the device can: the model's shape, its dtype or the device is not"
                " what was told."
            )
        elif finding is not Finding.LOW_UTILISATION_LONG_STEPS:
            told.append(_differs(window))
    return told


def _idle(window: Window) -> str:
    busy = window.busy_s / window.seconds if window.busy_s is not None else None
    if window.sm_active_ratio is None:
        return f"Idle: the engine was in a step for {_percent(busy)} of the time."
    activity = f"multiprocessors at work {_percent(window.sm_active_ratio)} of the time"
    if busy is not None and busy >= 0.5:
        return (
            f"Idle: {activity}, and yet the engine was in a step for {_percent(busy)} of it:"
            " the GPU waits for the CPU or for another GPU, not for requests."
        )
    return f"Idle: {activity}."


def _trap(window: Window, terms: Terms) -> str:
    active = window.tensor_active_ratio
    measured = active is not None
    utilisation = active if active is not None else terms.mfu
    what = "matrix units at work" if measured else "of the peak arithmetic used"
    step_bytes = (window.bytes or 0.0) / window.steps if window.steps else 0.0
    return (
        f"Bound by memory, not idle: {_percent(utilisation)} {what} and steps of"
        f" {_ms(terms.step_s)} look like a GPU with room to spare, but each step has to move"
        f" {step_bytes / 1e9:.1f} GB ({_terms(terms)}). More requests a step cost little; faster"
        " arithmetic gains nothing; fewer bytes do: smaller weights or KV cache (fp8), shorter"
        " contexts, more GPUs."
    )


def _differs(window: Window) -> str:
    above = (window.residual_ratio or 0.0) > 0
    modelled = window.modelled_bytes_per_s if above else window.least_bytes_per_s
    measured = window.measured_bytes_per_s
    if modelled is None or measured is None or window.residual_ratio is None:
        return ""
    side = "above the most" if above else "below the least"
    why = (
        "something else moves bytes: another process, copies, kernels that read twice"
        if above
        else "the engine moves less than its shape says: the shape or the dtype is not what was"
        " told, or the GPUs are not this engine's"
    )
    return (
        f"Measured bandwidth ({measured / 1e9:.0f} GB/s) is {_percent(abs(window.residual_ratio))}"
        f" {side} that is modelled ({modelled / 1e9:.0f} GB/s): {why}."
    )


def _terms(terms: Terms) -> str:
    memory, compute = terms.memory_s, terms.compute_s
    return (
        f"a step of {_ms(terms.step_s)} asks {_ms(memory)} of memory (MBU {_percent(terms.mbu)})"
        f" and {_ms(compute)} of arithmetic (MFU {_percent(terms.mfu)})"
    )


def _ms(seconds: float | None) -> str:
    return "an unknown time" if seconds is None else f"{1e3 * seconds:.3g} ms"


def _percent(ratio: float | None) -> str:
    return "?" if ratio is None else f"{100 * ratio:.0f} %"
