"""From OTLP to the nouns of `telemetry/`: total functions, which refuse and never raise."""
