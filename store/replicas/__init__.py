"""Read engine starts, and find problems of replicas: hangs, wrong clocks, and shared names."""
