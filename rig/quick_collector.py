"""Runs `tailspan` with incidents that end sooner, so that a test of their end takes minutes.

    python -m rig.quick_collector QUIET_S up …

QUIET_S replaces the 300 s without an alert after which an incident is over.
"""

import sys

from alerts.evaluation import incidents
from cli.main import main

if __name__ == "__main__":
    incidents.QUIET_S = int(sys.argv.pop(1))  # type: ignore[misc]
    main()
