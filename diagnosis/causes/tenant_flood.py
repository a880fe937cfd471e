"""One tenant sends many times its usual traffic, and the other tenants' requests wait."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.levers import rate_limit
from diagnosis.evidence.traffic_growth import first_rates, flooded
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import DiagnosisCase

ID = "tenant_flood"
SUMMARY = "one tenant sends many times its usual traffic, and the others wait behind it"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the delay that the growth of a single tenant's request rate causes."""
    rates = first_rates(case)
    tenant = rates.tenant
    if tenant is None or not flooded(case):
        return None
    weights = wait_weights(case, drivers.FLOOD)
    if not weights:
        return None
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
            Evidence(f"requests/s of {tenant.tenant}", tenant.before_per_s, tenant.now_per_s),
            Evidence(
                "requests/s of the other tenants",
                rates.before_per_s - tenant.before_per_s,
                rates.now_per_s - tenant.now_per_s,
            ),
            Evidence("requests waiting, mean", *case.mean("waiting")),
        ],
        levers=[
            rate_limit(tenant.tenant, tenant.before_per_s, tenant.now_per_s),
            Lever("give the other tenants priority", "--scheduling-policy priority"),
        ],
        where={"tenant": tenant.tenant},
    )
