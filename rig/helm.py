"""Lint or render the chart with Helm's own code: `python -m rig.helm template VALUES.yaml`.

helm-python-sdk is a Go program, so the tests run this module as a separate process.
"""

import json
import sys
from pathlib import Path

import yaml

CHART = Path(__file__).parents[1] / "deploy" / "helm"
RELEASE, NAMESPACE = "tailspan", "observability"


def main(words: list[str]) -> int:
    """Print the manifests (`template`) or the findings (`lint`) as JSON."""
    import helm_python as helm

    verb, file = words
    values = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    if verb == "lint":
        print(json.dumps(helm.lint(CHART, values, strict=True, namespace=NAMESPACE)))
        return 0
    try:
        with helm.Chart.load(CHART) as chart:
            chart.validate_schema(values)
            rendered = chart.render(values, name=RELEASE, namespace=NAMESPACE)
    except helm.HelmError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(rendered))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
