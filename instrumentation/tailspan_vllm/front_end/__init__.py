"""Code inside the API server: hooks in vLLM's front end, which capture its requests."""
