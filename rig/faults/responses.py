"""Faults of the responses: longer responses, and clients that read slowly."""

import random
from dataclasses import replace

from rig.faults.fault import ServerFault
from rig.faults.traffic import PlannedTraffic


def longer_outputs(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Make every tenant's responses longer."""
    times = 1.0 + draw.uniform(1.2, 1.8) * severity
    low, high = usual.output_tokens
    return ServerFault(
        cause="longer_outputs",
        metric="e2e",
        usual=usual,
        during=replace(usual, output_tokens=(int(low * times), int(high * times))),
        notes={"tokens_ratio": times},
    )


def network_or_client(draw: random.Random, severity: float, usual: PlannedTraffic) -> ServerFault:
    """Send large responses to a tenant whose clients read slowly."""
    usual = replace(usual, rate_per_s=usual.rate_per_s * 0.8, tenants=usual.tenants[1:])
    reports = replace(
        usual,
        rate_per_s=draw.uniform(0.7, 0.9),
        output_tokens=(100, 120),
        tenants=("ada",),
        body={"logprobs": 100},
    )
    bytes_per_s = draw.uniform(60_000, 80_000) / severity
    return ServerFault(
        cause="network_or_client",
        metric="e2e",
        # The kernel and the server buffer up to 200 kB. With shorter responses, the server would
        # not have to wait for the client.
        arguments=("--max-num-seqs", "32", "--max-logprobs", "100"),
        usual=replace(usual, extra=(reports,)),
        during=replace(usual, extra=(replace(reports, read_bytes_per_s=bytes_per_s),)),
        notes={"read_bytes_per_s": bytes_per_s},
    )
