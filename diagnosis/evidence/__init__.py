"""Measurements that several detectors use, for example drivers of waits, restarts and stalls."""
