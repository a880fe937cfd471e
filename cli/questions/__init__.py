"""The questions of the HTTP API and of the MCP server. Commands answer them."""
