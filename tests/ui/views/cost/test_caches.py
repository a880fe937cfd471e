import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from store.database import open_database
from store.writer import Writer
from telemetry.cache_lookups import CacheKind, CacheLookup, CacheResult
from tests.ui.opening import HOSTILE, Database, Open, markup
from tests.ui.views.cost.test_page import RANGE, SECOND_NS, START_S
from tests.ui.views.cost.test_page import priced as priced


def _store(url: str, lookups: list[CacheLookup]) -> None:
    engine = open_database(url)
    with Writer(engine) as writer:
        writer.submit([], [], lookups=lookups).result(10)
    engine.dispose()


def _lookup(number: int, **about: Any) -> CacheLookup:
    known: dict[str, Any] = {
        "trace_id": f"{number + 1:032x}",
        "span_id": f"{number + 1:016x}",
        "at_unix_ns": (START_S + 60 + number) * SECOND_NS,
        "result": CacheResult.HIT if number % 4 else CacheResult.MISS,
        "cache": "litellm",
        "kind": CacheKind.SEMANTIC,
        "duration_s": 0.02,
        "similarity": 0.85 + 0.1 * (number % 4 > 0),
        "tenant": "acme",
        "route": "/v1/chat/completions",
        "model": "llama-3-8b",
    }
    return CacheLookup(**{**known, **about})


def test_hits_are_shown_beside_the_bill_and_not_in_it(
    page: Open, priced: Callable[..., str], tmp_path: Path
) -> None:
    plain = priced()
    url = f"sqlite:///{tmp_path}/cached.db"
    shutil.copy(plain.removeprefix("sqlite:///"), f"{tmp_path}/cached.db")
    _store(url, [_lookup(number) for number in range(40)])
    before, text = (markup(page(each, **RANGE)) for each in (plain, url))
    assert "Caches in front of the model" not in before
    assert "answered <b>75 %</b> [60 % to 86 %] of 40 lookups" in text
    headline = before[before.index("<p class='headline'>") :].partition("</p>")[0]
    assert "100 requests" in headline
    assert headline in text
    other = markup(page(url, **RANGE, replica="r1"))
    assert "Lookups have no replica, so this filter does not apply." in other
    assert "Caches in front of the model" not in markup(page(url, **RANGE, tenant="globex"))


def test_caches_are_shown_without_engines(page: Open, database: Database, one_request: Any) -> None:
    url = database([one_request(1)], [])
    _store(url, [_lookup(number) for number in range(8)])
    shown = markup(page(url, **RANGE))
    assert "No engine reported in this range" in shown
    assert "Caches in front of the model answered <b>75 %</b>" in shown


def test_hostile_names_are_text(page: Open, database: Database, one_request: Any) -> None:
    url = database([one_request(1)], [])
    _store(url, [_lookup(1, tenant=HOSTILE, route=HOSTILE), _lookup(2, similarity=None)])
    shown = markup(page(url, **RANGE))
    assert "Caches in front of the model" in shown
    assert HOSTILE not in shown
