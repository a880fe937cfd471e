"""Measurements that several detectors use: drivers of each type of wait, restarts, stalls,
levers."""
