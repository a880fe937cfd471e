"""A vLLM fleet, simulated by discrete events, which sends the OTLP messages of real servers."""
