import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.format.negotiation import Format, wanted

PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)


@pytest.mark.parametrize(
    "accept",
    [
        # The headers of Prometheus 2.42, 2.55 and 3 with native histograms.
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily;"
        " encoding=delimited,application/openmetrics-text; version=1.0.0; q=0.8,"
        "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        f"{PROTOBUF};q=0.5,application/openmetrics-text;version=1.0.0;q=0.4,"
        "text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
        f"{PROTOBUF};escaping=allow-utf-8;q=0.6,"
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.1",
        PROTOBUF,
        "APPLICATION/VND.GOOGLE.PROTOBUF; Encoding=delimited;"
        ' proto="io.prometheus.client.MetricFamily"',
    ],
)
def test_protobuf_is_sent_on_request(accept: str) -> None:
    assert wanted(accept) is Format.PROTOBUF


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        # This client prefers a text format to protobuf.
        f"application/openmetrics-text;version=1.0.0;q=0.5,{PROTOBUF};q=0.4",
        f"{PROTOBUF};q=0,application/openmetrics-text",
    ],
)
def test_openmetrics_is_sent_if_preferred(accept: str) -> None:
    assert wanted(accept) is Format.OPENMETRICS


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "application/vnd.google.protobuf",
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
        "application/vnd.google.protobuf;proto=another.Message;encoding=delimited",
        f"{PROTOBUF};q=nan",
        f"{PROTOBUF};q=1e9",
        f"{PROTOBUF};q=-1",
        f"{PROTOBUF};q=",
        f"{PROTOBUF};q=0.5,text/plain;q=0.9",
        f"x{PROTOBUF}",
        ";;;,,,===;q=,",
        "application/vnd.google.protobuf;" * 2_000,
    ],
)
def test_text_is_sent_without_a_request_for_protobuf(accept: str) -> None:
    assert wanted(accept) is Format.PLAIN


@given(st.lists(st.sampled_from([*'aq=;,*/. "01\0\N{SNOWMAN}', "q=", PROTOBUF]), max_size=40))
def test_every_accept_header_gets_a_format(accept: list[str]) -> None:
    assert wanted("".join(accept)) in Format
