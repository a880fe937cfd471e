from functools import cache

import pytest

from benchmarks._diagnosis_by_group import (
    OTHER,
    QUIET,
    SAME,
    Everyone,
    asked_by_everyone,
    compared,
    table,
)
from benchmarks._diagnosis_draws import SINGLE

FAULTS = ("tenant_flood", "load_exceeds_capacity", "kv_cache_exhausted", "long_prompt_blocking")


@cache
def asked(cause: str) -> Everyone:
    return asked_by_everyone(3, 5, SINGLE, (cause,))


@pytest.mark.parametrize("cause", FAULTS)
def test_every_tenant_model_and_replica_gets_the_same_cause(cause: str) -> None:
    """Tenants that another tenant's flood slows down must not be advised to add replicas."""
    found = asked(cause)
    assert found.first == cause
    assert compared(found)[OTHER] == 0, found.answers
    assert compared(found)[SAME] >= len(found.answers) - 1


def test_a_group_that_a_local_fault_did_not_reach_has_no_incident() -> None:
    found = asked_by_everyone(0, 11, SINGLE, ("replica_imbalance",))
    assert found.first == "replica_imbalance"
    replicas = [first for label, _, first in found.answers if label == "replica"]
    assert "replica_imbalance" in replicas
    assert QUIET in replicas
    assert set(replicas) == {"replica_imbalance", QUIET}


def test_the_table_counts_by_label() -> None:
    lines = list(table([asked("tenant_flood")]))
    assert any(line.startswith("asked as every tenant: the first cause equals") for line in lines)
    assert "(100.0%)" in "".join(lines)
