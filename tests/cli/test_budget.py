import json
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from analysis.budget.answer import BudgetQuestion
from analysis.budget.budget_file import preset
from analysis.budget.levers import command
from analysis.what_if_search import sweep_of
from cli.commands.what_if import what_if
from collector.server import Collector
from collector.testing import running
from store.database import open_database
from store.writer import Writer
from telemetry.requests import RequestTimeline
from telemetry.window import Window
from tests.cli.instrumented_application import (
    RETRIEVAL_S,
    TOOL_S,
    Application,
    Waited,
    export,
    model_server,
)

Run = Callable[..., Result]
REQUESTS = 30
CALL_EVERY = 3


def sleep_longer() -> None:
    time.sleep(0.01)


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Waited]]:
    """Serve users, and send the spans of both sides; the application's spans are sent first and
    twice.

    Returns:
        The file of the database, and how long the users waited.
    """
    file = tmp_path_factory.mktemp("served") / "tailspan.db"
    engine = open_database(f"sqlite:///{file}")
    with model_server() as model, Writer(engine) as writer:
        shop = Application(model.server_address[1])
        found = [
            shop.answer(sleep_longer if number % CALL_EVERY == 0 else lambda: None)
            for number in range(REQUESTS)
        ]
        with running(Collector(writer, grpc_port=0, http_port=0)) as collector:
            spans = shop.spans
            for several in (spans[::2], spans, model.spans, spans[::-1]):
                export(several, collector.http_port)
    engine.dispose()
    return file, found


@pytest.fixture
def waited(application: tuple[Path, list[Waited]], tmp_path: Path) -> list[Waited]:
    """Copy the database to the URL of the test, and return how long the users waited."""
    file, found = application
    shutil.copy(file, tmp_path / "tailspan.db")
    return found


@pytest.mark.parametrize("latency", ["ttft", "e2e"])
def test_the_layers_sum_to_the_applications_stopwatch(
    run: Run, waited: list[Waited], tmp_path: Path, latency: str
) -> None:
    file = tmp_path / "budget.yaml"
    after = "  after: 1ms\n" if latency == "e2e" else ""
    file.write_text(
        f"latency: {latency}\npercentile: p50\ntotal: 32ms\nlayers:\n"
        f"  before: {{retrieval: 5ms, tool: 10ms}}\n  network: 10ms\n  prefill: 5ms\n{after}"
    )
    result = run("budget", str(file), "--last", "15m", "--format", "json", window=False)
    assert result.exit_code == 1
    found = json.loads(result.output)
    assert (found["verdict"], found["extent"]) == ("over", "application")
    assert (found["requests"], found["tail_requests"]) == (REQUESTS, REQUESTS // 2)
    stopwatch = sorted(each.whole_s if latency == "e2e" else each.first_token_s for each in waited)
    mean_s = sum(stopwatch[REQUESTS // 2 :]) / (REQUESTS // 2)
    # The stopwatch also measures the creation of the outermost span, and no other work outside the
    # spans.
    assert found["tail_mean_s"] == pytest.approx(mean_s, abs=0.004)
    assert found["tail_mean_s"] <= mean_s + 1e-4
    layers = {each["layer"]: each for each in found["layers"]}
    with_budget = [each["spent_s"] for each in found["layers"] if each["budget_s"] is not None]
    assert sum(with_budget) == pytest.approx(found["tail_mean_s"], abs=1e-9)
    assert layers["before.retrieval"]["spent_s"] >= RETRIEVAL_S
    assert layers["before.tool"]["spent_s"] >= TOOL_S
    assert layers["before"]["operations_s"].keys() >= {"validation", "other"}
    assert layers["network"]["spent_s"] > 0
    assert layers["prefill"]["predict"].startswith("tailspan what-if --from")
    if latency == "e2e":
        assert "formatting" in layers["after"]["operations_s"]


def test_no_prompt_is_stored(url: str, waited: list[Waited]) -> None:
    assert waited
    for file in Path(url.removeprefix("sqlite:///")).parent.iterdir():
        assert b"a secret prompt" not in file.read_bytes()


@pytest.fixture
def served(
    fill: Callable[..., None], request_row: Callable[..., RequestTimeline]
) -> Callable[[float], None]:
    def put(queue_s: float) -> None:
        fill(
            *(
                request_row(
                    number,
                    streamed=True,
                    replica="r0",
                    tenant=("acme", "globex")[number % 2],
                    frontend_s=0.005,
                    queue_s=queue_s * number / 400,
                    prefill_s=0.1,
                    decode_s=0.5,
                    delivery_s=0.002,
                    ttft_s=0.106 + queue_s * number / 400,
                    e2e_s=0.607 + queue_s * number / 400,
                )
                for number in range(400)
            )
        )

    return put


def test_the_text_states_the_finding_and_the_way_out(
    run: Run, served: Callable[[float], None]
) -> None:
    served(1.0)
    result = run("budget", "--preset", "chat")
    assert result.exit_code == 1
    text = result.output
    assert text.startswith(
        "TTFT P95 is 1.05 s; the budget without the unknown layers is 300 ms."
        " It is exceeded by 754 ms: "
    )
    assert "Queue overspends most, by 924 ms in the slowest 20 requests." in text
    assert "Unknown: before the model, network. No request has the span of" in text
    assert "So 200 ms of the budget of 500 ms is not compared." in text
    assert "Queue must fall by 924 ms (94.9 %) to stay within its budget." in text
    assert (
        "Predict a change: tailspan what-if --from 1763634000 --to 1763634600 --replicas 2" in text
    )
    assert "Each value is a mean over the slowest 20 requests" in text


def test_a_total_alone_names_the_largest_layers(
    run: Run, served: Callable[[float], None], tmp_path: Path
) -> None:
    served(1.0)
    file = tmp_path / "budget.yaml"
    file.write_text("latency: ttft\ntotal: 100ms\n")
    text = run("budget", str(file)).output
    assert (
        "The budget names no layer. The largest in the slowest 20 requests: queue 974 ms,"
        " prefill 100 ms, front end 5.0 ms." in text
    )
    assert "overspends" not in text
    assert "must fall" not in text


@pytest.mark.parametrize("layer", ["queue", "prefill", "decode"])
def test_the_command_that_predicts_a_change_is_valid(layer: str) -> None:
    asked = BudgetQuestion(preset("chat"), Window(0, 10**18), {"tenant": "a 'b'", "lora": None})
    line = command(layer, asked, 1)
    assert line is not None
    _, _, *words = shlex.split(line)
    context = what_if.make_context("what-if", words)
    assert context.params["where"] == ("tenant=a 'b'", "lora=")
    if context.params["swept"]:
        sweep_of(context.params["swept"])


def test_a_kept_budget_exits_with_0(run: Run, served: Callable[[float], None]) -> None:
    served(0.01)
    result = run("budget")
    assert result.exit_code == 0
    assert "It is met: 100.0 % of 400 requests are within it." in result.output
    assert "must fall" not in result.output


def test_the_requests_are_selected_by_labels(run: Run, served: Callable[[float], None]) -> None:
    served(1.0)
    result = run("budget", "--where", "tenant=acme", "--format", "json")
    found = json.loads(result.output)
    assert (found["requests"], found["verdict"], result.exit_code) == (200, "insufficient_data", 0)
    text = run("budget", "--where", "tenant=acme").output
    assert "Not enough requests: 200 whose TTFT is divided into layers;" in text
    assert "P95 needs at least 281." in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--preset", "email"), "'email' is not one of 'voice', 'chat', 'code'"),
        (("budget.yaml", "--preset", "chat"), "FILE and --preset exclude each other"),
        (("/nowhere/budget.yaml",), "/nowhere/budget.yaml: cannot be read: No such file"),
    ],
)
def test_wrong_usage_is_refused(
    run: Run, fill: Callable[..., None], words: Any, expected: str
) -> None:
    fill()
    result = run("budget", *words)
    assert result.exit_code == 2
    assert expected in result.output
