"""One engine: statistics, configuration, hardware, model shape, processor time."""
