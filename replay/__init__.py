"""Model a vLLM server, and replay recorded traffic on the model."""
