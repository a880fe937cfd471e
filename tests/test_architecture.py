import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT: dict[str, set[str]] = {
    "instrumentation": set(),
    # docs/attributes.md is written from its fields and from the wire's other names.
    "telemetry": {
        *("tailspan_vllm.names", "tailspan_vllm.vocabulary", "tailspan_vllm.engine_state"),
        # It reads the ladders that the plugin writes.
        "tailspan_vllm.request.prefix_ladder",
    },
    "store": {"telemetry"},
    "cost": {"telemetry"},
    # Requests are priced as they come in, by the same price list as the bill.
    "collector": {"telemetry", "store", "tailspan_vllm.names", "cost"},
    "alerts": {"telemetry", "store"},
    # Requests are counted as they come in, against the objectives in force.
    "exporters": {
        "telemetry",
        "tailspan_vllm.names",
        # Forwarding retries as the plugin does.
        "tailspan_vllm.export.retry",
        "tailspan_vllm.export.transport",
        "alerts.groups",
        "alerts.evaluation.request_verdicts",
        "alerts.evaluation.in_flight_verdicts",
        "alerts.evaluation.probe_verdicts",
        "alerts.evaluation.table_verdicts",
        "alerts.objectives",
        "alerts.vocabulary",
        # The exporter computes the utilisation of GPUs at each scrape.
        "roofline",
    },
    # Panels name the series as the exporter does.
    "dashboards": {
        "telemetry",
        "tailspan_vllm.names",
        "alerts.vocabulary",
        "exporters",
    },
    # The simulator uses the instrumentation's encoder, so that the two cannot differ.
    "simulator": {
        "replay",
        "telemetry",
        "tailspan_vllm.names",
        "tailspan_vllm.engine_core.step_model",
        "tailspan_vllm.engine_state",
        "tailspan_vllm.export",
        "tailspan_vllm.otlp",
        "tailspan_vllm.request",
    },
    # The model of a server: everything that asks about one stands on it.
    "replay": {"telemetry", "roofline"},
    # It runs alone, near users: neither the store nor the collector comes with it.
    "probe": {
        "telemetry",
        "tailspan_vllm.names",
        "tailspan_vllm.export.destination",
        "tailspan_vllm.export.retry",
        "tailspan_vllm.export.transport",
    },
    "diagnosis": {"telemetry"},
    "roofline": {"telemetry", "tailspan_vllm.names"},
    # What the commands and the pages ask in common.
    "analysis": {"telemetry", "store", "alerts", "cost", "diagnosis", "replay", "roofline"},
    # The explorer's server checks Host and Origin by the same rule as the collector's.
    "ui": {
        *("telemetry", "store", "diagnosis", "alerts", "analysis", "cost", "roofline"),
        "replay.edits",
        "collector.listen.host_check",
    },
    # The reported model is compared with that of its server.
    "rig": {
        *("dashboards", "tailspan_vllm.engine_state.model_shape", "ui.frame.pages"),
        # It sends what a prober would send.
        *("probe.otlp_spans", "telemetry.probes"),
    },
    # What `tailspan up` runs. It starts the explorer as a process, and imports nothing of it.
    "server": {
        *("telemetry", "store", "collector", "exporters", "alerts", "analysis", "cost"),
    },
    "cli": {
        *("telemetry", "store", "collector", "exporters", "alerts", "analysis", "dashboards"),
        *(
            "diagnosis",
            "cost",
            "roofline",
            "server",
            "simulator",
            "replay",
            "tailspan_vllm",
            "probe",
        ),
    },
}
"""Beside itself, what each part may import of the project."""

OURS = {*MAY_IMPORT, "tailspan_vllm"}


LAYERS = ("engine_state", "request", "engine_core", "otlp", "export", "front_end")
"""The folders of `tailspan_vllm`. Each imports only from those before it."""


def _imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _allowed(module: str, part: str) -> bool:
    own = "tailspan_vllm" if part == "instrumentation" else part
    return any(module == name or module.startswith(f"{name}.") for name in {own, *MAY_IMPORT[part]})


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_a_part_imports_only_what_lies_below_it(part: str) -> None:
    """The table above is complete; a new arrow is a decision."""
    forbidden = {
        f"{file.relative_to(ROOT)}: {module}"
        for file in (ROOT / part).rglob("*.py")
        for module in _imports(file)
        if module.split(".")[0] in OURS and not _allowed(module, part)
    }
    assert not forbidden


@pytest.mark.parametrize("layer", LAYERS)
def test_a_folder_of_the_plugin_imports_only_from_those_before_it(layer: str) -> None:
    package = ROOT / "instrumentation" / "tailspan_vllm"
    above = {*LAYERS[LAYERS.index(layer) + 1 :], "plugin", "http", "statlogger"}
    forbidden = {
        f"{file.relative_to(ROOT)}: {module}"
        for file in (package / layer).rglob("*.py")
        for module in _imports(file)
        if module.startswith("tailspan_vllm.") and module.split(".")[1] in above
    }
    assert not forbidden
    assert {path.name for path in package.iterdir() if path.is_dir()} - {"__pycache__"} == set(
        LAYERS
    )


def test_every_part_has_its_row() -> None:
    code = {path.parent.name for path in ROOT.glob("*/*.py")} - {"tests", "benchmarks", "docs"}
    assert code <= set(MAY_IMPORT)


def test_the_explorers_kit_frame_and_pages_are_layers() -> None:
    forbidden = set()
    for file in (ROOT / "ui").rglob("*.py"):
        part, *rest = file.relative_to(ROOT / "ui").parts
        not_for = {"kit": ("ui.frame", "ui.views"), "frame": ("ui.views",)}.get(part, ())
        for module in _imports(file):
            another = module.startswith("ui.views.") and module.split(".")[2] != rest[:1][0]
            if module.startswith(not_for) or (part == "views" and another):
                forbidden.add(f"{file.relative_to(ROOT)}: {module}")
    assert not forbidden


def test_commands_calculate_nothing() -> None:
    """`analysis/` calculates; a command reads options and prints."""
    calculating = ("numpy", "pyarrow.compute", "diagnosis.inputs", "diagnosis.one_request")
    found = {
        f"{file.relative_to(ROOT)}: {module}"
        for file in (ROOT / "cli").rglob("*.py")
        for module in _imports(file)
        if module.startswith(calculating)
    }
    assert not found
