from urllib.parse import parse_qsl

import click
import pytest
from openapi_spec_validator import validate

from cli.main import COMMANDS
from cli.questions.declared import questions
from cli.questions.explorer_pages import PAGES, page_link
from cli.questions.openapi import document
from telemetry.window import Window
from ui.frame.address import parse
from ui.frame.pages import BY_KEY
from ui.frame.view import View


def test_the_parameters_are_the_options_without_the_settings_and_files() -> None:
    for each in questions().values():
        assert each.words[0] in COMMANDS
        options = {name for param in each.command.params for name in param.opts}
        assert {f"--{name}" for name in each.parameters} <= options
        left_out = {
            *("--format", "--database", "--state-url", "--config"),
            *("--objectives", "--prices", "--trace"),
        }
        assert not left_out & {f"--{name}" for name in each.parameters}
        rest = {name for name in options if name.startswith("--")} - left_out
        assert rest - {"--block-size"} == {f"--{name}" for name in each.parameters}


def test_the_openapi_document_is_valid_and_has_each_parameter() -> None:
    whole = document()
    validate(whole)
    for name, each in questions().items():
        get = whole["paths"][f"/api/v1/{name}"]["get"]
        assert [one["name"] for one in get["parameters"]] == list(each.parameters)
        assert get["summary"] == each.summary
        assert {"200", "400", "401", "403", "414", "422", "500", "503", "504"} == set(
            get["responses"]
        )
        assert "role" in get["responses"]["403"]["description"]
        for one in get["parameters"]:
            assert one["description"]
    (metric,) = (
        one
        for one in whole["paths"]["/api/v1/explain"]["get"]["parameters"]
        if one["name"] == "metric"
    )
    assert metric["schema"]["enum"] == ["ttft", "tpot", "itl_max", "e2e", "queue", "first_content"]


def test_a_choice_of_a_command_is_a_choice_of_its_parameter() -> None:
    for each in questions().values():
        for param in each.command.params:
            if isinstance(param.type, click.Choice) and param.name != "form":
                assert each.parameters[param.opts[0].removeprefix("--")].schema["enum"]


def test_a_link_opens_the_page_with_the_same_range_and_requests() -> None:
    assert set(PAGES.values()) <= set(BY_KEY)
    given = [("from", "1763634000"), ("to", "1763634900"), ("where", "tenant=a b&c")]
    link = page_link("http://127.0.0.1:8501/", "explain", [*given, ("metric", "tpot")])
    assert link is not None
    address, _, query = link.partition("/?")
    assert address == "http://127.0.0.1:8501"
    view, notices = parse(dict(parse_qsl(query)))
    assert notices == []
    assert (view.page, view.equals) == ("root-cause", {"tenant": "a b&c"})
    window = view.window(0)
    assert window.from_unix_ns == 1_763_634_000 * 10**9
    assert window.to_unix_ns == 1_763_634_900 * 10**9
    assert page_link("http://x", "explain", [("incident", "chat@1763634000")]) == (
        "http://x/?page=root-cause&incident=chat@1763634000"
    )
    assert page_link("http://x", "explain", [("incident", "chat"), ("where", "tenant=a")]) == (
        "http://x/?page=root-cause&incident=chat&tenant=a"
    )
    budget = page_link("http://x", "budget", [*given, ("preset", "code")])
    assert budget is not None
    shown, notices = parse(dict(parse_qsl(budget.partition("/?")[2])))
    assert (shown.page, shown.budget, notices) == ("requests", "code", [])
    assert page_link("http://x", "explain", [("request", "abc/def")]) == (
        "http://x/?page=request&request=abc/def"
    )


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("stats", [("where", "lora=x")]),
        ("requests", [("where", "tenant=a"), ("where", "request_id=chatcmpl-1")]),
        ("cost", [("where", "region=eu")]),
        ("caches", [("where", "cache=semantic")]),
        ("stats", [("where", "tenant=")]),
        ("outside", [("where", "model=a")]),
        ("explain", [("incident", "chat"), ("baseline", "7d")]),
        ("what-if", [("find", "replicas"), ("slo", "chat"), ("rate", "2x")]),
    ],
)
def test_there_is_no_link_to_a_page_that_shows_other_requests(
    name: str, given: list[tuple[str, str]]
) -> None:
    assert page_link("http://x", name, given) is None


def test_a_link_has_each_parameter_that_the_page_has() -> None:
    def opened(name: str, *given: tuple[str, str]) -> View:
        link = page_link("http://x", name, given)
        assert link is not None
        view, notices = parse(dict(parse_qsl(link.partition("/?")[2])))
        assert notices == []
        return view

    assert opened("requests", ("where", "outcome=error")).equals == {"outcome": "error"}
    assert opened("requests", ("sort", "-e2e_s")).metric == "e2e"
    assert opened("requests", ("sort", "-first_content_s")).metric == "ttft"
    assert opened("explain", ("by-size", "true")).decide == "size"
    assert opened("explain", ("by-size", "false")).decide == "slo"
    slos = opened("slo", ("at", "2025-11-20T10:35Z"))
    assert (slos.page, slos.window(0).to_unix_ns) == ("slos", 1_763_634_900 * 10**9)
    assert page_link("http://x", "slo", []) == "http://x/?page=slos"
    assert opened("slo", ("at", "0")).window(0).to_unix_ns == 10**9
    assert opened("cost", ("by", "model")).per == "model"
    assert opened("cost", ("by", "model,tenant")).per == "tenant"
    changes = (("set", "max_num_seqs=64"), ("rate", "tenant=acme:2x"), ("replicas", "3"))
    assert set(opened("what-if", *changes).change.split(",")) == {
        *("max_num_seqs=64", "rate=tenant=acme:2x", "replicas=3")
    }
    assert opened("what-if", ("sweep", "rate=1x..4x")).sweep == "rate=1x..4x"
    rates = [("rate", f"tenant=tenant-{number}:2x") for number in range(20)]
    assert len(opened("what-if", *rates).change.split(",")) == 20


def _compared(*given: tuple[str, str]) -> View:
    link = page_link("http://x", "compare", given)
    assert link is not None
    view, notices = parse(dict(parse_qsl(link.partition("/?")[2])))
    assert notices == []
    assert view.page == "compare"
    return view


def test_the_link_of_a_comparison_has_both_sides() -> None:
    ranges = [("before", "1763634000/1763634900"), ("after", "2025-11-20T10:35Z/1763635800")]
    view = _compared(*ranges, ("metric", "tpot"), ("quantile", "p99"), ("where", "tenant=a"))
    assert view.window(0) == Window(1_763_634_900 * 10**9, 1_763_635_800 * 10**9)
    assert view.baseline == Window(1_763_634_000 * 10**9, 1_763_634_900 * 10**9)
    assert (view.metric, view.quantile, view.equals) == ("tpot", "p99", {"tenant": "a"})
    among = [("from", "1763634000"), ("to", "1763634900")]
    canary = _compared(*among, ("before-where", "replica=blue=0"), ("after-where", "replica=green"))
    assert (canary.split, canary.before, canary.after) == ("replica", "blue=0", "green")
    assert canary.window(0) == Window(1_763_634_000 * 10**9, 1_763_634_900 * 10**9)
    tenants = [("before-where", "tenant=a"), ("after-where", "tenant=b")]
    assert page_link("http://x", "compare", [*among, *tenants]) is None
    assert page_link("http://x", "compare", [*ranges, ("after-where", "replica=b")]) is None
