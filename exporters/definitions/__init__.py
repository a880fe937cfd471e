"""Define every series of `/metrics`: name, help, labels, bounds."""
