"""Checks and corrects rows before they are stored: age, clocks, engine starts, prices."""
