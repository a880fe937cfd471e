"""Read engine starts, and find problems of replicas: hangs, shared names and wrong clocks."""
