from typing import Any, Final

from rig.needed_rules import needed

RULES: Final[list[dict[str, Any]]] = [
    {"record": "a:rate5m", "expr": "rate(a[5m])"},
    {"record": "b:rate5m", "expr": "a:rate5m / 2"},
    {
        "alert": "Burn",
        "expr": "b:rate5m > 1",
        "labels": {"severity": "page", "tenant": "{{ $labels.tenant }}"},
        "annotations": {"summary": "{{ with query `c:rate5m` }}{{ end }}"},
    },
    {"alert": "Burn", "expr": "c:rate5m > 1", "labels": {"severity": "ticket"}},
    {"record": "c:rate5m", "expr": "rate(c[30d])"},
    {"alert": "BurnHeldBack", "expr": "a:rate5m > 1", "labels": {"severity": "info"}},
]


def kept(expr: str) -> list[int]:
    """Return the positions of the needed rules."""
    exprs = [rule["expr"] for rule in RULES]
    return [exprs.index(rule["expr"]) for rule in needed(RULES, [expr])]


def test_rules_are_found_through_the_rules_that_they_read() -> None:
    assert kept("b:rate5m") == [0, 1]
    assert kept("rate5m") == []


def test_alerts_are_found_by_their_name_and_labels() -> None:
    assert kept('ALERTS{alertname="Burn",severity="page",tenant="x",alertstate="firing"}') == [
        0,
        1,
        2,
    ]
    assert kept('count(ALERTS{alertname="Burn",severity!="page"})') == [3, 4]
    assert kept('ALERTS{alertname=~"Burn.+"}') == [0, 5]
    assert kept('ALERTS{alertname!~"Burn.*"}') == []
    assert kept('ALERTS{severity!="info"}') == [0, 1, 2, 3, 4]


def test_annotations_are_removed() -> None:
    assert all("annotations" not in rule for rule in needed(RULES, ['ALERTS{alertname="Burn"}']))
    assert "annotations" in RULES[2]
