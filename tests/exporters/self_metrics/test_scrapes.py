from dataclasses import dataclass, field

from prometheus_client.registry import CollectorRegistry

from exporters.self_metrics.scrapes import ScrapedTarget, ScrapeMetrics


@dataclass
class Target:
    url: str
    up: bool | None = None
    failures: dict[str, int] = field(default_factory=dict)
    duration_s: float | None = None
    last_success_unix_ns: int | None = None
    unusable_values: int = 0


def _registry(*targets: ScrapedTarget, **discoveries: bool) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ScrapeMetrics(lambda: targets, lambda: discoveries))
    return registry


def test_each_target_is_up_or_down_with_its_problem() -> None:
    registry = _registry(
        Target("http://a/", True, {}, 0.25, 1_500_000_000, 2),
        Target("http://b/", False, {"timeout": 3}),
        Target("http://c/"),
        file=False,
    )
    read = registry.get_sample_value
    assert read("tailspan_scrape_up", {"target": "http://a/"}) == 1
    assert read("tailspan_scrape_up", {"target": "http://b/"}) == 0
    assert read("tailspan_scrape_up", {"target": "http://c/"}) is None
    failed = {"target": "http://b/", "reason": "timeout"}
    assert read("tailspan_scrape_failures_total", failed) == 3
    assert read("tailspan_scrape_duration_seconds", {"target": "http://a/"}) == 0.25
    assert read("tailspan_scrape_last_success_timestamp_seconds", {"target": "http://a/"}) == 1.5
    assert read("tailspan_scrape_unusable_values_total", {"target": "http://a/"}) == 2
    assert read("tailspan_scrape_discovery_up", {"discovery": "file"}) == 0


def test_without_targets_there_is_no_series() -> None:
    assert not list(_registry().collect())
