"""What the GPUs of this machine, or of dcgm-exporters, do each second, and whose they are."""
