"""Inside the API server: hooks in the front end of vLLM, and the capture of its requests."""
