from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Select,
    Table,
    column,
    func,
    literal_column,
    select,
    table,
    text,
    union_all,
)

from store.access.restricted import (
    READER,
    access_of,
    compared,
    restricted,
    rewritten,
    with_all_rows,
    with_masked_rows,
)
from store.access.tables import RULES
from store.cache_lookups import lookup_count
from store.columns.request_columns import request_columns
from store.connections import read_columns
from store.database import open_database
from store.migrations.all_tables import METADATA, STATE_METADATA
from store.queries import (
    label_values,
    request_count,
    request_schema,
    request_table,
    select_requests,
)
from store.requests.lookup import find_requests
from store.schema import LOOKUPS, REQUESTS
from store.writer import Writer
from telemetry.access import OTHERS, Access, Grant
from telemetry.cache_lookups import CacheLookup, CacheResult
from telemetry.requests import Basis, Outcome, RequestTimeline, Source
from telemetry.store_errors import NotAllowed
from telemetry.window import Window
from tests.store.conftest import put

WINDOW = Window(0, 10**18)
ACME = Access.of([Grant(frozenset({"acme"}), None, costs=False)])


def _request(number: int, **changes: object) -> RequestTimeline:
    known = RequestTimeline(
        trace_id=f"{number:032x}",
        span_id=f"{number:016x}",
        request_id=f"request-{number}",
        received_unix_ns=number * 10**9,
        e2e_s=1.0,
        outcome=Outcome.STOP,
        source=Source.INSTRUMENTATION,
        basis=Basis.HTTP,
        tenant="acme",
        model="m1",
        route="/acme",
        lora="acme-adapter",
        replica="r1",
        cost_usd=0.5,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


ROWS = [
    _request(1),
    _request(2, tenant="globex", route="/globex", lora="globex-adapter"),
    _request(3, tenant=None),
    _request(4, model="m2"),
    _request(5, tenant="globex", model="m2"),
    _request(6, tenant=OTHERS),
    _request(7, tenant="ACME"),
    _request(8, tenant="acme' OR 1=1 --"),
]


@pytest.fixture
def engine(engine: Engine) -> Engine:
    put(engine, *ROWS)
    return engine


def test_each_table_has_a_rule() -> None:
    assert set(RULES) == {*METADATA.tables, *STATE_METADATA.tables}


def test_only_visible_rows_and_columns_are_returned(engine: Engine) -> None:
    seen = request_table(restricted(engine, ACME), WINDOW)
    assert seen["request_id"].to_pylist() == ["request-1", "request-4"]
    assert seen["cost_usd"].to_pylist() == [None, None]
    assert request_table(engine, WINDOW).num_rows == len(ROWS)
    both = Access.of([Grant(frozenset({"acme"}), frozenset({"m2"})), Grant(frozenset({"globex"}))])
    found = restricted(engine, both)
    assert request_table(found, WINDOW)["request_id"].to_pylist() == [
        *("request-2", "request-4", "request-5")
    ]
    assert label_values(found, WINDOW, "tenant") == ["acme", "globex"]
    assert request_count(found, WINDOW, equals={"tenant": "acme", "model": "m1"}) == 0
    assert find_requests(found, "request-1").num_rows == 0
    assert request_columns(found, WINDOW, ["tenant"]).num_rows == 3
    wanted = ["tenant", "received_unix_ns"]
    statement, schema = select_requests(wanted, WINDOW, {}), request_schema(wanted)
    quick = read_columns(found, [statement, statement], schema)
    assert sorted(quick["tenant"].to_pylist()) == sorted(["acme", "globex", "globex"] * 2)
    masked = with_masked_rows(restricted(engine, ACME))
    assert set(read_columns(masked, [statement], schema)["tenant"].to_pylist()) == {"acme", OTHERS}


def test_masked_rows_have_no_names(engine: Engine) -> None:
    seen = request_table(with_masked_rows(restricted(engine, ACME)), WINDOW)
    assert seen.num_rows == len(ROWS)
    rows = {each["received_unix_ns"] // 10**9: each for each in seen.to_pylist()}
    assert [rows[number]["tenant"] for number in (1, 2, 3)] == ["acme", OTHERS, OTHERS]
    hidden = rows[2]
    assert (hidden["trace_id"], hidden["span_id"], hidden["request_id"]) == ("", "", "")
    assert (hidden["route"], hidden["cost_usd"], hidden["replica"]) == (None, None, "r1")
    assert hidden["lora"] == "(other adapter)"
    own = rows[1]
    assert (own["request_id"], own["route"], own["lora"]) == ("request-1", "/acme", "acme-adapter")
    assert "globex" not in str(seen.to_pylist())


def test_a_worse_row_of_a_masked_request_is_not_counted(engine: Engine) -> None:
    with Writer(engine) as writer:
        native = _request(2, span_id="f" * 16, source=Source.NATIVE, tenant=None)
        writer.submit([native], [], []).result(30)
    assert request_table(engine, WINDOW).num_rows == len(ROWS)
    assert request_table(with_masked_rows(restricted(engine, ACME)), WINDOW).num_rows == len(ROWS)


REFUSED: list[Callable[[Connection], object]] = [
    lambda c: c.exec_driver_sql("SELECT tenant FROM requests"),
    lambda c: c.execute(text("SELECT tenant FROM requests")),
    lambda c: c.execute(select(text("tenant")).select_from(REQUESTS)),
    lambda c: c.execute(select(literal_column("tenant")).select_from(REQUESTS)),
    lambda c: c.execute(select(literal_column("*")).select_from(REQUESTS)),
    lambda c: c.execute(select(REQUESTS.c.e2e_s).where(text("1 = 1"))),
    lambda c: c.execute(select(table("requests", column("tenant")))),
    lambda c: c.execute(select(Table("unknown", MetaData(), Column("a", Integer)))),
    lambda c: c.execute(REQUESTS.delete()),
    lambda c: c.execute(REQUESTS.update().values(tenant="acme")),
    lambda c: c.execute(REQUESTS.insert().values(tenant="acme")),
]


def test_a_call_that_a_cache_answered_is_no_request_for_any_reader(engine: Engine) -> None:
    """The lookup has no tenant, so a reader who may see some tenants cannot see the lookup."""
    calls = [
        replace(_request(20 + number, tenant=tenant), source=Source.CLIENT, basis=Basis.CLIENT)
        for number, tenant in enumerate(("acme", "globex"))
    ]
    lookups = [
        CacheLookup(
            trace_id=call.trace_id,
            span_id="b" * 16,
            parent_span_id=call.span_id,
            at_unix_ns=call.received_unix_ns,
            duration_s=0.01,
            result=CacheResult.HIT,
            cache="gptcache",
        )
        for call in calls
    ]
    before = [
        request_count(each, WINDOW)
        for each in (restricted(engine, ACME), with_masked_rows(restricted(engine, ACME)))
    ]
    put(engine, *calls, *lookups)
    acme = restricted(engine, ACME)
    assert lookup_count(acme, WINDOW) == 0
    assert [request_count(each, WINDOW) for each in (acme, with_masked_rows(acme))] == before


def test_hidden_rows_are_not_returned_by_mistake(sqlite: Engine) -> None:
    hidden = with_all_rows(LOOKUPS)
    for each in (select(hidden.c.trace_id), select(func.max(hidden.c.at_unix_ns))):
        with pytest.raises(NotAllowed, match="cannot select from all rows"):
            rewritten(restricted(sqlite, ACME), each)


def test_what_cannot_be_restricted_is_refused(sqlite: Engine) -> None:
    reader = restricted(sqlite, ACME)
    for number, run in enumerate(REFUSED):
        with reader.connect() as connection:
            try:
                run(connection)
            except NotAllowed:
                continue
        pytest.fail(f"statement {number} was not refused")


def test_every_place_of_a_table_is_restricted(engine: Engine) -> None:
    other = REQUESTS.alias("other")
    inner = select(REQUESTS.c.tenant.label("t")).subquery()
    common = select(REQUESTS.c.tenant.label("t")).cte("common")
    statements: list[Select[tuple[str]]] = [
        select(REQUESTS.c.tenant),
        select(other.c.tenant),
        select(inner.c.t),
        select(common.c.t),
        select(select(func.max(other.c.tenant)).scalar_subquery()),
        select(REQUESTS.c.tenant).join(other, other.c.replica == REQUESTS.c.replica),
        select(REQUESTS.c.tenant).where(
            REQUESTS.c.replica.in_(select(other.c.replica).where(other.c.tenant == "globex"))
        ),
        select(REQUESTS.c.tenant).group_by(REQUESTS.c.tenant).having(func.count() > 0),
        select(func.max(REQUESTS.c.tenant).over(partition_by=REQUESTS.c.replica)),
    ]
    found = restricted(engine, ACME)
    with found.connect() as connection:
        both = union_all(statements[0], statements[1])
        for each in (*statements, select(both.subquery().c[0])):
            assert {row[0] for row in connection.execute(each)} <= {"acme"}, str(each)


def test_compared_ids_are_not_returned_by_mistake(sqlite: Engine) -> None:
    masked = with_masked_rows(restricted(sqlite, ACME))
    assert "raw_" not in str(rewritten(masked, select(REQUESTS.c.request_id))).split("FROM")[0]
    marked = str(
        rewritten(masked, select(REQUESTS.c.e2e_s).where(compared(REQUESTS.c.trace_id) == ""))
    )
    assert "requests.raw_trace_id =" in marked
    for each in (select(REQUESTS), select(compared(REQUESTS.c.trace_id))):
        with masked.connect() as connection, pytest.raises(NotAllowed):
            connection.execute(each)


def test_a_reader_opens_only_restricted_databases(new_url: Callable[[], str]) -> None:
    url = new_url()
    open_database(url).dispose()
    token = READER.set(ACME)
    try:
        opened = open_database(url, create=False)
        assert access_of(opened) == ACME
        opened.dispose()
        with pytest.raises(NotAllowed):
            open_database(url)
    finally:
        READER.reset(token)


def test_the_separate_state_is_restricted_too(new_sql_url: Callable[[], str]) -> None:
    engine = open_database(new_sql_url(), new_sql_url())
    from store.alerting.incidents import read_overlapping, store_evaluation
    from telemetry.incidents import IncidentRow

    rows = [
        IncidentRow(name, "page", 100, 50, 120, None, 100, "20", None, None)
        for name in ("mine", "theirs")
    ]
    for each in rows:
        store_evaluation(engine, each.slo, 120, [each])
    seen = restricted(engine, ACME.with_objectives(["mine"], []))
    assert [each.slo for each in read_overlapping(seen, 0, 1_000)] == ["mine"]
    assert read_overlapping(restricted(engine, ACME), 0, 1_000) == []
    engine.dispose()


def test_a_grant_that_another_one_covers_is_left_out() -> None:
    narrow, wide = Grant(frozenset({"a"}), None, costs=False), Grant(frozenset({"a", "b"}))
    assert Access.of([narrow, wide, narrow]).grants == (wide,)
    assert Access.of([narrow, wide]).costs
    assert not Access.of([Grant(frozenset({"c"}), None, costs=False), wide]).costs
    assert not Access.of([Grant()]).limits
    with pytest.raises(ValueError, match="at least one"):
        Access.of([])


def test_accesses_survive_json_and_have_different_keys() -> None:
    several = [
        ACME,
        Access.of([Grant()]),
        Access.of([Grant(frozenset({"acme"}))]),
        Access.of([Grant(None, frozenset({"acme"}))]),
        Access.of([Grant(frozenset({"acme"}), frozenset({"m"})), Grant(frozenset({"b"}))]),
    ]
    assert [Access.from_json(each.as_json()) for each in several[:4]] == several[:4]
    assert set(Access.from_json(several[4].as_json()).grants) == set(several[4].grants)
    assert len({each.key for each in several}) == 5


def test_a_restricted_engine_is_not_restricted_again(sqlite: Engine) -> None:
    found = restricted(sqlite, ACME)
    assert restricted(sqlite, None) is sqlite
    statement = select_requests(["tenant"], WINDOW, {})
    assert rewritten(sqlite, statement) is statement
    assert with_masked_rows(sqlite) is sqlite
    with pytest.raises(NotAllowed):
        restricted(found, Access.of([Grant(frozenset({"globex"}))]))


def test_each_rule_is_valid_sql(engine: Engine) -> None:
    both = [Grant(frozenset({"acme"}), frozenset({"m1"})), Grant(None, frozenset({"m2"}))]
    for access in (
        ACME,
        Access.of([Grant(None, None, costs=False)]),
        Access.of([Grant(None, frozenset({"m1"}))]),
        Access.of(both),
    ):
        found = restricted(engine, access)
        for reader in (found, with_masked_rows(found)):
            with reader.connect() as connection:
                for each in (*METADATA.sorted_tables, *STATE_METADATA.sorted_tables):
                    connection.execute(select(*each.c).limit(5)).all()
