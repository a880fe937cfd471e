"""A discrete-event simulation of a vLLM fleet. It sends the same OTLP as the instrumentation."""
