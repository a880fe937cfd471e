"""One detector per cause. A detector returns a claim: the part of the growth that its cause
explains."""
