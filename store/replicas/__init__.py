"""Engine starts, and problems of replicas: hangs, shared names and wrong clocks."""
