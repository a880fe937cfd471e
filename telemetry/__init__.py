"""Define the data types that all modules share. Pure."""
