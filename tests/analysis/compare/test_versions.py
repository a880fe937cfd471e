import pyarrow as pa

from analysis.compare.versions import versions_of
from tests.analysis.compare.test_server_changes import start


def test_a_request_has_the_version_of_its_replicas_latest_start() -> None:
    starts = [
        start("r0", 200, version="0.32.0"),
        start("r0", 100, version="0.31.0"),
        start("r1", 100, version="0.33.0"),
    ]
    requests = pa.table(
        {
            "replica": ["r0", "r0", "r0", "r1", "r2", None],
            "received_unix_ns": [each * 10**9 for each in (50, 199, 200, 300, 300, 300)],
        }
    )
    assert versions_of(requests, starts).to_pylist() == [
        *("0.31.0", "0.31.0", "0.32.0", "0.33.0", None, None)
    ]
    assert versions_of(requests, []).to_pylist() == [None] * 6
    assert versions_of(requests.slice(0, 0), starts).to_pylist() == []
