import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.compare.parts import SideComparison
from tests.analysis.compare.observed import observed


@given(
    seed=st.integers(0, 10**6),
    factor=st.floats(0.5, 2.0),
    prompts=st.floats(0.5, 2.0),
    load=st.floats(2.0, 14.0),
    q=st.sampled_from([0.5, 0.95, 0.99]),
)
def test_mix_load_and_change_sum_to_the_difference(
    seed: int, factor: float, prompts: float, load: float, q: float
) -> None:
    found = SideComparison(observed(300, seed), observed(300, seed + 1, factor, prompts, load))
    if not found.comparable.any():
        return
    parts = found.parts(q)
    total_s = parts.after_s - parts.before_s
    assert parts.mix_s + parts.load_s + parts.change_s == pytest.approx(total_s, abs=1e-12)


def test_each_cause_is_found_in_its_own_part() -> None:
    before = observed(4000, 1)
    for name, after in {
        "mix": observed(4000, 2, prompts=1.4),
        "load": observed(4000, 2, load=12.0),
        "change": observed(4000, 2, factor=1.2),
    }.items():
        parts = SideComparison(before, after).parts(0.5)
        total_s = parts.after_s - parts.before_s
        for part in ("mix", "load", "change"):
            share = getattr(parts, f"{part}_s") / total_s
            assert share == pytest.approx(1.0 if part == name else 0.0, abs=0.1), (name, part)


def test_small_tenants_are_merged_and_a_new_one_is_separate() -> None:
    before, after = observed(1000, 1, groups=2), observed(1000, 2, groups=2)
    before.group[:40] = np.arange(40) % 4 + 10  # four tenants with ten requests each
    after.group[:20] = 11
    after.group[20:60] = 99
    found = SideComparison(before, after)
    assert found.comparable[:20].mean() > 0.8
    assert not found.comparable[20:60].any()


def test_a_new_tenant_is_not_compared_and_belongs_to_the_mix() -> None:
    before, after = observed(1000, 1, groups=2), observed(1000, 2, groups=4)
    after.value_s[after.group >= 2] += 1.0
    found = SideComparison(before, after)
    assert not found.comparable[after.group >= 2].any()
    parts = found.parts(0.95)
    assert parts.uncompared_s > 0.9
    assert parts.mix_s == pytest.approx(parts.after_s - parts.before_s, rel=0.1)
    assert abs(parts.change_s) < 0.005


def test_a_draw_without_a_group_leaves_out_the_group() -> None:
    """If the requests of a tenant arrive in few blocks of time, some draws contain none of them."""
    before, after = observed(1000, 1, groups=2), observed(1000, 2, groups=2)
    found = SideComparison(before, after)
    drawn = found.resampled(np.flatnonzero(before.group == 0), np.flatnonzero(found.comparable))
    assert set(drawn.compared.group.tolist()) == {0}
    assert len(drawn.before_s) == drawn.compared.value_s.size
    nothing = found.resampled(
        np.flatnonzero(before.group == 0),
        np.flatnonzero(found.comparable & (after.group == 1)),
    )
    assert np.isnan(nothing.log_ratio(0.5, 0.0))
