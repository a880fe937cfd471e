from exporters.format.exposition import Exposition
from exporters.format.negotiation import Format
from exporters.self_metrics.tasks import TaskMetrics
from telemetry.tasks import Task


def metrics_of(*tasks: tuple[Task, str | None]) -> str:
    return Exposition([TaskMetrics(lambda: list(tasks))]).write(Format.PLAIN).decode()


def test_a_part_that_fails_is_down_with_its_failures() -> None:
    works, fails = Task("retention", last_success_unix_s=12.5), Task("evaluator", failures=3)
    text = metrics_of((works, None), (fails, "KeyError"))
    assert 'tailspan_task_up{task="retention"} 1\n' in text
    assert 'tailspan_task_up{task="evaluator"} 0\n' in text
    assert 'tailspan_task_failures_total{task="evaluator"} 3\n' in text
    assert 'tailspan_task_last_success_timestamp_seconds{task="retention"} 12.5\n' in text
    assert text.count("tailspan_task_last_success_timestamp_seconds{") == 1


def test_without_parts_no_series() -> None:
    assert "tailspan_task" not in metrics_of()
