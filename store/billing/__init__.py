"""Read the data for bills: the time of engines and GPUs, and billed requests."""
