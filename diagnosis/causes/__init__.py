"""One detector per cause. A detector returns a claim: its cause's share of the growth."""
