from analysis.counterfactual.factors import Factor, FactorKind, factors_of
from diagnosis.explanation import Cause


def cause(cause_id: str, **where: str) -> Cause:
    return Cause(id=cause_id, share=1.0, evidence=(), levers=(), where=where)


def test_a_factor_has_the_place_of_its_cause_but_stalls_are_removed_everywhere() -> None:
    engine, replica, stalls = factors_of(
        [
            cause("gpu_throttling", replica="r0", engine="1"),
            cause("gpu_throttling", replica="r0"),
            cause("engine_stall", replica="r0", engine="1"),
        ]
    )
    assert engine == Factor(FactorKind.PACE, replica="r0", engine=1)
    assert replica is not None
    places = (("r0", 1), ("r0", 0), ("r1", 1))
    assert [engine.is_of(*each) for each in places] == [True, False, False]
    assert [replica.is_of(*each) for each in places] == [True, True, False]
    assert stalls == Factor(FactorKind.STALLS)


def test_a_factor_contains_the_factors_that_it_resets() -> None:
    outgrown, outputs = Factor(FactorKind.OUTGROWN_BLOCKS), Factor(FactorKind.OUTPUTS)
    assert outgrown.contains(outputs)
    assert outgrown.contains(Factor(FactorKind.OUTPUTS, tenant="acme"))
    assert not outgrown.contains(Factor(FactorKind.STALLS))
    assert not outputs.contains(outgrown)
    assert outputs.contains(outputs)
