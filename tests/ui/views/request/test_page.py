import time
from functools import partial
from typing import Any

import pytest

from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.probes import PROBE_TENANT
from telemetry.requests import Basis, Outcome, Source
from tests.ui.conftest import fill, fill_pools
from tests.ui.opening import HOSTILE, Database, Open, address, markup

S = 1_000_000_000
START_NS = 1_763_600_000 * S
PARTS = {
    "prefill_s": 1.0,
    "prefill_own_s": 0.4,
    "prefill_others_prefill_s": 0.6,
    "prefill_others_decode_s": 0.0,
    "prefill_preempted_s": 0.0,
    "prefill_stall_s": 0.0,
}


@pytest.fixture
def page(page: Open) -> Open:
    return partial(page, page="request")


def key(request: Any) -> str:
    return f"{request.trace_id}/{request.span_id}"


def samples(replica: str = "r1") -> list[EngineSample]:
    return [
        EngineSample(
            replica=replica,
            engine=0,
            process=1,
            at_unix_ns=START_NS + second * S,
            started_unix_ns=START_NS - 900 * S,
            waiting=second % 3,
            running=8,
            kv_usage_ratio=0.5,
            longest_step_s=0.03,
            steps_total=40 * (second + 900),
            prefill_tokens_total=4000 * (second + 900),
        )
        for second in range(-20, 20)
    ]


def test_one_request_is_complete(
    page: Open, database: Database, one_request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILSPAN_TRACE_URL", "https://traces.example.org/trace/{trace_id}")
    mine = one_request(1, received_unix_ns=START_NS, cost_usd=0.0012, **PARTS)
    other = one_request(
        2, received_unix_ns=START_NS + S // 10, prompt_tokens=9000, cached_tokens=0, tenant="globex"
    )
    url = database([mine, other], samples())
    gpus = [
        GpuSample(
            replica="r1",
            gpu="g0",
            at_unix_ns=START_NS + second * S,
            dram_bandwidth_ratio=0.6,
            sm_clock_hz=10**9,
            sm_clock_max_hz=2 * 10**9,
            throttle_reasons="sw_power_cap",
        )
        for second in range(5)
    ]
    fill(url, [], [], [], gpus)
    test = page(url, request=key(mine))
    shown = markup(test)
    assert test.title[0].value == "Request"
    assert "Most of it: decode <b>1.50 s</b>" in shown
    assert (
        "1 other request shared its engine; the prefills of 1 of them delayed it by 600 ms" in shown
    )
    assert "+600 ms" in shown
    assert f"request={other.trace_id}%2F{other.span_id}" in shown
    assert "was throttled during the request: sw power cap" in shown
    assert f"href='https://traces.example.org/trace/{mine.trace_id}'" in shown
    assert "$0.0012" in shown
    assert len(test.get("plotly_chart")) == 4
    assert f'"trace_id": "{mine.trace_id}"' in test.code[0].value
    assert address(test)["request"] == key(mine)


@pytest.mark.parametrize(
    "row",
    [
        {"tenant": PROBE_TENANT},
        {"source": Source.NATIVE, "basis": Basis.ENGINE},
        {"source": Source.CLIENT, "basis": Basis.CLIENT, "replica": None, "engine": None},
    ],
    ids=["prober", "native", "client"],
)
def test_rows_that_other_pages_leave_out_are_shown(
    page: Open, database: Database, one_request: Any, row: dict[str, Any]
) -> None:
    best = one_request(1, request_id="chatcmpl-mine")
    mine = one_request(2, **{"request_id": "chatcmpl-mine", **row})
    test = page(database([best, mine]), request=key(mine))
    assert ">chatcmpl-mine</b> received" in markup(test)
    assert f'"span_id": "{mine.span_id}"' in test.code[0].value


def test_an_id_may_be_pasted(page: Open, database: Database, one_request: Any) -> None:
    mine = one_request(1, request_id="chatcmpl-mine")
    url = database([mine, one_request(2)])
    test = page(url)
    assert "Enter a request’s id" in markup(test)
    link = f"https://tailspan.example.org/?page=request&last=1h&request={mine.trace_id}%2F"
    for pasted in ("mine", f" {key(mine)} ", mine.trace_id, link + mine.span_id):
        test.text_input("request_id").set_value(pasted).run()
        assert ">chatcmpl-mine</b> received" in markup(test), pasted
    again = page(url, **address(test))
    assert ">chatcmpl-mine</b> received" in markup(again)
    test.text_input("request_id").set_value("").run()
    assert "Enter a request’s id" in markup(test)
    assert "request" not in test.query_params


def test_several_requests_with_one_id_are_listed(
    page: Open, database: Database, one_request: Any
) -> None:
    rows = [one_request(number, trace_id="ab" * 16) for number in (1, 2)]
    test = page(database(rows), request="ab" * 16)
    assert "<b>2 requests</b> have the id" in markup(test)
    assert all(row.span_id in markup(test) for row in rows)


def test_a_missing_request_has_reasons(page: Open, database: Database, one_request: Any) -> None:
    mine = one_request(1, received_unix_ns=START_NS)
    url = database([mine])
    unknown = page(url, request="chatcmpl-nobody<b>")
    assert "No request has the id “chatcmpl-nobody&lt;b&gt;”" in markup(unknown)
    assert "only after it has ended" in markup(unknown)
    assert "tailspan requests --last 1h" in markup(unknown)
    gone = page(url, request=f"{START_NS - 10**15}-{'ab' * 16}-{'cd' * 8}")
    assert "has expired" in markup(gone)
    assert "--keep-rows" in markup(gone)
    empty = page(database(), request="mine")
    assert "pip install ./instrumentation" in empty.code[0].value


def test_a_late_request_is_found_again(page: Open, database: Database, one_request: Any) -> None:
    url = database([one_request(1)])
    test = page(url, request="chatcmpl-late")
    assert "No request has the id" in markup(test)
    fill(url, [one_request(2, request_id="chatcmpl-late")], [])
    assert ">chatcmpl-late</b> received" in markup(test.run())


@pytest.mark.parametrize(
    ("changes", "expected", "charts"),
    [
        ({"outcome": Outcome.ABORT}, "The client disconnected after", 2),
        (
            {"outcome": Outcome.REJECTED, "http_status": 429, "queue_s": None},
            "It did not reach an engine",
            1,
        ),
        ({"source": Source.NATIVE}, "engine's native spans", 2),
        (
            {"source": Source.CLIENT, "replica": None, "queue_s": None},
            "Its replica is unknown",
            1,
        ),
        ({}, "No other request shared its engine.", 2),
        ({"e2e_s": 0.0, "frontend_s": None, "ttft_s": None}, "The response took <b>0 ms</b>", 2),
    ],
)
def test_every_kind_of_row_has_its_page(
    page: Open,
    database: Database,
    one_request: Any,
    changes: dict[str, Any],
    expected: str,
    charts: int,
) -> None:
    known = dict(changes)
    if "queue_s" in known or "frontend_s" in known:
        known |= dict.fromkeys(("queue_s", "prefill_s", "decode_s", "delivery_s"), None)
        known.setdefault("e2e_s", 0.5)
    mine = one_request(1, received_unix_ns=START_NS, **known)
    test = page(database([mine], samples()), request=key(mine))
    assert expected in markup(test)
    assert len(test.get("plotly_chart")) == charts


def test_hostile_labels_are_text(page: Open, database: Database, one_request: Any) -> None:
    names = ("request_id", "tenant", "route", "model", "config", "lora", "region", "error_type")
    labels = dict.fromkeys(names, HOSTILE)
    rows = [one_request(number, received_unix_ns=START_NS, **labels, **PARTS) for number in (1, 2)]
    test = page(database(rows), request=key(rows[0]))
    assert "<script" not in markup(test)
    test.text_input("request_id").set_value(HOSTILE).run()
    assert "No request has the id “&lt;script" in markup(test)
    assert "<script" not in markup(test)


def test_a_wrong_setting_is_reported_with_the_allowed_values(
    page: Open, database: Database, one_request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILSPAN_TRACE_URL", "javascript:{trace_id}<b>")
    mine = one_request(1)
    url = database([mine])
    test = page(url, request=key(mine))
    assert "TAILSPAN_TRACE_URL is" in markup(test)
    assert "it must begin with http:// or https://" in markup(test)
    assert ">chatcmpl" in markup(test)
    monkeypatch.delenv("TAILSPAN_TRACE_URL")
    assert "TAILSPAN_TRACE_URL=https://" in markup(test.run())


def test_lists_of_requests_link_here(page: Open, database: Database, incident: Any) -> None:
    start_s = int(time.time()) - 2_000
    rows = incident(start_s * S, number=60)
    url = database(rows)
    window = {"from": str(start_s + 600), "to": str(start_s + 1200)}
    slow = rows[-1]
    opened = f"{slow.received_unix_ns}-{slow.trace_id}-{slow.span_id}"
    (table,) = page(url, page="requests", **window).get("bidi_component")
    assert f"request?from={window['from']}&to={window['to']}&request={opened}" in str(table.proto)
    why = page(url, page="root-cause", **window)
    assert "Slowest requests" in [each.value for each in why.header]
    (component,) = why.get("bidi_component")
    assert "chatcmpl-" in str(component.proto)


def test_a_request_of_two_servers_shows_both(
    page: Open, database: Database, one_request: Any
) -> None:
    """Each server's row links to its own page. Hostile labels stay text."""
    common = {"trace_id": "ab" * 16, "request_id": "cmpl-x-0", "tenant": HOSTILE}
    first = one_request(
        1,
        **common,
        replica="prefills",
        received_unix_ns=START_NS,
        decode_s=0.0,
        output_tokens=1,
        e2e_s=0.106,
    )
    second = one_request(
        2,
        **common,
        replica="decodes",
        received_unix_ns=START_NS + S // 5,
        cached_tokens=384,
        external_cached_tokens=384,
    )
    url = database([first, second])
    fill_pools(url, START_NS - S, "prefills", "decodes")
    for each in (first, second):
        shown = markup(page(url, request=key(each)))
        assert "The user’s request took <b>1.81 s</b>" in shown
        assert "KV transfer" in shown
        for other in (first, second):
            assert f"request={other.received_unix_ns}-{other.trace_id}-{other.span_id}" in shown
        assert "<script>" not in shown
    listed = markup(page(url, page="requests", **{"from": "1763599900", "to": "1763600100"}))
    assert "joined request" in listed
    assert f"request={second.received_unix_ns}-" in listed
