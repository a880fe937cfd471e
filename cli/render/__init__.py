"""The commands' output: text and tables."""
