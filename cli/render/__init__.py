"""The output of commands as text and tables."""
