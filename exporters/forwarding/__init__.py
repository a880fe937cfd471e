"""Forward received OTLP messages to another backend."""
