"""One detector per cause. A detector returns the share of the growth that its cause explains."""
