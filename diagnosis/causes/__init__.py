"""One detector per cause. A detector returns a claim: which part of the latency's growth its cause
explains."""
