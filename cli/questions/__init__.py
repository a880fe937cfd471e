"""The commands as questions of the HTTP API and of the MCP server."""
