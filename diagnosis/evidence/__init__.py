"""Measurements that several detectors use: drivers of each kind of wait, restarts, stalls,
levers."""
