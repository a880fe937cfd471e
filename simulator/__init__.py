"""A discrete-event simulation of a vLLM fleet that sends the instrumentation's own OTLP."""
