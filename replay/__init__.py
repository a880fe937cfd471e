"""The model of a vLLM server, and the replay of recorded traffic on it."""
