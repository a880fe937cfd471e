"""The checks of `tailspan doctor` and `tailspan slo check`."""
