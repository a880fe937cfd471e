"""Runs `tailspan` with incidents that end early, so that a test of the end of incidents takes only
minutes.

    python benchmarks/_quick_collector.py QUIET_S up …

An incident is over after QUIET_S seconds without an alert, instead of 300 s.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from alerts.evaluation import incidents
from cli.main import main

if __name__ == "__main__":
    incidents.QUIET_S = int(sys.argv.pop(1))  # type: ignore[misc]
    main()
