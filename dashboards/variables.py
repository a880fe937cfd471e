"""The variables at the top of a dashboard."""

from typing import Final, NamedTuple

from exporters.definitions.engine_series import ENGINE_INFO
from exporters.definitions.gpu_series import LAST_SAMPLE as GPU_SAMPLE
from exporters.definitions.probe_series import RESULTS as PROBE_RESULTS
from exporters.definitions.series import REQUESTS, SLO_EVENTS, TENANT_REQUESTS


class Variable(NamedTuple):
    """A drop-down list with the values of a label."""

    label: str
    description: str
    query: str


SOURCE: Final = "source"
EXPLORER: Final = "explorer"
EXPLORER_URL: Final = "http://127.0.0.1:8501"

_REPLICAS: Final = "|".join((ENGINE_INFO.name, GPU_SAMPLE.name, REQUESTS.name))
"""Series with the label `replica`. Only the first has the label `region`. A replica without engine
samples is therefore listed if no region is selected."""

VARIABLES: Final = {
    "model": Variable("Model", "Served models.", f"label_values({REQUESTS.name}, model)"),
    "region": Variable(
        "Region",
        "Region of the servers. Only replicas of this region can be selected.",
        f'label_values({ENGINE_INFO.name}{{model=~"$model"}}, region)',
    ),
    "replica": Variable(
        "Replica",
        "Single servers. Panels of servers leave out requests without service.instance.id.",
        f'label_values({{__name__=~"{_REPLICAS}",model=~"$model",region=~"$region"}}, replica)',
    ),
    "tenant": Variable(
        "Tenant",
        "Tenant of the requests. Only panels by tenant use this variable.",
        f'label_values({TENANT_REQUESTS.name}{{model=~"$model"}}, tenant)',
    ),
    "prober_region": Variable(
        "Region", "Region of the prober.", f"label_values({PROBE_RESULTS.name}, region)"
    ),
    "endpoint": Variable(
        "Endpoint",
        "Probed endpoints.",
        f'label_values({PROBE_RESULTS.name}{{region=~"$prober_region"}}, endpoint)',
    ),
    "slo": Variable("Objective", "Objectives (SLOs).", f"label_values({SLO_EVENTS.name}, slo)"),
}
"""Variables by name. The panels show all values if the user selects none."""
