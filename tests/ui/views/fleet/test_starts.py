from datetime import UTC

from analysis.starts import FirstRequest, Start
from telemetry.cold_starts import PARTS
from tests.cold_starts import START_NS, cold_start
from tests.ui.opening import HOSTILE
from ui.views.fleet import starts
from ui.views.fleet.starts import MAX_BARS, Starts, as_html, shown_starts

S = 10**9


def test_the_last_start_of_each_engine_and_those_in_the_range_are_shown() -> None:
    known = [
        cold_start(0, replica="old"),
        cold_start(10),
        cold_start(20, engine=1),
        cold_start(100),
        cold_start(200),
    ]
    assert shown_starts(known, START_NS + 150 * S) == [known[0], known[2], known[3], known[4]]
    assert shown_starts(known, START_NS + 10_000 * S) == [known[0], known[2], known[4]]
    many = [cold_start(number) for number in range(50)]
    assert shown_starts(many, START_NS) == many[-MAX_BARS:]
    loop = [cold_start(100 + number, replica="crashes") for number in range(MAX_BARS)]
    shown = shown_starts([*known, *loop], START_NS)
    assert shown == [known[0], known[2], known[4], *loop[-MAX_BARS + 3 :]]


def test_each_part_is_a_segment_of_the_bar_and_a_cell() -> None:
    html = as_html(Starts([cold_start()]), UTC)
    assert html.count("<i style=") == 10
    widths = [float(each.partition("%")[0]) for each in html.split("<i style='width:")[1:]]
    assert abs(sum(widths) - 100) < 0.1
    assert "title='weights: 20.0 s'" in html
    assert "<th>sum</th>" in html
    assert "Longest start (a): the weights took longest (20 s)" in html


def test_the_bars_and_the_table_have_the_newest_start_first() -> None:
    html = as_html(Starts([cold_start(0, replica="older"), cold_start(100, replica="newer")]), UTC)
    for shown in html.split("<table", 1):
        assert shown.index("newer") < shown.index("older")


def test_every_part_has_a_colour() -> None:
    assert starts.COLOURS.keys() == set(PARTS)


def test_slow_first_requests_are_named() -> None:
    first = FirstRequest(256, 512, 3.0, 0.05, 29)
    html = as_html(Starts([cold_start()], [Start(cold_start(), [first], 1)]), UTC)
    assert ": the first request that computed 256 to 511 prompt tokens took 2.95 s longer" in html


def test_hostile_names_are_escaped_and_missing_starts_explained() -> None:
    html = as_html(Starts([cold_start(replica=HOSTILE)]), UTC)
    assert HOSTILE not in html
    assert "No engine reported the parts" in as_html(Starts(), UTC)
    empty = as_html(Starts([cold_start(parts={})]), UTC)
    assert "<i style=" not in empty


def test_a_failed_start_has_the_part_in_which_it_failed() -> None:
    failed = cold_start(0, {"imports": 6.0, "weights": 50.0}, reached="weights", failure=HOSTILE)
    html = as_html(Starts([failed, cold_start(100)]), UTC)
    assert "engine 0, failed" in html
    assert "failed after 56 s, in the weights, 50 s into it: " in html
    assert HOSTILE not in html
    assert "Longest start (a): the weights took longest (20 s)" in html
    alone = as_html(Starts([failed]), UTC)
    assert "Longest start" not in alone
