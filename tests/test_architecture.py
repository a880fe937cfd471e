import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT: dict[str, set[str]] = {
    "instrumentation": set(),
    # docs/attributes.md is generated from these modules.
    "telemetry": {
        *("tailspan_vllm.names", "tailspan_vllm.vocabulary", "tailspan_vllm.engine_state"),
        # The prefix index reads the ladders that the plugin sends.
        "tailspan_vllm.request.prefix_ladder",
    },
    "store": {"telemetry"},
    "cost": {"telemetry"},
    # The collector computes the cost of each request, with the same prices as the bill.
    "collector": {"telemetry", "store", "tailspan_vllm.names", "cost"},
    "alerts": {"telemetry", "store"},
    # The collector counts the good and bad requests of each objective.
    "exporters": {
        "telemetry",
        "tailspan_vllm.names",
        # Forwarding retries messages as the plugin does.
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
    # Panels use the exporter's series names.
    "dashboards": {
        "telemetry",
        "tailspan_vllm.names",
        "alerts.vocabulary",
        "alerts.fields",
        "exporters",
    },
    # The simulator uses the instrumentation's encoder, so that both always have the same format.
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
    # A model of a server, for the analysis and the simulator.
    "replay": {"telemetry", "roofline"},
    # The probe runs close to users, without the store and the collector.
    "probe": {
        "telemetry",
        "tailspan_vllm.names",
        "tailspan_vllm.export.destination",
        "tailspan_vllm.export.retry",
        "tailspan_vllm.export.transport",
    },
    "diagnosis": {"telemetry"},
    "roofline": {"telemetry", "tailspan_vllm.names"},
    # Calculations for both the commands and the pages.
    "analysis": {"telemetry", "store", "alerts", "cost", "diagnosis", "replay", "roofline"},
    # The explorer checks Host and Origin with the collector's rule.
    "ui": {
        # `analysis` reads the store, and restricts it to what a reader may see.
        *("telemetry", "diagnosis", "alerts", "analysis", "cost", "roofline"),
        "replay.edits",
        "collector.listen.host_check",
    },
    # The rig compares the reported model with the served model.
    "rig": {
        *("dashboards", "tailspan_vllm.engine_state.model_shape", "ui.frame.pages"),
        # The rig sends the messages of a prober.
        *("probe.otlp_spans", "telemetry.probes"),
    },
    # The parts that `tailspan up` runs. The explorer is not imported: it runs as a process.
    "server": {
        *("telemetry", "store", "collector", "exporters", "alerts", "analysis", "cost"),
    },
    "cli": {
        # `analysis` reads the store, and `server` writes it.
        *("telemetry", "collector", "exporters", "alerts", "analysis", "dashboards"),
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
"""The project's other modules that each part may import."""

OURS = {*MAY_IMPORT, "tailspan_vllm"}


LAYERS = (
    *("engine_state", "request", "start_up", "engine_core", "otlp", "export"),
    *("engine_only", "front_end"),
)
"""The folders of `tailspan_vllm`. Each folder imports only from earlier ones."""


def _imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _imported_at_once(node: ast.AST) -> Iterator[str]:
    """Yield what a module imports when it is itself imported: not in functions, not for types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            yield from (name for other in child.orelse for name in _imported_at_once(other))
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _imported_at_once(child)


def _module_of(imported: str, modules: dict[str, Path]) -> str:
    """Return the module that contains an imported name, or an empty string if it is not ours."""
    while imported and imported not in modules:
        imported = imported.rpartition(".")[0]
    return imported


def _allowed(module: str, part: str) -> bool:
    own = "tailspan_vllm" if part == "instrumentation" else part
    return any(module == name or module.startswith(f"{name}.") for name in {own, *MAY_IMPORT[part]})


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_a_part_imports_only_what_lies_below_it(part: str) -> None:
    """A new dependency between parts needs a decision and an entry in the table above."""
    forbidden = {
        f"{file.relative_to(ROOT)}: {module}"
        for file in (ROOT / part).rglob("*.py")
        for module in _imports(file)
        if module.split(".")[0] in OURS and not _allowed(module, part)
    }
    assert not forbidden


def test_no_parts_import_each_other() -> None:
    """A cycle, also through further parts, raises an error that lists its parts."""
    above = {
        part: {module.split(".")[0] for module in modules if module.split(".")[0] != part}
        for part, modules in MAY_IMPORT.items()
    }
    TopologicalSorter(above).prepare()


def test_no_modules_import_each_other() -> None:
    """A cycle raises an error that lists its modules."""
    modules: dict[str, Path] = {}
    for folder in (*MAY_IMPORT, "instrumentation/tailspan_vllm"):
        if folder != "instrumentation":
            for file in (ROOT / folder).rglob("*.py"):
                path = file.relative_to(ROOT).with_suffix("").parts
                names = [each for each in path if each not in ("instrumentation", "__init__")]
                modules[".".join(names)] = file
    graph = {}
    for name, file in modules.items():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        graph[name] = {_module_of(each, modules) for each in _imported_at_once(tree)} - {name, ""}
    assert len(graph) > 1_000
    TopologicalSorter(graph).prepare()


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
    """`analysis/` calculates; a command only reads options and prints results."""
    calculating = ("numpy", "pyarrow.compute", "diagnosis.inputs", "diagnosis.one_request")
    found = {
        f"{file.relative_to(ROOT)}: {module}"
        for file in (ROOT / "cli").rglob("*.py")
        for module in _imports(file)
        if module.startswith(calculating)
    }
    assert not found
