"""Format the output of commands as text and tables."""
