"""A discrete-event vLLM fleet that speaks the instrumentation's own OTLP."""
