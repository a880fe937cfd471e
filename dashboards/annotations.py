"""The marks for deploys and incidents on all panels.

Grafana draws a mark (an annotation) for each series of a query's result while its value is above 0.
"""

from typing import Final, NamedTuple

from alerts import vocabulary
from dashboards.panels import Board
from exporters.definitions.engine_series import ENGINE_INFO

SHOWN: Final = "5m"
"""How long a mark lasts. On a dashboard of 30 days, Grafana evaluates the query about every 4 min.
It would miss shorter marks."""
LOOKBACK: Final = "10m"
"""A restart with the same configuration gets no mark if it takes less than this time. vLLM waits at
most 600 s until an engine is ready (VLLM_ENGINE_READY_TIMEOUT_S)."""


class Annotation(NamedTuple):
    """A kind of mark. Grafana inserts a series' labels in the templates `title` and `text`."""

    name: str
    expr: str
    title: str
    text: str
    tags: tuple[str, ...]
    colour: str


def annotations(board: Board) -> tuple[Annotation, ...]:
    """The kinds of marks for the servers and objectives that the user selects on the dashboard."""
    selected = [f'{name}=~"${name}"' for name in board.variables if name in ENGINE_INFO.labels]
    slo = f',slo=~"${vocabulary.SLO}"' if vocabulary.SLO in board.variables else ""
    return (
        Annotation(
            "Deploys",
            # If an engine is only scraped, its `config` is empty. The version of an engine arrives
            # up to 30 s after its configuration.
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
    """A query for the configurations and versions that run now, but did not run `SHOWN` ago.

    The first configuration of a new replica counts as new. The query has no result if Tailspan
    started less than `SHOWN` ago.
    """
    where = f"{ENGINE_INFO.name}{{{servers}}}"
    by = "by (replica, config, version)"
    before = f"max {by} (last_over_time({where}[{LOOKBACK}] offset {SHOWN}))"
    known = f'{ENGINE_INFO.name}{{version!=""}}'
    watched = f"count(last_over_time({known}[{LOOKBACK}] offset {SHOWN}))"
    return f"max {by} ({where}) unless {before} and on () {watched}"
