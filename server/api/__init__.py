"""The JSON API over HTTP, and the MCP server: both ask the processes in `worker_pool`."""
