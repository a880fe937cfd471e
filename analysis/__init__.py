"""What the commands and the pages ask in common: reads, pure functions, an answer."""
