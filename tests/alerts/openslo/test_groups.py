from pathlib import Path
from typing import Final

import pytest
import yaml

from alerts.errors import RuleError
from alerts.fields import GROUPING, PROBE_GROUPING
from alerts.openslo.reader import inspect_texts
from alerts.prometheus.generate import EXPLORER_URL, vllm_rules
from tests.alerts.grouped import document, own, query_document

ROOT: Final = Path(__file__).parents[3]
TOTAL: Final = "requests_total"
BAD: Final = {"query": 'requests_total{code="500"}'}
GOOD: Final = {"good": "ttft_s <= 0.5"}


def problems(text: str) -> list[str]:
    return [str(each) for each in inspect_texts({"slo.yaml": text}).errors]


@pytest.mark.parametrize("by", [["tenant"], ["tenant", "model"], list(GROUPING)])
def test_an_objective_has_groups_by_any_label(by: list[str]) -> None:
    objective = own(by)
    assert objective.by == tuple(by)
    assert f"for each {', '.join(by)}" in objective.statement


@pytest.mark.parametrize(
    ("total", "wanted"),
    [
        ({"by": ["customer"]}, "'customer'; allowed: model, lora"),
        ({"by": ["prompt_tokens"]}, "'prompt_tokens'; allowed: model"),
        ({"by": ["tenant", "tenant"]}, "'tenant' is given twice"),
        ({"by": []}, "must be a sequence of items from: model"),
        ({"by": "tenant"}, "must be a sequence of items from: model"),
        ({"reserved": ["acme"]}, "reserved: lists values of a single field, but by has 0"),
        ({"by": ["tenant", "model"], "reserved": ["a"]}, "by has 2 fields; allowed: by: [tenant]"),
        ({"by": ["tenant"], "reserved": ["other"]}, "other is the group of all remaining requests"),
        ({"by": ["tenant"], "reserved": ["a", "a"]}, "'a' is given twice"),
        ({"by": ["tenant"], "reserved": [""]}, "contains an empty text"),
        (
            {"by": ["tenant"], "reserved": [f"t{at}" for at in range(51)]},
            "51 values; allowed: at most 50",
        ),
    ],
)
def test_a_wrong_group_of_own_requests_is_refused(total: dict[str, object], wanted: str) -> None:
    found = problems(document("chat", "tailspan", "good", total, GOOD))
    assert len(found) == 1
    assert wanted in found[0]


@pytest.mark.parametrize(
    ("total", "bad", "wanted"),
    [
        ({"query": TOTAL, "by": ["slo"]}, BAD, "'slo'; allowed: labels of the series"),
        ({"query": TOTAL, "by": ["__name__"]}, BAD, "'__name__'; allowed: labels of the series"),
        ({"query": TOTAL, "by": ["a-b"]}, BAD, "'a-b'; allowed: labels of the series"),
        ({"query": TOTAL, "by": list("abcdef")}, BAD, "6 labels; allowed: at most 5"),
        ({"query": TOTAL}, {**BAD, "by": ["tenant"]}, "is given in the spec of total"),
        (
            {"query": f"sum(rate({TOTAL}[{{{{.window}}}}]))", "by": ["tenant"]},
            BAD,
            "sum() removes labels of by; allowed: sum by (tenant)",
        ),
        (
            {"query": f"sum by (pod) (increase({TOTAL}[{{{{.window}}}}]))", "by": ["tenant"]},
            BAD,
            "sum() removes labels of by",
        ),
        (
            {"query": TOTAL, "by": ["tenant"]},
            {"query": f"sum without (tenant) (increase({TOTAL}[{{{{.window}}}}]))"},
            "sum() removes labels of by",
        ),
    ],
)
def test_a_wrong_group_of_a_query_is_refused(
    total: dict[str, object], bad: dict[str, object], wanted: str
) -> None:
    """A query that sums over all groups would give one group without a name."""
    found = problems(document("web", "Prometheus", "bad", total, bad))
    assert len(found) == 1
    assert wanted in found[0]


def test_a_raw_ratio_has_no_groups() -> None:
    query = "sum by (tenant) (rate(a[{{.window}}])) / sum by (tenant) (rate(b[{{.window}}]))"
    text = query_document(rawType="failure", raw={"query": query, "by": ["tenant"]})
    assert "by: a ratio has no counts" in problems(text)[0]


def test_a_label_of_the_document_cannot_hide_the_group() -> None:
    text = document("chat", "tailspan", "good", {"by": ["tenant"]}, GOOD)
    text = text.replace("{name: chat}", "{name: chat, labels: {tenant: all}}")
    assert "'tenant' is a label that defines the objective's groups" in problems(text)[0]


def test_histograms_of_vllm_have_no_groups() -> None:
    """vLLM's histograms have no tenant label."""
    with pytest.raises(RuleError, match="vLLM's histograms have no labels for by: tenant"):
        vllm_rules([own()], EXPLORER_URL)


def test_a_page_of_one_group_does_not_inhibit_another_groups_ticket() -> None:
    """The inhibition rules compare every label that can name a group."""
    rules = yaml.safe_load((ROOT / "alerts" / "alertmanager.yaml").read_text())["inhibit_rules"]
    groups = {*GROUPING, *PROBE_GROUPING}
    assert all({"slo", *groups} <= set(rule["equal"]) for rule in rules)
