"""The marks for deploys and incidents on all panels of a dashboard.

Each kind of mark has a Prometheus query. Grafana draws a mark for each series of the result while
the value is above 0. Grafana calls a mark an annotation.
"""

from typing import Final, NamedTuple

from alerts import vocabulary
from dashboards.panels import Board
from exporters.definitions.engine_series import ENGINE_INFO

SHOWN: Final = "5m"
"""How long the query for deploys has a value after a deploy. Grafana shows a mark for this time. On
a dashboard of 30 days, Grafana evaluates the query about every 4 min, so it would miss a mark that
is shorter than 4 min."""
LOOKBACK: Final = "10m"
"""A server that restarts with the same configuration within this time gets no mark. A restart takes
at most this time: vLLM itself waits at most 600 s until an engine is ready
(VLLM_ENGINE_READY_TIMEOUT_S)."""


class Annotation(NamedTuple):
    """A kind of mark. Grafana inserts a series' labels in the templates `title` and `text`."""

    name: str
    expr: str
    title: str
    text: str
    tags: tuple[str, ...]
    colour: str


def annotations(board: Board) -> tuple[Annotation, ...]:
    """Return the kinds of marks. Their queries use the dashboard's variables, which select servers
    and objectives."""
    selected = [f'{name}=~"${name}"' for name in board.variables if name in ENGINE_INFO.labels]
    slo = f',slo=~"${vocabulary.SLO}"' if vocabulary.SLO in board.variables else ""
    return (
        Annotation(
            "Deploys",
            # Select only series with both labels. Engines that are only scraped have no `config`,
            # and an engine's version arrives up to 30 s after its configuration.
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
    """Return a query for the configurations and versions that are new in the last `SHOWN`.

    The first configuration of a new replica counts as new. The query has no result if Tailspan
    started less than `SHOWN` ago.
    """
    where = f"{ENGINE_INFO.name}{{{servers}}}"
    by = "by (replica, config, version)"
    before = f"max {by} (last_over_time({where}[{LOOKBACK}] offset {SHOWN}))"
    known = f'{ENGINE_INFO.name}{{version!=""}}'
    watched = f"count(last_over_time({known}[{LOOKBACK}] offset {SHOWN}))"
    return f"max {by} ({where}) unless {before} and on () {watched}"
