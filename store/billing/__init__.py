"""Read the data for bills: how long engines and GPUs were in use, and the billed requests."""
