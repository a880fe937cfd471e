"""Samples the GPUs of this machine and of dcgm-exporters, and assigns them to replicas."""
