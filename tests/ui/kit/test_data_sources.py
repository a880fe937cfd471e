import pyarrow as pa

from ui.kit import data_sources


def _of(*sources: str) -> pa.Table:
    return pa.table({"source": pa.array(sources, pa.string())})


def test_instrumented_requests_need_no_note() -> None:
    assert data_sources.note(_of("instrumentation", "simulator")) is None
    assert data_sources.note(_of()) is None


def test_other_sources_are_counted_with_their_gaps() -> None:
    sources = data_sources.note(_of("instrumentation", "native", "native", "client"))
    assert sources is not None
    assert "2 requests from the engine's native spans" in sources
    assert "1 request from clients only" in sources


def test_engines_without_requests_are_no_silence() -> None:
    assert data_sources.scraped(0) is None
    assert "1 server is known only from /metrics" in (data_sources.scraped(1) or "")
    assert "3 servers are" in (data_sources.scraped(3) or "")
