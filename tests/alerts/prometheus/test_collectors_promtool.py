import pytest
import yaml

from alerts.prometheus.collector_rules import TENANT_REQUESTS, collector_group
from alerts.prometheus.generate import EXPLORER_URL
from alerts.prometheus.rulefile import render
from tests.alerts.prometheus.rule_test import Run, expect

pytestmark = pytest.mark.real

REQUESTS = "tailspan_tenant_requests_total"
SINCE = "tailspan_tenant_named_since_seconds"
COLLECTORS = {
    f'tailspan_exporter_label_values_limit{{label="tenant",instance="{each}"}}': "200x60"
    for each in "abc"
}


def rules() -> str:
    return yaml.safe_dump(yaml.safe_load(render([collector_group(EXPLORER_URL)])))


def per_minute(tenant: str, instance: str, number: int) -> dict[str, str]:
    return {f'{REQUESTS}{{tenant="{tenant}",instance="{instance}"}}': f"0+{60 * number}x60"}


def named(tenant: str, instance: str, since: int = 0) -> dict[str, str]:
    return {f'{SINCE}{{tenant="{tenant}",instance="{instance}"}}': f"{since}x60"}


def test_a_tenants_rate_is_recorded_only_if_every_collector_names_it(promtool: Run) -> None:
    series = {**COLLECTORS}
    for instance in "abc":
        series |= per_minute("acme", instance, 1) | named("acme", instance)
        series |= per_minute("other", instance, 2)
        # Collector c does not report the tenant `half` by name, so a sum over collectors would be
        # too low.
        if instance != "c":
            series |= per_minute("half", instance, 5) | named("half", instance)
    series |= named("new", "a", 1_200) | named("new", "b") | named("new", "c")
    series |= per_minute("new", "a", 1)
    series |= {f'{REQUESTS}{{instance="b"}}': "0+60x60"}
    record = f"{TENANT_REQUESTS}"

    def recorded(samples: dict[str, float]) -> dict[str, float]:
        return {f'{record}{{tenant="{name}"}}': each for name, each in samples.items()}

    unknown = {f"{record}": 1.0}
    promtool(
        rules(),
        series,
        [
            # Collector a has reported the tenant `new` by name since minute 20.
            expect(record, "24m", recorded({"acme": 3, "other": 17}) | unknown),
            expect(record, "26m", recorded({"acme": 3, "new": 1, "other": 16}) | unknown),
        ],
    )


def test_without_requests_of_named_tenants_all_are_other(promtool: Run) -> None:
    series = {**COLLECTORS, **per_minute("other", "a", 2)}
    expected = {f'{TENANT_REQUESTS}{{tenant="other"}}': 2.0}
    promtool(rules(), series, [expect(TENANT_REQUESTS, "20m", expected)])


def test_a_replica_at_several_collectors_is_a_ticket(promtool: Run) -> None:
    sample = "tailspan_engine_last_sample_timestamp_seconds"
    series = {
        f'{sample}{{replica="r1",engine="0",instance="a"}}': "0+60x60",
        f'{sample}{{replica="r2",engine="0",instance="a"}}': "0+60x20 1200x40",  # it moved
        f'{sample}{{replica="r2",engine="0",instance="b"}}': "_x21 1260+60x40",
        f'{sample}{{replica="r3",engine="0",instance="a"}}': "0+60x60",
        f'{sample}{{replica="r3",engine="0",instance="b"}}': "0+60x60",
    }
    firing = 'count by (replica) (ALERTS{alertstate="firing"})'
    promtool(rules(), series, [expect(firing, "50m", {'{replica="r3"}': 1})])
