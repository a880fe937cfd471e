"""One detector per cause. A detector returns a claim: the part of the latency's growth that its
cause explains."""
