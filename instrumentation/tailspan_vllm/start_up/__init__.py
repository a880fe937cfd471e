"""The start of a server: its parts from the start of the process until the server is ready."""
