"""What commands print: text and tables."""
