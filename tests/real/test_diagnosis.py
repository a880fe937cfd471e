import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rig.faults.catalogue import FAULTS
from rig.faults.evaluation import NO_INCIDENT, ExplanationResult, evaluate_explanation
from rig.faults.recording import record
from rig.faults.traffic import PlannedTraffic

pytestmark = [pytest.mark.real, pytest.mark.alone, pytest.mark.timeout(600)]

CAUSES = ("longer_outputs", "long_prompt_blocking")
USUAL = PlannedTraffic(rate_per_s=16.0, output_tokens=(10, 22))
"""Many small requests, because a range is short and only a tenth of its requests are the tail."""


@pytest.fixture(scope="module")
def explained(
    installed: None, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, ExplanationResult]:
    """Record each fault on one server after usual load, and return the diagnoses."""
    folder: Path = tmp_path_factory.mktemp("faults")
    # The severity is twice the one at which a fault is visible, because each fault must act several
    # times in 15 s.
    faults = [FAULTS[cause](random.Random(cause), 2.0, USUAL) for cause in CAUSES]
    cases = record(
        faults, folder, seed=0, severity=2.0, before_s=15.0, during_s=15.0, log_line=lambda _: None
    )
    with ThreadPoolExecutor() as pool:
        found = pool.map(evaluate_explanation, cases)
        return {case.name: result for case, result in zip(cases, found, strict=True)}


@pytest.mark.parametrize("cause", CAUSES)
def test_the_fault_is_named_first(explained: dict[str, ExplanationResult], cause: str) -> None:
    found = explained[cause]
    assert found.verdict != NO_INCIDENT, found
    assert found.first == cause, found
    assert found.share is not None
    assert found.share > 0, found
