"""Processing of normalised rows before they are stored: age, clocks, engine starts, prices."""
