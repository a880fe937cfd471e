from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.verdict import (
    RooflineFinding,
    RooflineVerdict,
    Terms,
    findings_of,
    residual_of,
    verdict_of,
)


def terms(step_s: float, memory_s: float | None, compute_s: float | None) -> Terms:
    return Terms(step_s=step_s, memory_s=memory_s, compute_s=compute_s)


@pytest.mark.parametrize(
    ("given", "sm_active", "busy", "verdict"),
    [
        (terms(0.016, 0.015, 0.001), 0.9, 1.0, RooflineVerdict.MEMORY_BOUND),
        (terms(0.30, 0.020, 0.26), 0.9, 1.0, RooflineVerdict.COMPUTE_BOUND),
        (terms(0.031, 0.015, 0.001), 0.9, 1.0, RooflineVerdict.OVERHEAD_BOUND),
        (terms(0.030, 0.015, 0.015), 0.9, 1.0, RooflineVerdict.MEMORY_BOUND),
        (terms(0.016, 0.015, 0.001), 0.19, 1.0, RooflineVerdict.IDLE),
        (terms(0.016, 0.015, 0.001), 0.2, 0.1, RooflineVerdict.MEMORY_BOUND),
        (terms(0.016, 0.015, 0.001), None, 0.1, RooflineVerdict.IDLE),
        (terms(0.016, 0.015, 0.001), None, None, RooflineVerdict.MEMORY_BOUND),
        (None, 0.1, None, RooflineVerdict.IDLE),
        (None, 0.9, None, None),
        (terms(0.016, None, 0.001), 0.9, 1.0, None),
        (terms(0.016, 0.015, None), 0.9, 1.0, None),
    ],
)
def test_the_verdict(
    given: Terms | None,
    sm_active: float | None,
    busy: float | None,
    verdict: RooflineVerdict | None,
) -> None:
    assert verdict_of(given, sm_active, busy) is verdict


@given(
    step_s=st.floats(1e-4, 10),
    memory=st.floats(0, 1),
    compute=st.floats(0, 1),
    sm=st.none() | st.floats(0, 1),
)
def test_the_verdict_on_known_terms_agrees_with_their_shares(
    step_s: float, memory: float, compute: float, sm: float | None
) -> None:
    given = terms(step_s, memory * step_s, compute * step_s)
    verdict = verdict_of(given, sm)
    assert verdict is not None
    mbu, mfu = given.mbu, given.mfu
    assert mbu is not None
    assert mfu is not None
    if verdict is RooflineVerdict.MEMORY_BOUND:
        assert mbu >= max(mfu, 0.499)
    elif verdict is RooflineVerdict.COMPUTE_BOUND:
        assert mfu >= max(mbu, 0.499)
    elif verdict is RooflineVerdict.OVERHEAD_BOUND:
        assert max(mbu, mfu) < 0.501


def found(**changes: Any) -> tuple[RooflineFinding, ...]:
    """Return the findings of a memory-bound window, with these changes."""
    return findings_of(
        **{
            "verdict": RooflineVerdict.MEMORY_BOUND,
            "terms": terms(0.016, 0.015, 0.008),
            "tensor_active_ratio": None,
            "residual": None,
            "of_the_peak": 0.9,
            **changes,
        }
    )


def test_low_utilisation_with_long_steps_is_the_trap() -> None:
    trap = (RooflineFinding.LOW_UTILISATION_LONG_STEPS,)
    assert found() == ()
    assert found(tensor_active_ratio=0.05) == trap
    assert found(terms=terms(0.016, 0.015, 0.001)) == trap
    assert found(terms=terms(0.002, 0.0015, 0.0001)) == ()
    assert found(tensor_active_ratio=0.05, verdict=RooflineVerdict.OVERHEAD_BOUND) == ()


def test_a_quarter_between_model_and_measurement_is_a_finding() -> None:
    assert found(residual=0.24) == ()
    assert found(residual=0.26) == (RooflineFinding.MEASURED_ABOVE_MODEL,)
    assert found(residual=-0.26) == (RooflineFinding.MEASURED_BELOW_MODEL,)
    assert found(residual=5.0, of_the_peak=0.01) == ()
    assert found(residual=5.0, of_the_peak=None) == (RooflineFinding.MEASURED_ABOVE_MODEL,)


def test_more_than_the_device_can_is_a_finding() -> None:
    assert found(terms=terms(0.010, 0.015, 0.008)) == (RooflineFinding.BEYOND_THE_PEAK,)


def test_the_residual_is_relative_to_the_nearer_end_of_the_model() -> None:
    """The model predicts a range: the share of activations that stays on the chip is unknown."""
    assert residual_of(1.0e12, 2.0e12, 2.5e12) == pytest.approx(0.25)
    assert residual_of(1.0e12, 2.0e12, 0.7e12) == pytest.approx(-0.3)
    assert residual_of(1.0e12, 2.0e12, 1.1e12) == 0.0


def test_unknown_values_have_no_residual() -> None:
    assert residual_of(None, None, 1.0) is None
    assert residual_of(1.0, 1.0, None) is None
    assert residual_of(0.0, 0.0, 1.0) is None
