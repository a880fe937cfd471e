"""Reports the requests of an engine core whose front end is not Python."""
