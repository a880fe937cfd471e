"""Sample the GPUs of this machine and of dcgm-exporters, and assign them to replicas."""
