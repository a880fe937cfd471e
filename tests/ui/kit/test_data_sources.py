"""The page says what requests rest on, where it is less than ours tells."""

import pyarrow as pa

from ui.kit import data_sources


def _of(*told: str) -> pa.Table:
    return pa.table({"source": pa.array(told, pa.string())})


def test_what_the_instrumentation_tells_needs_no_note() -> None:
    """Nor does a simulation, which has a band of its own."""
    assert data_sources.note(_of("instrumentation", "simulator")) is None
    assert data_sources.note(_of()) is None


def test_the_others_are_counted_with_what_they_cannot_know() -> None:
    """Each kind by itself."""
    told = data_sources.note(_of("instrumentation", "native", "native", "client"))
    assert told is not None
    assert "2 requests from the engine's own spans" in told
    assert "1 request from clients only" in told


def test_engines_without_requests_are_no_silence() -> None:
    """The basis is said, and the way to more."""
    assert data_sources.scraped(0) is None
    assert "1 server is seen by /metrics only" in (data_sources.scraped(1) or "")
    assert "3 servers are" in (data_sources.scraped(3) or "")
