"""Check and correct rows before they are stored: age, clocks, engine starts, prices."""
