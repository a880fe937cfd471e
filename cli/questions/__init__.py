"""The questions of the HTTP API and of the MCP server. A command answers each question."""
