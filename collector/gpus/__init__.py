"""What the GPUs of this machine, or of dcgm-exporters, do, and which replicas they serve."""
