"""Requests for rarely used adapters wait until their adapter replaces a loaded adapter."""

from diagnosis.claim import Claim, Evidence
from diagnosis.evidence import drivers
from diagnosis.evidence.held_requests import (
    WHILE_LOADING,
    adapters_are_loading,
    needs_adapter,
    waits_for_adapter,
)
from diagnosis.evidence.levers import lever
from diagnosis.growth.case import DiagnosisCase

ID = "lora_swap"
SUMMARY = "requests for rare adapters wait until their adapter has replaced another adapter"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the wait until a request's adapter is loaded."""
    adapter = waits_for_adapter(case)
    loading = adapters_are_loading(case)
    affected = needs_adapter(case) if loading else adapter
    if not affected.any() or not (loading or case.grown_s("queue_held") > 0):
        return None
    still = dict.fromkeys(WHILE_LOADING, 1.0 if loading else 0.0)
    return Claim(
        cause=ID,
        weights={
            **still,
            "queue_held": adapter * drivers.for_adapters(case).get(drivers.ADAPTERS, 1.0),
        },
        evidence=[
            Evidence("requests deferred, mean", *case.mean("deferred")),
            Evidence("adapters that requests wait for, mean", *case.mean("waiting_loras")),
            Evidence("adapters running, mean", *case.mean("running_loras")),
        ],
        levers=[
            lever(case, "keep more adapters on the GPU", "--max-loras", factor=2.0),
            lever(case, "keep more adapters in host memory", "--max-cpu-loras", factor=2.0),
        ],
    )
