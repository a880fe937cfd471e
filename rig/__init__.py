"""Run a real vLLM on this machine's CPU, to try or test Tailspan."""
