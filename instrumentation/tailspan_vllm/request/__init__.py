"""One request: its HTTP exchange, its record, and its phases and parts."""
