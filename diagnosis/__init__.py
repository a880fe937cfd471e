"""Why the tail grew, for whom, because of what, and what to change."""
