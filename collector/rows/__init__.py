"""What happens to normalised rows before they are stored: age, clocks, starts, prices."""
