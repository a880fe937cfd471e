import pyarrow as pa
import pytest

from diagnosis.inputs.arrow import samples_of
from diagnosis.inputs.servers import Servers
from diagnosis.question import Metric
from tests.diagnosis.making import (
    asked,
    evidence,
    first_cause,
    sampled_each_second,
    shares,
    slower_where,
)


def ranks(*active_now: float) -> Servers:
    """Return GPU samples of both replicas; in the window, r0's GPUs have these activities."""
    each = [
        sampled_each_second(
            {"r0": {"sm_active_ratio": active}},
            {"gpu": str(gpu), "sm_active_ratio": 0.8, "sm_clock_hz": 1.98e9},
        )
        for gpu, active in enumerate(active_now)
    ]
    return Servers(gpus=samples_of(pa.concat_tables(each)))


def test_a_gpu_that_differs_from_its_peers_slows_its_replica() -> None:
    servers = ranks(0.4, 0.4, 0.9, 0.4)
    first = first_cause(asked(slower_where(("r0",), 2.0), Metric.TPOT, servers), "slow_rank", 0.9)
    assert first.where == {"replica": "r0", "gpu": "2"}
    assert evidence(first, "SM activity of GPU 2") == pytest.approx((0.0, 1.25))
    assert evidence(first, "SM clock") == pytest.approx((1.98e9, 1.98e9))
    assert any("nvlink" in lever.action for lever in first.levers)


@pytest.mark.parametrize("active", [(0.4, 0.4, 0.4, 0.4), (0.4,)])
def test_gpus_that_are_slow_together_have_no_slow_rank(active: tuple[float, ...]) -> None:
    found = asked(slower_where(("r0",), 2.0), Metric.TPOT, ranks(*active))
    assert "slow_rank" not in shares(found)


def test_a_slow_rank_is_not_blamed_for_another_replica() -> None:
    found = asked(slower_where(("r1",), 2.0), Metric.TPOT, ranks(0.4, 0.4, 0.9, 0.4))
    assert "slow_rank" not in shares(found)
