import pytest

from ui.views.request import trace_link


def test_the_ids_are_put_into_the_address() -> None:
    given = "https://grafana.example.org/x?left={trace_id}&span={span_id}"
    url = trace_link.template({trace_link.KEY: f" {given} "})
    assert url == given
    assert trace_link.link(url, "ab", "cd") == "https://grafana.example.org/x?left=ab&span=cd"


def test_an_id_cannot_change_the_rest_of_the_address() -> None:
    assert trace_link.link("https://t/{trace_id}", "../../x?y#'\">", "") == (
        "https://t/..%2F..%2Fx%3Fy%23%27%22%3E"
    )


def test_the_trace_url_may_be_unset() -> None:
    assert trace_link.template({}) is None
    assert trace_link.template({trace_link.KEY: "  "}) is None


@pytest.mark.parametrize(
    "given", ["javascript:alert('{trace_id}')", "https://t/", "https://[", "x"]
)
def test_an_invalid_address_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(ValueError, match=r"TAILSPAN_TRACE_URL is .*must begin with http"):
        trace_link.template({trace_link.KEY: given})
