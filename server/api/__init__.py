"""The JSON API over HTTP, and the MCP server. The processes in `worker_pool` compute the
answers."""
