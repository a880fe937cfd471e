"""The questions of the HTTP API and of the MCP server, which commands answer."""
