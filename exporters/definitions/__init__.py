"""Every series of `/metrics` as data: name, help, labels, bounds."""
