"""One detector per cause: its symptoms, its share of the excess, its levers."""
