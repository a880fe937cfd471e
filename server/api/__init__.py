"""The JSON API over HTTP, and the MCP server. Processes in `worker_pool` compute the answers."""
