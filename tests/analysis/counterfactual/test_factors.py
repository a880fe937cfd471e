from analysis.counterfactual.factors import Factor, FactorKind, factors_of
from diagnosis.explanation import Cause


def cause(cause_id: str, **where: str) -> Cause:
    return Cause(id=cause_id, share=1.0, evidence=(), levers=(), where=where)


def test_a_cause_at_one_engine_resets_this_engine_only() -> None:
    (factor,) = factors_of([cause("gpu_throttling", replica="r0", engine="1")])
    assert factor == Factor(FactorKind.PACE, replica="r0", engine=1)
    assert factor.is_of("r0", 1)
    assert not factor.is_of("r0", 0)
    assert not factor.is_of("r1", 1)


def test_a_cause_of_a_replica_resets_all_of_its_engines() -> None:
    (factor,) = factors_of([cause("gpu_throttling", replica="r0")])
    assert factor is not None
    assert [factor.is_of("r0", engine) for engine in (0, 1)] == [True, True]


def test_stalls_are_removed_from_all_engines() -> None:
    """Most slow requests may be at one replica although all replicas stall."""
    assert factors_of([cause("engine_stall", replica="r0", engine="1")]) == [
        Factor(FactorKind.STALLS)
    ]


def test_a_factor_contains_the_factors_that_it_resets() -> None:
    outgrown, outputs = Factor(FactorKind.OUTGROWN_BLOCKS), Factor(FactorKind.OUTPUTS)
    assert outgrown.contains(outputs)
    assert outgrown.contains(Factor(FactorKind.OUTPUTS, tenant="acme"))
    assert not outgrown.contains(Factor(FactorKind.STALLS))
    assert not outputs.contains(outgrown)
    assert outputs.contains(outputs)
