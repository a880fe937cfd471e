"""Records and samples encoded as OTLP messages."""
