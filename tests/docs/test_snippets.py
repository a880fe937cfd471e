"""Every example in the documentation that is not a shell command works.

`test_site.py` checks shell commands, and `test_api_pages.py` runs docs/api.md and docs/gates.md.
"""

import configparser
import io
import json
import re
import shlex
import tomllib
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Final

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tailspan_vllm import names as wire_names

from alerts.openslo.reader import inspect_texts
from analysis.access.audit_log import AuditLog, Interface
from analysis.access.roles_file import load_roles
from analysis.budget.budget_file import parse_budget
from analysis.sign_in_file import load_sign_in
from cli.main import tailspan
from cli.options.settings import read_file
from cost.pricefile import parse_prices
from probe.plan_file import read_plan
from roofline.peakfile import peaks_in_force
from roofline.peaks import device_named
from simulator.dataset import run
from simulator.fleet_config import FleetConfig
from store.writer import Writer
from telemetry.application_operations import NAMED
from telemetry.fields import STATS, attribute, fields_of
from telemetry.requests import RequestTimeline
from telemetry.window import Window
from tests.docs.test_site import PAGES, ROOT

FENCED: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS: Final = frozenset({"sh", "console"})
STARTED_UNIX_NS: Final = 1_790_000_000 * 10**9
OTHER_TESTS: Final = {
    "alerts/README.md": "tests/alerts/test_readme.py",
    "docs/api.md": "tests/docs/test_api_pages.py",
    "docs/gates.md": "tests/docs/test_api_pages.py",
}
"""Pages whose examples have a test of their own."""


def snippets(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of each example on a page that is not a shell command."""
    found = FENCED.findall((ROOT / page).read_text(encoding="utf-8"))
    return [(language, text) for language, text in found if language not in COMMANDS]


def snippet(page: str, language: str) -> str:
    """Return a page's only example in a language."""
    (text,) = (text for name, text in snippets(page) if name == language)
    return text


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def roles(folder: Path) -> None:
    found = load_roles(written(folder, "roles.yaml", snippet("docs/access.md", "yaml")))
    assert found.audit == folder / "audit.jsonl"


def audit(folder: Path) -> None:
    log = AuditLog(folder / "audit.jsonl")
    log.sign_in("jane@example.org", "accepted")
    log.read(Interface.PAGE, "jane@example.org", "a/b", found=True)
    lines = [json.loads(each) for each in (folder / "audit.jsonl").read_text().splitlines()]
    shown = [json.loads(each) for each in snippet("docs/access.md", "json").splitlines()]
    assert [list(each) for each in lines] == [list(each) for each in shown[:2]]


def budget(_folder: Path) -> None:
    parse_budget(snippet("docs/budget.md", "yaml"), "budget.yaml", "budget")


def settings(page: str) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        assert read_file(written(folder, "tailspan.toml", snippet(page, "toml")))

    return check


def assistant(_folder: Path) -> None:
    server = json.loads(snippet("docs/commands.md", "json"))["mcpServers"]["tailspan"]
    assert server["command"] == "tailspan"
    name, *options = server["args"]
    context = tailspan.make_context("tailspan", [name])
    command = tailspan.get_command(context, name)
    assert command is not None
    command.make_parser(context).parse_args(options)


def unit(_folder: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(snippet("docs/install.md", "ini"))
    program, *words = shlex.split(parser["Service"]["ExecStart"])
    assert (program, words) == ("/opt/tailspan/bin/tailspan", ["up"])


def probes(folder: Path) -> None:
    """The page has a probe file and an objective on probes."""
    plan, objective = (text for name, text in snippets("docs/probe.md") if name == "yaml")
    written(folder, "prompt.txt", "Hello")
    found = read_plan(written(folder, "probes.yaml", plan), insecure_credentials=False)
    assert [each.name for each in found.endpoints] == ["chat", "claude"]
    assert not inspect_texts({"outside.yaml": objective}).errors


def prices(_folder: Path) -> None:
    parse_prices(snippet("cost/README.md", "yaml"), "prices.yaml")


def peaks(folder: Path) -> None:
    text = snippet("roofline/README.md", "toml")
    file = written(folder, "peaks.toml", text)
    (name,) = tomllib.loads(text)["device"]
    device = device_named(name, peaks_in_force({"TAILSPAN_PEAKS": str(file)}))
    assert device is not None
    assert device.bytes_per_s == 4.0e12


def sign_in(folder: Path) -> None:
    file = written(folder, "sign-in.yaml", snippet("ui/README.md", "yaml"))
    file.chmod(0o600)
    found = load_sign_in(file, {"TAILSPAN_CLIENT_SECRET": "secret"})
    assert found.base_path == "tailspan"


def declared_field(_folder: Path) -> None:
    names: dict[str, Any] = {
        "Annotated": Annotated,
        "attribute": attribute,
        "names": wire_names,
        "STATS": STATS,
    }
    exec(snippet("telemetry/README.md", "python"), names)
    (declared,) = names["__annotations__"].items()
    fields = {each.name: each.about for each in fields_of(RequestTimeline)}
    about = declared[1].__metadata__[0]
    assert (about.wire, about.unit) == (fields[declared[0]].wire, fields[declared[0]].unit)


def operations(_folder: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # An instrumented client is in tests/cli/test_budget.py.
    completions = SimpleNamespace(create=lambda *_: "answer")
    client = SimpleNamespace(chat=SimpleNamespace(completions=completions))
    names = {"tracer": provider.get_tracer("application"), "client": client}
    exec(snippet("docs/budget.md", "python"), names)
    spans = exporter.get_finished_spans()
    assert [each.name for each in spans] == ["search", "format", "answer"]
    assert {(each.attributes or {})["gen_ai.operation.name"] for each in spans} <= set(NAMED)


def simulated(_folder: Path) -> None:
    names: dict[str, Any] = {}
    shorter = snippet("simulator/README.md", "python").replace("00.0", "0.0")  # a tenth, in seconds
    exec(shorter, names)
    assert names["case"].truth[0].cause == "gpu_throttling"


def replayed(_folder: Path) -> None:
    number = 50
    names: dict[str, Any] = {
        "times": np.linspace(0.0, 10.0, number),
        "prompts": np.full(number, 200),
        "outputs": np.full(number, 20),
    }
    exec(snippet("replay/README.md", "python"), names)
    assert names["now"].ttft_s.shape == names["busier"].e2e_s.shape == (number,)


def stored() -> dict[str, Any]:
    """Run the example of the store with a simulated fleet, and return its names."""
    fleet = run(FleetConfig(replicas=2, duration_s=90.0, started_unix_ns=STARTED_UNIX_NS))
    names: dict[str, Any] = {
        "requests": fleet.requests,
        "samples": fleet.samples,
        "from_unix_ns": STARTED_UNIX_NS,
        "to_unix_ns": STARTED_UNIX_NS + 120 * 10**9,
        "fleet": fleet,
    }
    exec(snippet("store/README.md", "python"), names)
    return names


def queried(folder: Path) -> None:
    names = stored()
    assert set(names["table"]["tenant"].to_pylist()) == {"acme"}
    assert (folder / "var" / "tailspan.db").exists()
    names["engine"].dispose()


def billed(_folder: Path) -> None:
    names = stored()
    names["window"] = Window(names["from_unix_ns"], names["to_unix_ns"])
    with Writer(names["engine"]) as writer:
        writer.submit([], [], names["fleet"].starts).result(20)
    exec(snippet("cost/README.md", "python"), names)
    assert names["found"].total.bill_usd > 0
    names["engine"].dispose()


def bounded(_folder: Path) -> None:
    names = stored()
    names["start"], names["database"] = names["fleet"].starts[0], names["engine"]
    names["window"] = Window(names["from_unix_ns"], names["to_unix_ns"])
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(snippet("roofline/README.md", "python"), names)
    assert "Memory-bound" in printed.getvalue()
    names["database"].dispose()


READ: Final[dict[tuple[str, str], Callable[[Path], Any]]] = {
    ("cost/README.md", "python"): billed,
    ("cost/README.md", "yaml"): prices,
    ("docs/access.md", "json"): audit,
    ("docs/access.md", "yaml"): roles,
    ("docs/budget.md", "python"): operations,
    ("docs/budget.md", "yaml"): budget,
    ("docs/commands.md", "json"): assistant,
    ("docs/configuration.md", "toml"): settings("docs/configuration.md"),
    ("docs/install.md", "ini"): unit,
    ("docs/probe.md", "yaml"): probes,
    ("docs/scale.md", "toml"): settings("docs/scale.md"),
    ("replay/README.md", "python"): replayed,
    ("roofline/README.md", "python"): bounded,
    ("roofline/README.md", "toml"): peaks,
    ("simulator/README.md", "python"): simulated,
    ("store/README.md", "python"): queried,
    ("telemetry/README.md", "python"): declared_field,
    ("ui/README.md", "yaml"): sign_in,
}
"""What runs or reads the examples of a page in a language."""


@pytest.mark.parametrize("key", sorted(READ), ids=" ".join)
def test_the_example_works(
    key: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    READ[key](tmp_path)


def test_every_example_has_a_test() -> None:
    found = {
        (name, language)
        for page in PAGES
        if (name := str(page.relative_to(ROOT))) not in OTHER_TESTS
        for language, _ in snippets(name)
    }
    assert found == set(READ)
    for page, test in OTHER_TESTS.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")
