"""What the detectors share: measurements of the case, and the drivers of each kind of wait."""
