"""Run `tailspan` with incidents that end after QUIET_S seconds without an alert, instead of 300.

python benchmarks/_quick_collector.py QUIET_S up …
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from alerts.evaluation import incidents
from cli.main import main

if __name__ == "__main__":
    incidents.QUIET_S = int(sys.argv.pop(1))  # type: ignore[misc]
    main()
