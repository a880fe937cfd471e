"""Several tenants and two models, with an open incident."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sqlalchemy import insert

from alerts.evaluation.evaluator import Evaluator
from alerts.evaluation.group_slots import expanded
from alerts.notify.message import IncidentMessage, Transition, dumps
from alerts.openslo.reader import load
from analysis.incident import incident_verdict
from analysis.incident_answer import store_verdict
from simulator.dataset import run as simulate
from simulator.fault import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.alerting.incidents import read_incidents
from store.alerting.notifications import NOTIFICATIONS
from store.database import open_database
from store.rollups.bucket_builder import build_marked
from store.rollups.marks import begin
from store.writer import Writer
from telemetry.incidents import IncidentRow
from telemetry.requests import PricedBy, RequestTimeline
from tests.cold_starts import cold_start
from tests.probe.results import EXAMPLE
from tests.served_api import lookups

PAST_S: Final = 900
FLOOD_S: Final = 300
EXPLAINED: Final = ("chat", "mine-only")
"""The objectives whose incident has a stored answer and a message."""
MODEL: Final = "llama-3-8b-sim"
HIDDEN_MODEL: Final = "secret-model"
HIDDEN_REPLICA: Final = "secret-replica"
TENANTS: Final = {
    "acme": "hiddenco",
    "globex": "mineco",
    "initech": "oursco",
    "umbrella": "otherco",
    "hooli": "otherco",
}
DOLLARS: Final = 0.0987654
ROUTE: Final = "/of/{}/chat"

ROLES: Final = """
audit: audit.jsonl
roles:
  sre:
    claims: {groups: [sre]}
    tenants: "*"
    models: "*"
    costs: true
  operator:
    claims: {groups: [operators]}
    tenants: "*"
    models: "*"
    costs: false
  mine:
    claims: {groups: [mine-engineers]}
    tenants: [mineco]
    models: "*"
    costs: true
  mine-without-costs:
    claims: {groups: [mine-interns]}
    tenants: [mineco]
    models: "*"
    costs: false
  model:
    claims: {groups: [model-team]}
    tenants: "*"
    models: [llama-3-8b-sim]
    costs: true
  mine-and-model:
    claims: {groups: [strict]}
    tenants: [mineco]
    models: [llama-3-8b-sim]
    costs: false
"""

_SLO: Final = """
apiVersion: openslo/v1
kind: SLO
metadata: {{name: {name}}}
spec:
  service: chat
  budgetingMethod: Occurrences
  timeWindow: [{{duration: 30d, isRolling: true}}]
  objectives: [{{target: 0.999}}]
  indicator: {{metadata: {{name: {name}-good}}, spec: {{ratioMetric: {{counter: true,
    total: {{metricSource: {{type: tailspan, spec: {{{total}}}}}}},
    good: {{metricSource:
      {{type: tailspan, spec: {{good: ttft_s <= 0.5 and tpot_s <= 0.05}}}}}}}}}}}}
"""
_PROMETHEUS_SLO: Final = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: hiddenco-payments}
spec:
  service: web
  budgetingMethod: Occurrences
  timeWindow: [{duration: 30d, isRolling: true}]
  objectives: [{target: 0.999}]
  indicator: {metadata: {name: hiddenco-payments-good}, spec: {ratioMetric: {counter: true,
    total: {metricSource: {type: Prometheus, spec: {query: payments_total}}},
    bad: {metricSource: {type: Prometheus, spec: {query: payments_failed_total}}}}}}
"""
_OBJECTIVES: Final = {
    "chat": "where: streamed == true",
    "grouped": "where: streamed == true, by: [tenant], reserved: [hiddenco]",
    "hiddenco-only": "where: tenant == 'hiddenco'",
    "mine-only": "where: streamed == true and tenant == 'mineco'",
}


@dataclass(frozen=True, slots=True)
class Fleet:
    url: str
    objectives: Path
    roles: Path
    end_s: int
    requests: tuple[RequestTimeline, ...]

    def ids_of(self, tenant: str | None = None, model: str | None = None) -> list[str]:
        found = [
            each
            for each in self.requests
            if tenant in (None, each.tenant) and model in (None, each.model)
        ]
        return [
            text
            for each in (*found[:20], *found[-20:])
            for text in (each.trace_id, each.request_id or each.trace_id)
        ]

    def key_of(self, tenant: str, model: str = MODEL) -> str:
        """The key of a late request, as links to the request contain it."""
        return next(
            f"{each.trace_id}/{each.span_id}"
            for each in reversed(self.requests)
            if (each.tenant, each.model) == (tenant, model)
        )


def store(folder: Path) -> Fleet:
    """Store fifteen minutes of the fleet, the evaluation and the answers."""
    url = f"sqlite:///{folder}/tailspan.db"
    objectives, roles = folder / "objectives.yaml", folder / "roles.yaml"
    counted = (_SLO.format(name=name, total=total) for name, total in _OBJECTIVES.items())
    objectives.write_text("---".join((*counted, _PROMETHEUS_SLO)))
    roles.write_text(ROLES)
    end_s = int(time.time())
    found = simulate(
        FleetConfig(
            replicas=1,
            workload=Workload(rate_per_s=1.0),
            faults=(SimulatedFault(cause="tenant_flood", start_s=float(PAST_S - FLOOD_S)),),
            started_unix_ns=(end_s - PAST_S) * 10**9,
            duration_s=float(PAST_S),
        )
    )
    requests = [_renamed(each, number) for number, each in enumerate(found.requests)]
    hidden = [_hidden(each, number) for number, each in enumerate(requests[::10])]
    every = (*requests, *hidden)
    samples = [replace(each, model=MODEL) for each in found.samples]
    samples += [replace(each, replica=HIDDEN_REPLICA, model=HIDDEN_MODEL) for each in samples[::50]]
    starts = [replace(each, model=MODEL) for each in found.starts]
    starts += [replace(starts[0], replica=HIDDEN_REPLICA, model=HIDDEN_MODEL)]
    gpus = [*found.gpus, *(replace(each, replica=HIDDEN_REPLICA) for each in found.gpus[::50])]
    cold = cold_start(replica="sim-0", at_unix_ns=(end_s - 3_600) * 10**9)
    secret = replace(cold, replica=HIDDEN_REPLICA, model=HIDDEN_MODEL, span_id="f" * 16)
    probe = replace(EXAMPLE, at_unix_ns=(end_s - 30) * 10**9, cost_usd=DOLLARS)
    engine = open_database(url)
    try:
        begin(engine)
        with Writer(engine) as writer:
            writer.submit(every, samples, starts, gpus, probes=[probe]).result(60)
            cold_starts = [replace(cold, model=MODEL), secret]
            writer.submit(
                [], [], lookups=lookups(end_s, ("mineco", "hiddenco")), cold_starts=cold_starts
            ).result(60)
        build_marked(engine, end_s)
        spec = load([objectives]).objectives
        Evaluator(engine, spec).evaluate(end_s)
        for objective in (each for each in expanded(engine, spec) if each.name in EXPLAINED):
            for row in read_incidents(engine, objective.name)[:1]:
                verdict = incident_verdict(engine, objective, row, end_s)
                assert verdict is not None
                store_verdict(engine, objective, row, verdict, end_s)
                with engine.begin() as connection:
                    connection.execute(insert(NOTIFICATIONS).values(**_notification(row)))
    finally:
        engine.dispose()
    return Fleet(url, objectives, roles, end_s, every)


def _renamed(each: RequestTimeline, number: int) -> RequestTimeline:
    tenant = TENANTS[each.tenant or "acme"]
    return replace(
        each,
        tenant=tenant,
        model=MODEL,
        route=ROUTE.format(tenant),
        lora=f"adapter-of-{tenant}" if number % 7 == 0 else None,
        request_id=f"{tenant}-request-{number:06}",
        cost_usd=DOLLARS,
        priced_by=PricedBy.LEDGER,
    )


def _hidden(each: RequestTimeline, number: int) -> RequestTimeline:
    return replace(
        each,
        model=HIDDEN_MODEL,
        replica=HIDDEN_REPLICA,
        trace_id=f"{0xABCD:016x}{number:016x}",
        span_id=f"{0xABCD:08x}{number:08x}",
        request_id=f"secret-request-of-{each.tenant}-{number:06}",
    )


def _notification(row: IncidentRow) -> dict[str, object]:
    key = row.slo, row.severity, row.fired_unix_s
    text = IncidentMessage(
        transition=Transition.FIRING,
        slo=row.slo,
        display_name=row.slo,
        service="chat",
        severity=row.severity,
        statement="99 %",
        began_unix_s=row.began_unix_s,
        fired_unix_s=row.fired_unix_s,
        as_of_unix_s=row.fired_unix_s,
        likely_cause="hiddenco sent more",
    )
    return {
        **dict(zip(("slo", "severity", "fired_unix_s"), key, strict=True)),
        "transition": Transition.FIRING.value,
        "channel": "ops",
        "message": dumps(text),
        "created_unix_s": row.fired_unix_s,
        "state": "delivered",
        "failures": 0,
    }
