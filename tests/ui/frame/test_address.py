from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.compare.question import SPLITS
from analysis.over_time.time_bins import SECOND_NS
from telemetry.labels import MAX_ID_CHARS
from telemetry.window import Window
from ui.frame import address
from ui.frame.pages import BY_KEY
from ui.frame.view import (
    BUDGETS,
    CONTENT,
    DECIDERS,
    LABELS,
    LATENCIES,
    PAYERS,
    RANGES_S,
    STEPS,
    View,
)
from ui.kit.replica_measures import MEASURES
from ui.kit.request_key import RequestKey

NOW = 1_763_635_452 * SECOND_NS
Instants = st.integers(0, 9_000_000_000 * SECOND_NS)
Keys = st.builds(
    lambda at, trace, span: RequestKey(at, f"{trace:032x}", f"{span:016x}"),
    st.none() | Instants,
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
)
Baselines = st.builds(
    lambda at, length: Window(at, at + length), Instants, st.integers(1, 86_400 * SECOND_NS)
)


@st.composite
def the_views(draw: Any) -> View:
    equals = draw(st.dictionaries(st.sampled_from(LABELS[:-1]), st.text(min_size=1), max_size=4))
    page = BY_KEY[draw(st.sampled_from(list(BY_KEY)))]
    shown = [
        each for each in LATENCIES if each != CONTENT or page.by_content or not page.by_latency
    ]
    view = View(
        latency=LATENCIES[draw(st.sampled_from(shown))],
        equals=equals,
        request=draw(st.none() | Keys),
        page=page.key,
        baseline=draw(st.none() | Baselines | st.sampled_from(["24h", "7d", "90m"])),
        decide=draw(st.sampled_from(DECIDERS)),
        by=draw(st.sampled_from(STEPS)),
        measure=draw(st.sampled_from(list(MEASURES))),
        per=draw(st.sampled_from(PAYERS)),
        budget=draw(st.sampled_from(BUDGETS)),
        sweep=draw(st.sampled_from(["", "max_num_seqs=16..512", "rate=1x,1.5x"])),
    )
    split = draw(st.sampled_from(["", *SPLITS]))
    before, after = (draw(st.text(max_size=9)) if split else "" for _ in range(2))
    view = replace(view, split=split, before=before, after=after)
    start = draw(Instants)
    reached = (
        view.following(draw(st.sampled_from(list(RANGES_S)))),
        view.following("1h").paused_at(start),
        view.between(start, start + draw(st.integers(1, 86_400 * SECOND_NS))),
    )
    incident = draw(st.none() | st.text(min_size=1, max_size=MAX_ID_CHARS))
    return replace(reached[draw(st.integers(0, 2))], incident=incident)


@given(the_views())
def test_a_link_reproduces_the_view(view: View) -> None:
    assert address.parse(address.parameters(view), view.page) == (view, [])


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("last", "from", "to", "latency", "outcome", "request", "model", "x"),
                *("page", "baseline", "decide", "by", "measure", "incident"),
                *("split", "before", "after"),
            ]
        ),
        st.text(max_size=40),
    )
)
def test_no_address_breaks_the_page(parameters: dict[str, str]) -> None:
    view, notices = address.parse(parameters)
    window = view.window(NOW)
    assert window.from_unix_ns <= window.to_unix_ns
    assert all(len(notice) < 400 for notice in notices)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"last": "7 years"}, "last"),
        ({"latency": "<script>"}, "latency"),
        ({"outcome": "exploded"}, "outcome"),
        ({"request": "../../etc/passwd"}, "request"),
        ({"request": "99999999999999999999-a-b"}, "request"),
        ({"from": "1763600000"}, "both from and to"),
        ({"from": "1763600000", "to": "1763500000"}, "end after it begins"),
        ({"from": "0", "to": "1763500000"}, "400 days"),
        ({"from": "then", "to": "now"}, "ISO 8601"),
        ({"from": "1e400", "to": "nan"}, "ISO 8601"),
        ({"from": "٣", "to": "٤"}, "ISO 8601"),
        ({"last": "15m", "to": "99999999999"}, "ISO 8601"),
        ({"last": "15m", "to": "9999999999"}, "“9999999999”; allowed: times before 2262-04-11."),
        ({"last": "15m", "to": "2300-01-01"}, "allowed: times before 2262-04-11."),
        ({"last": "15m", "to": "1960-01-01"}, "ISO 8601"),
        ({"page": "<script>"}, "slos, root-cause"),
        ({"baseline": "yesterday"}, "FROM/TO"),
        ({"baseline": "5/1"}, "FROM/TO"),
        ({"baseline": "0/1763500000"}, "400 days"),
        ({"decide": "me"}, "slo, size"),
        ({"split": "tenant"}, "replica, config, version"),
        ({"q": "x"}, "“q”"),
        ({"last": "a" * 10_000}, "…"),
    ],
)
def test_invalid_parameters_have_a_notice(parameters: dict[str, str], named: str) -> None:
    view, notices = address.parse(parameters)
    assert any(named in notice for notice in notices)
    assert view.live
    assert view.last == "15m"
    assert view.request is None


def test_times_are_read_as_unix_seconds_or_iso_8601() -> None:
    for start, end in (
        ("1763635452", "1763639052.5"),
        ("2025-11-20T10:44:12Z", "2025-11-20T11:44:12.5"),
        ("2025-11-20T11:44:12+01:00", "2025-11-20T11:44:12.500000+00:00"),
    ):
        view, notices = address.parse({"from": start, "to": end})
        assert not notices
        assert view.from_unix_ns == NOW
        assert view.to_unix_ns == NOW + 3600 * SECOND_NS + SECOND_NS // 2


def test_a_live_window_follows_the_clock_and_a_paused_one_does_not() -> None:
    live = View(last="5m")
    assert live.window(NOW).to_unix_ns == NOW
    assert live.window(NOW).from_unix_ns == NOW - 300 * SECOND_NS
    paused = live.paused_at(NOW)
    assert paused.window(NOW + SECOND_NS) == live.window(NOW)
    assert paused.following("5m") == live


@pytest.mark.parametrize(
    ("parameters", "page"),
    [
        ({}, "overview"),
        ({"last": "1h"}, "overview"),
        ({"latency": "queue"}, "requests"),
        ({"request": f"{NOW}-{'ab' * 16}-{'cd' * 8}"}, "request"),
        ({"latency": "queue", "page": "root-cause"}, "root-cause"),
        ({"page": "why", "incident": "chat"}, "root-cause"),
        ({"page": "promises"}, "slos"),
        ({"page": "hurt", "latency": "queue"}, "overview"),
    ],
)
def test_old_links_open_the_same_pages(parameters: dict[str, str], page: str) -> None:
    """Older dashboards and notifications contain such links."""
    assert address.parse(parameters)[0].page == page
    moved = address.moved(urlencode(parameters))
    assert (moved or "overview").partition("?")[0] == page
    if moved is not None:
        asked = dict(parse_qsl(moved.partition("?")[2]))
        assert asked == {name: value for name, value in parameters.items() if name != "page"}


KEY = RequestKey(None, "ab" * 16, "cd" * 8)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (f" {KEY} ", KEY),
        (str(KEY).upper(), KEY),
        (f"https://host/base/?last=1h&page=request&request={'ab' * 16}%2F{'cd' * 8}", KEY),
        ("?page=request&request=chatcmpl-1", "chatcmpl-1"),
        ("https://host/without", "https://host/without"),
        (" chatcmpl-1\n", "chatcmpl-1"),
        ("12345-abc-def", "12345-abc-def"),
        ("cafe/babe", "cafe/babe"),
        ("x" * 10_000, "x" * MAX_ID_CHARS),
        ("  ", None),
    ],
)
def test_pasted_text_is_a_link_a_key_or_words(text: str, meant: RequestKey | str | None) -> None:
    assert address.pasted(text) == meant


def test_a_request_id_is_used_only_on_the_request_page() -> None:
    asked = {"request": "chatcmpl-1", "page": "request"}
    view, notices = address.parse(asked)
    assert (view.request, notices) == ("chatcmpl-1", [])
    assert address.parameters(view) == {"request": "chatcmpl-1", "last": "15m"}
    assert "request" not in address.parameters(replace(view, page="root-cause"))
    view, notices = address.parse({"request": "chatcmpl-1", "page": "root-cause"})
    assert view.request is None
    assert "request is “chatcmpl-1”" in notices[0]


def test_a_link_opens_the_view_and_omits_long_values() -> None:
    view = View(page="request", request=KEY, equals={"tenant": "a&b", "model": "w" * 10_000})
    link = address.link(view)
    assert len(link) < 200
    path, _, query = link.partition("?")
    reached, notices = address.parse(dict(parse_qsl(query)), path)
    assert (reached, notices) == (replace(view, equals={"tenant": "a&b"}), [])


def test_a_change_that_is_too_long_is_refused_as_a_whole() -> None:
    """The beginning of a change is another change: max_num_seqs=2048 becomes max_num_seqs=2."""
    rates = [f"rate=tenant=t{number}:2x" for number in range(200)]
    change = ",".join(rates[:60])
    view, notices = address.parse({"change": change}, "what-if")
    assert (view.change, notices) == (change, [])
    assert dict(parse_qsl(address.link(view).partition("?")[2]))["change"] == change
    for name in ("change", "sweep"):
        view, (notice,) = address.parse({name: ",".join(rates)}, "what-if")
        assert getattr(view, name) == ""
        assert f"allowed: at most {address.LONGEST_CHANGE:,}" in notice


@pytest.mark.parametrize("page", ["requests", "compare", "what-if"])
def test_a_page_without_the_first_content_shows_ttft(page: str) -> None:
    """Links to these pages omit the latency. If an address contains it, a notice appears."""
    chosen = View(latency=LATENCIES[CONTENT], page="root-cause")
    assert address.parse(address.parameters(chosen), "root-cause") == (chosen, [])
    assert "latency" not in address.parameters(replace(chosen, page=page))
    view, (notice,) = address.parse({"last": "15m", "latency": CONTENT}, page)
    assert view.latency == "ttft_s"
    assert "allowed: ttft, itl_max, tpot, e2e, queue. Now showing ttft" in notice
