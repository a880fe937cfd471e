"""Named values are complete, or the answer reports missing requests."""

import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import Engine, and_, select

from analysis.stats import StatsQuestion, answer_stats
from store import dialects
from store.access.restricted import restricted
from store.connections import writing
from store.rollups import label_sets as label_sets_module
from store.rollups import names as names_module
from store.rollups.bucket_builder import build_marked
from store.rollups.coded_labels import LabelSet
from store.rollups.fair_share import fair_share
from store.rollups.incomplete_groups import IncompleteGroups
from store.rollups.label_sets import LabelSets
from store.rollups.label_storage import label_sets_since, load_names
from store.rollups.marks import begin
from store.rollups.names import LIMITS, OWNED, LabelValues, Occurrence
from store.rollups.queries import Rollups, rollups
from store.rollups.request_rollups import COLUMNS, buckets_of
from store.rollups.tables import (
    BINS,
    GROUPINGS,
    HOUR_S,
    LABEL_SETS,
    LABELS,
    MINUTE_S,
    NAMED,
    NAMES,
    ROLLUPS,
)
from telemetry.access import Access, Grant
from telemetry.labels import OTHER
from telemetry.requests import RequestTimeline
from telemetry.sketches import IntArray
from telemetry.window import Window

S = 1_000_000_000
START_S = 1_763_632_800
LATER_S = START_S + 30 * 86_400
HOUR = Window(START_S * S, (START_S + HOUR_S) * S)

Requests = Callable[..., RequestTimeline]
Write = Callable[..., None]


def occurred(*values: str, owner: str = "", requests: int = 1) -> dict[str, Occurrence]:
    return {value: Occurrence(requests, owner) for value in values}


def table_of(**columns: Sequence[str | None]) -> pa.Table:
    """Requests with these labels; all other columns are null."""
    number = len(next(iter(columns.values())))
    texts = {*LABELS, "source"} - {"streamed"}
    plain = {
        name: pa.nulls(number, pa.string() if name in texts else pa.float64()) for name in COLUMNS
    }
    given = {name: pa.array(values, pa.string()) for name, values in columns.items()}
    return pa.table(
        {
            **plain,
            "streamed": pa.nulls(number, pa.bool_()),
            "source": pa.repeat("instrumentation", number),
            "outcome": pa.repeat("stop", number),
            "ttft_s": pa.array(np.full(number, 0.1)),
            **given,
        }
    )


def by_label(
    table: pa.Table, label_sets: LabelSets, label: str, from_unix_s: int = 0
) -> dict[str | None, int]:
    """The number of requests by value, from the label's own grouping."""
    buckets, meaning = buckets_of(table, label_sets, from_unix_s)
    sums = buckets[False].sums[grouping_of(label)]
    found: Counter[str | None] = Counter()
    for cell, number in zip(sums.cells.tolist(), sums.requests.tolist(), strict=True):
        found[meaning[cell][LABELS.index(label)]] += number
    return dict(found)


def grouping_of(label: str) -> int:
    return next(i for i, kept in enumerate(GROUPINGS) if i and kept[-1] == label)


def asked(engine: Engine, window: Window = HOUR, **about: Any) -> Rollups:
    found = rollups(engine, window, **about)
    assert found is not None
    return found


def test_each_owner_receives_places_in_turn() -> None:
    owners = np.array([0] * 100 + [1, 1, 2])
    rank = np.arange(103)
    found = fair_share(owners, (rank,), 5)
    assert found.tolist() == [0, 100, 102, 1, 101]
    assert fair_share(owners, (rank,), 200).size == 103
    assert fair_share(np.zeros(0, np.int64), (np.zeros(0),), 5).size == 0


def test_free_places_go_to_new_values_at_once() -> None:
    names = LabelValues(2)
    assert names.assign(occurred("a", "b"), 0) == {"a", "b"}
    assert names.assign(occurred("b", "c"), 60) == {"b"}
    assert set(names.named()) == {"a", "b"}
    assert names.known["c"].named_from_unix_s is None


def test_a_lasting_value_takes_the_place_of_a_burst_but_a_burst_takes_none() -> None:
    names = LabelValues(2)
    names.assign(occurred("burst-1", "burst-2", requests=1_000_000), 0)
    for hour in range(3):
        assert ("acme" in names.assign(occurred("acme"), hour * HOUR_S)) == (hour == 2)
    # complete from the next minute on
    assert names.known["acme"].named_from_unix_s == 2 * HOUR_S + MINUTE_S
    for hour in range(2, 8):
        names.assign(occurred("acme", *(f"{hour}-{n}" for n in range(9)), requests=99), 3600 * hour)
        assert "acme" in set(names.named())


def test_a_value_without_requests_for_a_day_frees_its_place() -> None:
    names = LabelValues(1)
    names.assign(occurred("a"), 0)
    assert names.assign(occurred("b"), HOUR_S) == set()
    assert names.assign(occurred("b"), 26 * HOUR_S) == {"b"}
    assert "a" not in names.known
    assert "a" in names.changed


def test_late_requests_count_in_their_hour() -> None:
    names = LabelValues(5)
    names.assign(occurred("a"), 30 * HOUR_S)
    names.assign(occurred("a"), 28 * HOUR_S)
    assert names.known["a"].hours == 0b101
    names.changed.clear()
    names.assign(occurred("a"), 28 * HOUR_S)
    names.assign(occurred("a"), 0)
    assert not names.changed
    names.assign(occurred("a"), 300 * HOUR_S)
    assert names.known["a"].hours == 1


def test_one_tenants_routes_do_not_take_the_places_of_others() -> None:
    for label in OWNED:
        sets = LabelSets(names={**LabelSets().names, label: LabelValues(10, owned=True)})
        flood = [f"/{n}" for n in range(500)]
        table = table_of(**{"tenant": ["flood"] * 500, label: flood})
        assert by_label(table, sets, label)[OTHER] == 490
        mine = table_of(tenant=["acme", "bravo"], **{label: ["/acme", "/bravo"]})
        assert by_label(mine, sets, label, 60) == {"/acme": 1, "/bravo": 1}
        # the flood continues, and its values occur in more hours
        for hour in range(1, 5):
            buckets_of(table, sets, hour * HOUR_S)
        assert by_label(mine, sets, label, 5 * HOUR_S) == {"/acme": 1, "/bravo": 1}


def test_one_tenants_label_sets_do_not_take_the_places_of_others() -> None:
    sets = LabelSets(sets=20)
    flood = table_of(tenant=["flood"] * 300, route=[f"/{n % 150}" for n in range(300)])
    buckets_of(flood, sets, 0)
    mine = table_of(tenant=["acme"] * 3, route=["/a", "/b", "/c"])
    together = pa.concat_tables([flood, mine])
    buckets, meaning = buckets_of(together, sets, 60)
    routes = {
        meaning[cell][LABELS.index("route")]
        for cell in buckets[False].sums[0].cells.tolist()
        if meaning[cell][LABELS.index("tenant")] == "acme"
    }
    assert routes == {"/a", "/b", "/c"}
    assert buckets[False].sums[0].requests.sum() == 303


def test_every_named_value_has_all_its_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Too many combinations for any limit on label sets."""
    drawn = np.random.default_rng(3)
    number = 15_000
    columns = {
        "model": [f"m{n}" for n in drawn.integers(0, 3, number)],
        "tenant": [f"t{n}" for n in drawn.integers(0, 2_000, number)],
        "replica": [f"r{n}" for n in drawn.integers(0, 300, number)],
        "route": [f"/{n}" for n in drawn.integers(0, 4, number)],
    }
    table = table_of(**columns)
    sets = LabelSets()
    for label, values in columns.items():
        if label in NAMED:
            assert by_label(table, sets, label) == dict(Counter(values))
    buckets, _ = buckets_of(table, sets, 0)
    full = buckets[False].sums[0]
    assert len(full.cells) <= 3 * sets.sets + 3
    assert full.requests.sum() == number
    # The models of each value are limited too, but the value's sum stays complete.
    monkeypatch.setattr(label_sets_module, "MODELS_EACH", 1)
    sets = LabelSets(names={**LabelSets().names, "tenant": LabelValues(2_000)})
    assert by_label(table, sets, "tenant") == dict(Counter(columns["tenant"]))
    pairs = {(labels[3], labels[0]) for labels in sets.known if labels[3] and labels[0] != OTHER}
    assert len(pairs) > 2_000


def test_hostile_names_have_bounded_memory() -> None:
    limit = 100
    sets = LabelSets(
        names={label: LabelValues(limit, label in OWNED) for label in LabelSets().names}, sets=50
    )
    tracemalloc.start()
    used = []
    for hour in range(4):
        names = [f"{hour}-{n}-{'x' * 50}" for n in range(1_500)]
        table = table_of(**dict.fromkeys(("model", *NAMED), names))
        buckets_of(table, sets, hour * HOUR_S)
        used.append(tracemalloc.get_traced_memory()[0])
        for each in sets.names.values():
            assert len(each.known) <= 2 * limit
            assert len(list(each.named())) <= limit
        sets.stored()
    tracemalloc.stop()
    assert used[-1] < used[0] + 2_000_000
    alive = Counter(each.grouping for each in sets.known.values())
    assert alive[0] <= 4 * (3 * 50 + 100)


def fleet(request_row: Requests, number: int, tenants: int, replicas: int) -> list[RequestTimeline]:
    drawn = random.Random(5)
    return [
        request_row(
            n,
            received_unix_ns=(START_S + drawn.randrange(600)) * S,
            tenant=f"t{n % tenants}",
            replica=f"r{drawn.randrange(replicas)}",
            model="m",
        )
        for n in range(number)
    ]


def counted(engine: Engine, **about: Any) -> dict[LabelSet, int]:
    question = asked(engine, **about)
    sums = question.sums(())
    return {
        question.groups[cell]: number
        for cell, number in zip(sums.cells.tolist(), sums.requests.tolist(), strict=True)
    }


def test_answers_say_which_groups_are_incomplete(
    engine: Engine, write: Write, request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = fleet(request_row, 120, tenants=20, replicas=10)
    write(*rows)
    _limit_sets(monkeypatch, 5)
    build_marked(engine, LATER_S)
    for label in ("tenant", "replica"):
        question = asked(engine, by=(label,))
        question.sums(())
        assert counted(engine, by=(label,)) == Counter((getattr(row, label),) for row in rows)
        assert question.hidden().requests == question.hidden().other == 0
    question = asked(engine, by=("tenant", "replica"))
    question.sums(())
    found = counted(engine, by=("tenant", "replica"))
    hidden = question.hidden()
    assert sum(found.values()) == 120
    truth: Counter[LabelSet] = Counter((row.tenant, row.replica) for row in rows)
    for group, number in found.items():
        if OTHER not in group:
            assert number == truth[group] or group in hidden.groups
    assert hidden.groups
    assert hidden.other == sum(n for group, n in found.items() if OTHER in group)
    # a filtered query may lack requests, too
    filtered = asked(engine, by=("tenant",), equals={"replica": "r1"})
    filtered.sums(())
    mine = sum(row.replica == "r1" for row in rows)
    shown = counted(engine, by=("tenant",), equals={"replica": "r1"})
    assert sum(shown.values()) + filtered.hidden().requests >= mine

    answer = answer_stats(engine, StatsQuestion(HOUR, by=("tenant", "replica"), precision="sketch"))
    assert answer.hidden == hidden.requests
    assert any(group["partial"] for group in answer.groups)
    exact = answer_stats(engine, StatsQuestion(HOUR, by=("tenant",), precision="exact"))
    assert not any(group["partial"] for group in exact.groups)


def _limit_sets(monkeypatch: pytest.MonkeyPatch, sets: int) -> None:
    made = LabelSets

    def limited(**about: Any) -> LabelSets:
        return made(**about, sets=sets)

    monkeypatch.setattr("store.rollups.request_rollups.LabelSets", limited)


def test_a_name_that_was_given_later_is_incomplete_before(
    engine: Engine, write: Write, request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_module, "LIMITS", {**names_module.LIMITS, "tenant": 1})
    monkeypatch.setattr(label_sets_module, "LIMITS", names_module.LIMITS)

    def send(number: int, at_s: int, tenant: str) -> None:
        write(request_row(number, received_unix_ns=at_s * S, tenant=tenant))
        build_marked(engine, at_s + 2 * HOUR_S)

    send(1, START_S, "burst")
    for hour in range(4):
        send(2 + hour, START_S + hour * HOUR_S + 120, "acme")
    day = Window(START_S * S, (START_S + 4 * HOUR_S) * S)
    question = asked(engine, day, by=("tenant",))
    question.sums(())
    assert counted(engine, window=day, by=("tenant",)) == {
        ("burst",): 1,
        (OTHER,): 2,
        ("acme",): 2,
    }
    assert question.hidden().groups == {("acme",), ("burst",)}
    later = Window((START_S + 3 * HOUR_S) * S, (START_S + 4 * HOUR_S) * S)
    question = asked(engine, later, by=("tenant",))
    question.sums(())
    assert question.hidden().groups == frozenset()
    assert asked(engine, day).hidden().requests == 0
    unnamed = asked(engine, day, equals={"tenant": "elsewhere"})
    assert unnamed.sums(()).requests.tolist() == []
    assert unnamed.hidden().requests == 2


@pytest.mark.parametrize("grant", [Grant(frozenset({"t0"})), Grant(None, frozenset({"m"}))])
def test_groups_by_several_labels_are_complete_for_a_limited_reader(
    engine: Engine,
    write: Write,
    request_row: Requests,
    monkeypatch: pytest.MonkeyPatch,
    grant: Grant,
) -> None:
    write(*fleet(request_row, 60, tenants=4, replicas=3))
    build_marked(engine, LATER_S)
    limited = restricted(engine, Access.of([grant]))
    question = asked(limited, by=("tenant", "replica"))
    question.sums(())
    assert question.hidden() == IncompleteGroups()

    # with too many combinations, they are incomplete
    _limit_sets(monkeypatch, 2)
    write(request_row(1_000, received_unix_ns=START_S * S, tenant="t0", model="m"))
    build_marked(engine, LATER_S)
    question = asked(limited, by=("tenant", "replica"))
    question.sums(())
    assert question.hidden().groups


@pytest.mark.parametrize(
    ("tenants", "missing"), [(None, 4), (frozenset({"t0"}), 1)], ids=["all tenants", "one tenant"]
)
def test_a_reader_of_one_model_is_told_of_requests_without_their_model(
    engine: Engine,
    write: Write,
    request_row: Requests,
    monkeypatch: pytest.MonkeyPatch,
    tenants: frozenset[str] | None,
    missing: int,
) -> None:
    """There is room for one model of each tenant."""
    limits = {**names_module.LIMITS, "tenant": 4}
    for module in (names_module, label_sets_module):
        monkeypatch.setattr(module, "LIMITS", limits)
    monkeypatch.setattr(label_sets_module, "MODELS_EACH", 1)
    rows = [
        request_row(n, received_unix_ns=START_S * S, tenant=f"t{n % 4}", model="mxx"[n // 4])
        for n in range(12)
    ]
    write(*rows)
    build_marked(engine, LATER_S)
    limited = restricted(engine, Access.of([Grant(tenants, frozenset({"m"}))]))
    question = asked(limited, by=("tenant",))
    assert question.sums(()).requests.sum() == 0
    assert question.number() == missing
    assert question.hidden().requests == missing
    whole = asked(limited, by=("tenant", "replica"))
    assert whole.sums(()).requests.sum() == missing
    assert whole.hidden().requests == 0


def test_rollups_of_an_older_version_are_still_read(
    engine: Engine, write: Write, request_row: Requests
) -> None:
    """They have only two groupings, whose label sets have all labels."""
    rows = fleet(request_row, 60, tenants=4, replicas=3)
    write(*rows)
    build_marked(engine, LATER_S)
    truth = Counter((row.tenant,) for row in rows)
    remove = dialects.of(engine).remove

    def first(total: IntArray) -> IntArray:
        return np.ones((total.size, 1), np.int64)

    for before_s in (START_S + 300, LATER_S):  # some minutes, and all
        with writing(engine) as connection:
            for table in (ROLLUPS, BINS):
                older = table.c.from_unix_s < before_s
                remove(connection, table, and_(table.c.grouping > 1, older))
            if before_s == LATER_S:
                remove(connection, NAMES, NAMES.c.hours >= 0)
                remove(connection, LABEL_SETS, LABEL_SETS.c.grouping > 0)
        for step_s in (60, 3600):
            question = asked(engine, by=("tenant",), step_s=step_s)
            assert question.sums(()).requests.sum() == 60
            assert question.quantiles("e2e_s", first).number.sum() == 60
        assert counted(engine, by=("tenant",)) == truth
        assert counted(engine, by=("model",)) == {("m",): 60}
        # some requests of these tenants may be stored without their tenant
        for tenants in (frozenset({"t0"}), frozenset({"t0", "t1"})):
            limited = restricted(engine, Access.of([Grant(tenants)]))
            question = asked(limited, by=("tenant",))
            own = sum(truth[(each,)] for each in tenants)
            assert question.sums(()).requests.sum() == own
            assert question.hidden().groups == {(each,) for each in tenants}


@pytest.mark.parametrize("label", ["tenant", "model"])
def test_a_limited_reader_is_told_that_own_requests_may_lack_their_name(
    engine: Engine,
    write: Write,
    request_row: Requests,
    monkeypatch: pytest.MonkeyPatch,
    label: str,
) -> None:
    """Such requests are not in the reader's label sets, so they cannot be counted."""
    monkeypatch.setattr(label_sets_module, "LIMITS", {**LIMITS, label: 1})
    values = ["named", "named", "late"]
    received = [START_S * S, (START_S + 1) * S, (START_S + 2) * S]
    rows = [
        request_row(n, received_unix_ns=at, **{"tenant": "t", "model": "m", label: value})
        for n, (value, at) in enumerate(zip(values, received, strict=True))
    ]
    write(*rows)
    build_marked(engine, LATER_S)
    for visible, marked in ((("named",), set()), (("late", "named"), {("named",)})):
        names = frozenset(visible)
        grant = Grant(names, None) if label == "tenant" else Grant(None, names)
        question = asked(restricted(engine, Access.of([grant])), by=(label,))
        assert question.sums(()).requests.tolist() == [2]
        assert question.hidden().groups == marked


def test_label_sets_of_a_later_bucket_are_found_after_an_older_one_is_rebuilt(
    engine: Engine, write: Write, request_row: Requests
) -> None:
    begin(engine)
    for day in (5, 0, 5):
        at = START_S + day * 86_400
        write(request_row(day, received_unix_ns=at * S, span_id=f"{day:016x}", tenant="x"))
        build_marked(engine, at + 7_200)
    newest = [each.newest_unix_s for each in label_sets_since(engine, 0).values()]
    assert min(newest) >= START_S + 5 * 86_400 - HOUR_S
    assert set(load_names(engine)["tenant"].known) == {"x"}


def test_label_sets_are_found_by_number_if_their_time_is_wrong(
    engine: Engine, write: Write, request_row: Requests
) -> None:
    write(*fleet(request_row, 30, tenants=30, replicas=1))
    build_marked(engine, LATER_S)
    with writing(engine) as connection:
        rows = [dict(row) for row in connection.execute(select(LABEL_SETS)).mappings()]
        older = [{**row, "newest_unix_s": START_S - 10 * HOUR_S} for row in rows]
        dialects.of(engine).upsert(connection, LABEL_SETS, older)
    assert len(counted(engine, by=("tenant",))) == 30
