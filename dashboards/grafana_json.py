"""Generate Grafana's JSON from boards, with Grafana's own typed builders."""

import json
from typing import Any, Final
from urllib.parse import quote

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.annotations import Annotation, annotations
from dashboards.panels import Board, GrafanaUnit, Panel, PanelKind, PanelQuery
from dashboards.variables import EXPLORER, EXPLORER_URL, SOURCE, VARIABLES

TAG: Final = "tailspan"
_HEIGHT: Final = 8
_NUMBER_HEIGHT: Final = 5
_TIME: Final = "from=${__from:date:seconds}&to=${__to:date:seconds}"


def build(board: Board) -> dict[str, Any]:
    """The dashboard, ready for import. Grafana assigns the id and the version."""
    built = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Tailspan")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
        .link(
            dashboard.DashboardLink("Explorer")
            .type(models.DashboardLinkType.LINK)
            .url(f"${{{EXPLORER}}}/?{_TIME}")
            .tooltip("The requests behind this panel")
            .target_blank(True)
        )
        .with_variable(dashboard.DatasourceVariable(SOURCE).label("Data source").type("prometheus"))
    )
    for name in board.variables:
        built.with_variable(_variable(name))
    built.with_variable(
        dashboard.TextBoxVariable(EXPLORER)
        .label("Explorer")
        .description("Address of the explorer.")
        .default_value(EXPLORER_URL)
        .current(models.VariableOption(text=EXPLORER_URL, value=EXPLORER_URL))
    )
    marks = annotations(board)
    for mark in marks:
        built.annotation(_annotation(mark))
    number = 0
    for row in board.rows:
        built.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            number += 1
            built.with_panel(_panel(panel).id(number))
    document: dict[str, Any] = json.loads(json.dumps(built.build(), cls=JSONEncoder))
    for mark, written in zip(marks, document["annotations"]["list"], strict=True):
        # The builder has no fields for these options.
        written |= {
            "titleFormat": mark.title,
            "textFormat": mark.text,
            "tagKeys": ",".join(mark.tags),
        }
    return document


def text(board: Board) -> str:
    """The dashboard as a file's text."""
    return json.dumps(build(board), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _source() -> models.DataSourceRef:
    return models.DataSourceRef(type_val="prometheus", uid=f"${{{SOURCE}}}")


def _annotation(mark: Annotation) -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name(mark.name)
        .datasource(_source())
        .enable(True)
        .icon_color(mark.colour)
        .expr(mark.expr)
    )


def _variable(name: str) -> dashboard.QueryVariable:
    of = VARIABLES[name]
    all_ = models.VariableOption(selected=True, text="All", value="$__all")
    built = (
        dashboard.QueryVariable(name)
        .label(of.label)
        .description(of.description)
        .query({"query": of.query, "refId": name})
        .datasource(_source())
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.NATURAL_ASC)
        .multi(True)
        .include_all(True)
        .current(all_)
    )
    # For `replica`, "All" means the replicas of the selected regions. For any other label, "All"
    # also matches series without the label.
    return built if name == "replica" else built.all_value(".*")


def _panel(panel: Panel) -> Any:
    built = _KINDS[panel.kind](panel)
    built.title(panel.title).description(panel.description).datasource(_source())
    built.span(panel.width).height(_NUMBER_HEIGHT if panel.kind is PanelKind.NUMBER else _HEIGHT)
    for place, query in enumerate(panel.queries):
        built.with_target(_target(query, "ABCDEFGH"[place], panel.kind))
    built.links(
        [
            dashboard.DashboardLink("Open in the explorer")
            .type(models.DashboardLinkType.LINK)
            .url(f"${{{EXPLORER}}}/?{_TIME}&{_page(panel)}")
            .target_blank(True)
        ]
    )
    if panel.kind is PanelKind.HEATMAP:
        return built
    built.unit(panel.unit.grafana)
    if not panel.signed:
        built.min(0)
    if panel.most is not None:
        built.max(panel.most)
    if panel.unit is GrafanaUnit.SHARE:
        built.decimals(panel.decimals)
    if panel.thresholds:
        built.thresholds(
            dashboard.ThresholdsConfig()
            .mode(models.ThresholdsMode.ABSOLUTE)
            .steps(
                [
                    # Grafana's first threshold begins at the lower end of the scale.
                    models.Threshold(value=None if place == 0 else each.value, color=each.colour)
                    for place, each in enumerate(panel.thresholds)
                ]
            )
        )
    built.data_links(
        [
            dashboard.DashboardLink(f"{_rows(panel)} of ${{__series.name}} in the explorer")
            .type(models.DashboardLinkType.LINK)
            .url(f"${{{EXPLORER}}}/?{_TIME}&{_page(panel)}{_labels(panel)}")
            .target_blank(True)
        ]
    )
    for legend, colour in panel.colours.items():
        built.override_by_name(
            legend,
            [
                models.DynamicConfigValue(
                    id_val="color", value={"mode": "fixed", "fixedColor": colour}
                )
            ],
        )
    return built


def _page(panel: Panel) -> str:
    return f"page={quote(panel.page)}&latency={quote(panel.latency)}"


def _rows(panel: Panel) -> str:
    return "The probes" if panel.page == "outside" else "The requests"


def _labels(panel: Panel) -> str:
    labels: tuple[str, ...] = ("model", "replica", "tenant", "outcome")
    if panel.page == "outside":
        labels = ("region", "endpoint")
    return "".join(f"&{each}=${{__field.labels.{each}}}" for each in labels)


def _target(query: PanelQuery, ref: str, kind: PanelKind) -> Any:
    built = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref)
    built.datasource(_source())
    if kind is PanelKind.NUMBER:
        return built.instant()
    # A native histogram contains its buckets, so the query needs no format.
    if kind is PanelKind.HEATMAP and not query.native:
        built.format(PromQueryFormat.HEATMAP)
    return built.range().exemplar(query.exemplars)


def _lines(panel: Panel) -> Any:
    built = (
        timeseries.Panel()
        .line_width(1.5)
        .fill_opacity(0)
        .span_nulls(False)
        .show_points(common_models.VisibilityMode.AUTO)
        .legend(
            common.VizLegendOptions()
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    )
    if panel.thresholds:
        built.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED)
        )
    return built


def _stacked(panel: Panel) -> Any:
    return (
        _lines(panel)
        .fill_opacity(70)
        .line_width(0.5)
        .stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
    )


def _number(panel: Panel) -> Any:
    return (
        stat.Panel()
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .color_mode(
            common_models.BigValueColorMode.VALUE
            if panel.thresholds
            else common_models.BigValueColorMode.NONE
        )
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    )


def _heatmap(panel: Panel) -> Any:
    return (
        heatmap.Panel()
        .calculate(False)
        .y_axis(heatmap.YAxisConfig().unit(panel.unit.grafana))
        .color(
            heatmap.HeatmapColorOptions()
            .mode(heatmap_models.HeatmapColorMode.SCHEME)
            .scheme("Blues")
            .exponent(0.5)
            .steps(64)
        )
        .exemplars_color("rgba(224,47,68,0.9)")
        .show_legend()
    )


_KINDS: Final = {
    PanelKind.LINES: _lines,
    PanelKind.STACKED: _stacked,
    PanelKind.NUMBER: _number,
    PanelKind.HEATMAP: _heatmap,
}
