"""One engine: statistics, configuration, hardware, model shape, CPU time."""
