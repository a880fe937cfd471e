"""What the README shows is what is made."""

import re
import textwrap
from pathlib import Path

from alerts.generate import EXPLORER_URL, tailspan_rules
from alerts.openslo import inspect_texts
from alerts.policy import load_policy

README = (Path(__file__).parents[2] / "alerts" / "README.md").read_text()


def test_the_objective_in_the_readme_makes_the_rule_beside_it() -> None:
    """Twelve lines in, the page out."""
    objective, rule = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert len(objective.splitlines()) == 12
    findings = inspect_texts({"chat.yaml": objective})
    assert not findings.errors
    made = tailspan_rules(findings.spec.objectives, load_policy(), EXPLORER_URL)
    assert textwrap.indent(rule, "  ") in made
