"""What the reader chooses at the top of a page."""

from typing import Final, NamedTuple

from exporters.definitions.engine_series import ENGINE_INFO
from exporters.definitions.series import REQUESTS, SLO_EVENTS, TENANT_REQUESTS


class Variable(NamedTuple):
    """A choice among the values of a label."""

    label: str
    description: str
    query: str


SOURCE: Final = "source"
"""Which Prometheus."""
EXPLORER: Final = "explorer"
"""Where Tailspan's own pages are: links lead there."""
EXPLORER_URL: Final = "http://127.0.0.1:8501"

_ENGINES: Final = f'{ENGINE_INFO.name}{{model=~"$model",region=~"$region"}}'

VARIABLES: Final = {
    "model": Variable("Model", "Served models.", f"label_values({REQUESTS.name}, model)"),
    "region": Variable(
        "Region",
        "Where servers are; narrows the replicas.",
        f'label_values({ENGINE_INFO.name}{{model=~"$model"}}, region)',
    ),
    "replica": Variable("Replica", "Single servers.", f"label_values({_ENGINES}, replica)"),
    "tenant": Variable(
        "Tenant",
        "Who asked. Only panels that are by tenant heed it.",
        f'label_values({TENANT_REQUESTS.name}{{model=~"$model"}}, tenant)',
    ),
    "slo": Variable("Objective", "Promises.", f"label_values({SLO_EVENTS.name}, slo)"),
}
"""By name. A reader who chooses nothing sees all."""
