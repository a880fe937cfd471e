"""Measurements that several detectors use, for example of waits, restarts and stalls."""
