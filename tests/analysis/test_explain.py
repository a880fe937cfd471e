import pyarrow as pa

from analysis.explain import joined_evidence, windows_of
from diagnosis.inputs.arrow import servers_of
from diagnosis.question import Metric, Question, Span
from store.columns.evidence import EvidenceRows
from telemetry.starts import EngineStart
from telemetry.window import Window

S = 10**9
HOUR = 3_600 * S


def question(baseline_from_h: int) -> Question:
    """Return the question that compares an hour with an earlier hour."""
    start = baseline_from_h * HOUR
    return Question(Metric.TTFT, Span(100 * HOUR, 101 * HOUR), Span(start, start + HOUR))


def test_neighbouring_stretches_are_read_as_one() -> None:
    assert windows_of(question(99)) == [Window(99 * HOUR, 101 * HOUR)]
    assert windows_of(question(97)) == [Window(97 * HOUR, 101 * HOUR)]


def test_the_range_between_baseline_and_window_is_not_read() -> None:
    """A comparison of two hours must not read a day of requests."""
    assert windows_of(question(70)) == [
        Window(70 * HOUR, 71 * HOUR),
        Window(100 * HOUR, 101 * HOUR),
    ]


def test_tables_that_were_read_separately_are_joined() -> None:
    """The joined rows are sorted by time, even if their Arrow dictionaries differ. A start that is
    in both tables appears once."""
    start = EngineStart(replica="r0", engine=0, process=1, at_unix_ns=5, config="c", arguments="{}")

    def part(at: int, tenant: str) -> EvidenceRows:
        requests = pa.table(
            {"received_unix_ns": [at], "tenant": pa.array([tenant]).dictionary_encode()}
        )
        samples = pa.table({"at_unix_ns": [at], "replica": ["r0"]})
        return EvidenceRows(requests, samples, samples, [start], samples_every_s=at)

    found = joined_evidence([part(1, "acme"), part(2, "globex")])
    assert found.requests["received_unix_ns"].to_pylist() == [1, 2]
    assert found.requests["tenant"].to_pylist() == ["acme", "globex"]
    assert found.starts == [start]
    assert found.samples_every_s == 2


def test_the_increase_of_a_counter_between_two_ranges_belongs_to_no_range() -> None:
    """A day lies between the baseline and the window. The counter grows by 1 per second in the
    ranges, and by 50 per second between them."""

    def part(first_s: int, total: float) -> EvidenceRows:
        samples = pa.table(
            {
                "at_unix_ns": [(first_s + each) * S for each in range(10)],
                "replica": ["r0"] * 10,
                "preemptions_total": [total + each for each in range(10)],
            }
        )
        none = samples.slice(0, 0)
        return EvidenceRows(pa.table({"received_unix_ns": [first_s * S]}), samples, none, [])

    found = joined_evidence([part(0, 0.0), part(86_400, 50.0 * 86_400)])
    engines = servers_of(found.engines, found.gpus).engines
    in_window = engines.at_unix_ns >= 86_400 * S
    assert engines.rate("preemptions_total", in_window) == 1.0
