"""The marks for deploys and incidents on all panels of a dashboard, each from a Prometheus query.

Grafana draws a mark for each series and for each time in which the query has a value above 0.
"""

from typing import Final, NamedTuple

from alerts import vocabulary
from dashboards.panels import Board
from exporters.definitions.engine_series import ENGINE_INFO

SHOWN: Final = "5m"
"""How long a deploy is marked. A query over 30 days has a step of about 4 min, so it would miss a
shorter mark."""
LOOKED_BACK: Final = "10m"
"""A server that returns with its old configuration within this time is not marked. vLLM itself
waits for at most 600 s until an engine is ready (VLLM_ENGINE_READY_TIMEOUT_S)."""


class Annotation(NamedTuple):
    """A kind of mark. `title` and `text` are Grafana's templates with the labels of a series."""

    name: str
    expr: str
    title: str
    text: str
    tags: tuple[str, ...]
    """Labels whose values are the tags of a mark."""
    colour: str


def annotations(board: Board) -> tuple[Annotation, ...]:
    """Return the marks of a dashboard, for the servers or objectives that its variables select."""
    selected = [f'{name}=~"${name}"' for name in board.variables if name in ENGINE_INFO.labels]
    slo = f',slo=~"${vocabulary.SLO}"' if vocabulary.SLO in board.variables else ""
    return (
        Annotation(
            "Deploys",
            # Scraped engines have no configuration. The version arrives up to 30 s later.
            _new_configurations(",".join([*selected, 'config!=""', 'version!=""'])),
            "Deploy",
            "{{replica}} began to run vLLM {{version}} with configuration {{config}}",
            ("replica", "config", "version"),
            "blue",
        ),
        Annotation(
            "Incidents",
            "max by (slo, severity) "
            f'(ALERTS{{alertname="{vocabulary.ALERT_BURNING}",alertstate="firing"{slo}}})',
            "Incident of {{slo}}",
            "The error budget of {{slo}} burns too fast ({{severity}})",
            ("slo", "severity"),
            "red",
        ),
    )


def _new_configurations(servers: str) -> str:
    """Return a query for configurations and versions that servers began to run less than `SHOWN`
    ago.

    A new replica is included. When Tailspan itself starts, no configuration counts as new.
    """
    where = f"{ENGINE_INFO.name}{{{servers}}}"
    by = "by (replica, config, version)"
    before = f"max {by} (last_over_time({where}[{LOOKED_BACK}] offset {SHOWN}))"
    known = f'{ENGINE_INFO.name}{{version!=""}}'
    watched = f"count(last_over_time({known}[{LOOKED_BACK}] offset {SHOWN}))"
    return f"max {by} ({where}) unless {before} and on () {watched}"
