"""The JSON API over HTTP, and the MCP server."""
