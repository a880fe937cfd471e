"""Describe a window's bottleneck in a sentence. Pure."""

from roofline.verdict import RooflineFinding, RooflineVerdict, Terms
from roofline.windows import RooflineWindow


def sentence(window: RooflineWindow) -> str:
    """A sentence with the window's bottleneck and its consequence."""
    if window.verdict is RooflineVerdict.IDLE:
        return _idle(window)
    terms = window.terms
    if window.verdict is None or terms is None:
        return "Unknown: the model's shape, the device's peaks or the step ledger is missing."
    needs = _memory_and_compute(terms)
    if window.verdict is RooflineVerdict.MEMORY_BOUND:
        if RooflineFinding.LOW_UTILISATION_LONG_STEPS in window.findings:
            return _low_utilisation(window, terms)
        return f"Memory-bound: {needs}. More requests per step cost little."
    if window.verdict is RooflineVerdict.COMPUTE_BOUND:
        return f"Compute-bound: {needs}. More requests per step make each step longer."
    return f"Overhead-bound: {needs}. The rest is CPU time, kernel launches or communication."


def findings(window: RooflineWindow) -> list[str]:
    """A sentence for each additional remark on a window."""
    found = []
    for finding in window.findings:
        if finding is RooflineFinding.BEYOND_THE_PEAK:
            found.append(
                "The result exceeds the device's peak: the reported shape, dtype or device is"
                " wrong."
            )
        elif finding is not RooflineFinding.LOW_UTILISATION_LONG_STEPS:
            found.append(_difference(window))
    return found


def _idle(window: RooflineWindow) -> str:
    busy = window.busy_s / window.seconds if window.busy_s is not None else None
    if window.sm_active_ratio is None:
        return f"Idle: the engine was in a step for {_percent(busy)} of the time."
    activity = f"multiprocessors active {_percent(window.sm_active_ratio)} of the time"
    if busy is not None and busy >= 0.5:
        return (
            f"Idle: {activity}, but the engine was in a step for {_percent(busy)} of the time: the"
            " GPU waits for the CPU or for another GPU, not for requests."
        )
    return f"Idle: {activity}."


def _low_utilisation(window: RooflineWindow, terms: Terms) -> str:
    active = window.tensor_active_ratio
    utilisation = active if active is not None else terms.mfu
    what = "matrix units active" if active is not None else "of the peak FLOP/s used"
    step_bytes = (window.bytes or 0.0) / window.steps if window.steps else 0.0
    return (
        f"Memory-bound, not idle: {_percent(utilisation)} {what} and steps of"
        f" {_ms(terms.step_s)} look like a GPU with spare capacity, but each step moves"
        f" {step_bytes / 1e9:.1f} GB ({_memory_and_compute(terms)}). More requests per step cost"
        " little. Faster arithmetic gains nothing. Moving fewer bytes helps: smaller weights or KV"
        " cache (fp8), shorter contexts, more GPUs."
    )


def _difference(window: RooflineWindow) -> str:
    above = (window.residual_ratio or 0.0) > 0
    modelled = window.modelled_bytes_per_s if above else window.least_bytes_per_s
    measured = window.measured_bytes_per_s
    if modelled is None or measured is None or window.residual_ratio is None:
        return ""
    side = "above the modelled maximum" if above else "below the modelled minimum"
    why = (
        "there are other transfers: another process, copies, or kernels that read data twice"
        if above
        else "the engine moves fewer bytes than its shape implies: the reported shape or dtype is"
        " wrong, or the GPUs do not belong to this engine"
    )
    return (
        f"Measured bandwidth ({measured / 1e9:.0f} GB/s) is {_percent(abs(window.residual_ratio))}"
        f" {side} ({modelled / 1e9:.0f} GB/s): {why}."
    )


def _memory_and_compute(terms: Terms) -> str:
    memory, compute = terms.memory_s, terms.compute_s
    return (
        f"a step of {_ms(terms.step_s)} needs {_ms(memory)} of memory time (MBU"
        f" {_percent(terms.mbu)}) and {_ms(compute)} of compute time (MFU {_percent(terms.mfu)})"
    )


def _ms(seconds: float | None) -> str:
    return "an unknown time" if seconds is None else f"{1e3 * seconds:.3g} ms"


def _percent(ratio: float | None) -> str:
    return "?" if ratio is None else f"{100 * ratio:.0f} %"
