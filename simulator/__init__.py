"""A discrete-event simulation of a vLLM fleet, which sends the same OTLP messages as the
instrumentation."""
