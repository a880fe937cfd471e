"""Writes the generated rules as a resource of the Prometheus operator.

python -m rig.rule_resource alerts/rules/tailspan.yaml deploy/kubernetes/rules.yaml
"""

import sys
from pathlib import Path

import yaml

HEAD = "# Generated from alerts/rules/tailspan.yaml by `make generate`; do not edit.\n"


def resource(rules: str) -> str:
    """Return a PrometheusRule resource with these groups."""
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "tailspan", "labels": {"app.kubernetes.io/name": "tailspan"}},
        "spec": {"groups": yaml.safe_load(rules)["groups"]},
    }
    return HEAD + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)


if __name__ == "__main__":
    source, target = sys.argv[1:]
    Path(target).write_text(resource(Path(source).read_text()))
